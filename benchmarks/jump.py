"""A jump in cost: another process takes a core for a while. How long until predictions hold again, and what it costs.

python -m benchmarks.jump [--kind Q8_0] [--seconds 10]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from rich.console import Console
from rich.table import Table

from benchmarks.common import chat, draft_model, guarded, inside, prompts
from paceline import Engine
from paceline.models import demo_copy

CLOSE = 0.25  # predictions hold when their median error over WINDOW steps is less, in logs
WINDOW = 15
BUSY = "import time; end = time.time() + {}\nwhile time.time() < end: pass"


@dataclass(slots=True)
class Step:
    at: float
    predicted: float
    actual: float

    @property
    def error(self) -> float:
        return math.log(self.actual / self.predicted)


class Watch:
    """Writes down every step of an engine: predicted before it was learned from, and actual."""

    def __init__(self, engine: Engine) -> None:
        planner = inside(engine).parts.planner
        assert planner
        self.steps: list[Step] = []
        self._planner = planner
        self._observe = self._planner.observe_step
        self._planner.observe_step = self.observe  # type: ignore[method-assign]

    def observe(self, n_tokens: int, n_emitted: int, n_drafted: int, seconds: float, drafting: float) -> None:
        self.steps.append(Step(perf_counter(), self._planner.seconds(n_tokens), seconds))
        self._observe(n_tokens, n_emitted, n_drafted, seconds, drafting)


def settled_after(steps: list[Step], moment: float) -> float | None:
    """Seconds after `moment` from which on the predictions hold."""
    later = [step for step in steps if step.at >= moment]
    for i in range(WINDOW, len(later) + 1):
        if abs(median(step.error for step in later[i - WINDOW : i])) < CLOSE:
            return later[i - 1].at - moment
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="Q8_0")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--draft", help="draft model of the same vocabulary")
    args = parser.parse_args()
    draft = draft_model(args.draft)
    path, _ = demo_copy(args.kind)
    with Engine(path, draft=draft, n_ctx=4096, n_threads=2) as engine:
        watch = Watch(engine)
        texts = [prompt.text for prompt in prompts(24)]
        start = perf_counter()
        jump, process = 0.0, None
        for text in texts * 10:
            for _ in engine.generate(chat(engine, text)[:300], max_tokens=96, temperature=0, ignore_eos=True):
                now = perf_counter() - start
                if not jump and now > args.seconds:
                    jump = perf_counter()
                    process = subprocess.Popen([sys.executable, "-c", BUSY.format(args.seconds)])
            if perf_counter() - start > 3.2 * args.seconds:
                break
        assert process
        process.wait()
    moments = {"the core is taken": jump, "the core is free again": jump + args.seconds}
    table = Table("from the moment", "predictions hold after", "a step before", "a step after")
    result = {}
    for name, moment in moments.items():
        around = [[s.actual for s in watch.steps if a <= s.at - moment < a + 3] for a in (-3, 1)]
        before, after = (1e3 * median(part) for part in around)
        seconds = settled_after(watch.steps, moment)
        result[name] = {"seconds": seconds, "before_ms": before, "after_ms": after}
        table.add_row(name, "never" if seconds is None else f"{seconds:.1f} s", f"{before:.0f} ms", f"{after:.0f} ms")
    Console().print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    guarded(main)
