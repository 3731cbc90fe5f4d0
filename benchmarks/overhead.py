"""What the engine costs beside libllama: without speculation, against a bare decode loop, in one interleaved run.

python -m benchmarks.overhead [--kind Q4_1] [--rounds 6] [-n 96]
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from time import perf_counter

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import chat, guarded
from paceline import Engine
from paceline.config import ContextParams, EngineParams, ModelParams, SamplingParams
from paceline.engine.active import ActiveRequest
from paceline.engine.core import Core
from paceline.engine.drafting import Drafting
from paceline.engine.request import Event, Request, Tokens
from paceline.llama.context import Context
from paceline.llama.model import Model
from paceline.models import demo_copy
from paceline.planner.fixed import FixedPolicy

PROMPT = "Write a long story about a fox who wanted to cross the river."
GREEDY = SamplingParams(temperature=0, ignore_eos=True)
SAMPLED = SamplingParams(seed=1, ignore_eos=True)


def bare_loop(context: Context, prompt: list[int], n: int) -> float:
    """Tokens per second of the least a program can do: decode one token, take the largest logit."""
    context.clear()
    batch = context.new_batch()
    batch.add(0, prompt, 0, 1)
    token = int(context.decode(batch)[0].argmax())
    start = perf_counter()
    for position in range(len(prompt), len(prompt) + n - 1):
        batch.clear()
        batch.add(0, [token], position, 1)
        token = int(context.decode(batch)[0].argmax())
    return (n - 1) / (perf_counter() - start)


class Run:
    """An engine stepped by hand, on a context of its own."""

    def __init__(self, model: Model, n_slots: int) -> None:
        params = ContextParams(n_ctx=1024 * n_slots, n_seqs=n_slots, n_threads=2)
        self.context = Context(model, params)
        self.core = Core(self.context, model.vocab, Drafting([], FixedPolicy()), EngineParams(n_slots=n_slots))

    def __call__(self, prompt: list[int], n: int, sampling: SamplingParams) -> tuple[float, float]:
        """Tokens per second, and milliseconds of Python per step, once every slot is generating."""
        events: list[Event] = []
        for _ in self.core.slots:
            parts = (Tokens(prompt),)
            request = Request(id=0, prompt=parts, sampling=sampling, max_tokens=n, cache_prompt=False)
            self.core.submit(ActiveRequest(request, events.append))
        while not all(slot.generating for slot in self.core.slots):
            self.core.step()
        inside, start, n_steps = self.context.seconds, perf_counter(), self.core.n_steps
        n_before = sum(slot.n_generated for slot in self.core.slots)
        while all(slot.busy for slot in self.core.slots):
            self.core.step()
        seconds, inside = perf_counter() - start, self.context.seconds - inside
        n_done = sum(slot.n_generated for slot in self.core.slots) - n_before
        while self.core.busy:
            self.core.step()
        return n_done / seconds, 1e3 * (seconds - inside) / (self.core.n_steps - n_steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="Q4_1", help="precision of the demo model")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("-n", type=int, default=96)
    args = parser.parse_args()
    path, _ = demo_copy(args.kind)
    with Engine(path, n_ctx=512) as engine:
        prompt = chat(engine, PROMPT)
    model = Model(ModelParams(path=path))
    one, eight = Run(model, 1), Run(model, 8)
    bare = Context(model, ContextParams(n_ctx=1024, n_threads=2))
    ratios, speeds, ms = [], [], {"1": [], "8": [], "sampled": []}  # type: ignore[var-annotated]
    for _ in track(range(args.rounds + 1), "measuring", console=Console(stderr=True)):
        a = bare_loop(bare, prompt, args.n)
        b, python_1 = one(prompt, args.n, GREEDY)
        c = bare_loop(bare, prompt, args.n)
        _, python_8 = eight(prompt, args.n // 4, GREEDY)
        _, python_sampled = one(prompt, args.n // 2, SAMPLED)
        ratios.append(2 * b / (a + c))
        speeds.append((b, (a + c) / 2))
        for name, value in zip(ms, (python_1, python_8, python_sampled), strict=True):
            ms[name].append(value)
    ratios, speeds = ratios[1:], speeds[1:]  # the first round warms up
    result = {
        "ratio_vs_bare": round(median(ratios), 4),
        "python_ms_per_step_1": round(median(ms["1"][1:]), 4),
        "python_ms_per_step_8": round(median(ms["8"][1:]), 4),
        "python_ms_per_step_sampled": round(median(ms["sampled"][1:]), 4),
    }
    table = Table("what", "median", "from", "to", "goal")
    table.add_row("engine / bare loop", *(f"{x:.3f}" for x in (median(ratios), min(ratios), max(ratios))), ">= 0.97")
    for (name, values), goal in zip(ms.items(), ("0.3", "1.0", "0.6"), strict=True):
        row = (median(values[1:]), min(values[1:]), max(values[1:]))
        table.add_row(f"Python ms per step, {name}", *(f"{x:.3f}" for x in row), f"<= {goal}")
    Console().print(table)
    print(f"engine {median(s[0] for s in speeds):.1f} tokens/s, bare loop {median(s[1] for s in speeds):.1f} tokens/s")
    print(json.dumps(result))


if __name__ == "__main__":
    guarded(main)
