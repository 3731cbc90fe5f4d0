"""What the benchmarks share: where models and prompts are, what to say when one is not there, and chats."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from paceline import Engine
from paceline.bench.suite import SUITE, SuitePrompt, load
from paceline.errors import ConfigError, ModelError
from paceline.process.local import LocalEngine

Main = Callable[[], None]
LOOK_S, QUIET = 0.4, 0.15
"""How long to look whether the machine is quiet, and the share of one core that may be busy then."""
PROC_STAT = Path("/proc/stat")
SHARED = Path(__file__).resolve().parents[2] / "shared"
DRAFT = SHARED / "models" / "smollm2-135m-draft-12m-q4_0.gguf"
SPEC_BENCH = SHARED / "data" / "spec_bench_dev.jsonl"


def guarded(main: Main) -> None:
    """Run a benchmark. What it lacks is told in one line, and the exit code is 2."""
    try:
        main()
    except (ConfigError, ModelError) as error:
        print(f"{Path(sys.argv[0]).stem}: {error}", file=sys.stderr)
        sys.exit(2)


def draft_model(given: str | None = None) -> str:
    """The draft model to measure with: the one given, else ours beside the clone."""
    if given is None and not DRAFT.is_file():
        where = DRAFT.relative_to(SHARED.parent)
        raise ConfigError(
            f"needs a draft model for SmolLM2-135M-Instruct: give one with --draft, or put it at ../{where}"
        )
    return needed(given or str(DRAFT), "the draft model")


def needed(path: str | Path, what: str) -> str:
    """The path of a file that has to be there."""
    if not Path(path).is_file():
        raise ConfigError(f"needs {what}, and there is no file {path}")
    return str(path)


def until_quiet(seconds: float = 60.0) -> None:
    """Wait until hardly anybody computes: threads spin for a while, and our own server measures while it is idle."""
    until, before = time.monotonic() + seconds, busy_seconds()
    while time.monotonic() < until:
        time.sleep(LOOK_S)
        now = busy_seconds()
        if now - before < QUIET * LOOK_S:
            return
        before = now
    print(f"the machine was not quiet for {seconds:.0f} seconds: figures may be off", file=sys.stderr)


def busy_seconds() -> float:
    """Of all cores together since the machine runs; where that is not told, nothing."""
    try:
        user, nice, system = (int(word) for word in PROC_STAT.read_text().split()[1:4])
    except OSError:
        return 0.0
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def prompts(n: int) -> list[SuitePrompt]:
    """n prompts, an even share of every category: Spec-Bench's when it is there, else our own suite."""
    available = load(str(SPEC_BENCH)) if SPEC_BENCH.exists() else SUITE
    by_category: dict[str, list[SuitePrompt]] = {}
    for prompt in available:
        by_category.setdefault(prompt.category, []).append(prompt)
    ranks = max(len(group) for group in by_category.values())
    order = [group[i] for i in range(ranks) for group in by_category.values() if i < len(group)]
    return order[:n]


def chat(engine: Engine, text: str) -> list[int]:
    """The tokens of a conversation that starts with this message."""
    return engine.tokenize(engine.chat_template.render([{"role": "user", "content": text}]))


def inside(engine: Engine) -> LocalEngine:
    """What a benchmark watches that no user needs to see."""
    assert isinstance(engine.backend, LocalEngine)
    return engine.backend


def show(result: Mapping[str, object], goals: Mapping[str, str]) -> None:
    """A table of what was measured beside what was wanted, then one line of JSON."""
    table = Table("what", "measured", "goal")
    for name, value in result.items():
        table.add_row(name, str(value), goals.get(name, ""))
    Console().print(table)
    print(json.dumps(result))
