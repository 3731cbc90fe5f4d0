"""What the benchmarks share: where models and prompts are, and how a prompt becomes a chat."""

from __future__ import annotations

from pathlib import Path

from paceline import Engine
from paceline.bench.suite import SUITE, SuitePrompt, load
from paceline.errors import ConfigError
from paceline.process.local import LocalEngine

SHARED = Path(__file__).resolve().parents[2] / "shared"
DRAFT = SHARED / "models" / "smollm2-135m-draft-12m-q4_0.gguf"
SPEC_BENCH = SHARED / "data" / "spec_bench_dev.jsonl"


def draft_model() -> str:
    """The draft model to measure with."""
    if not DRAFT.exists():
        raise ConfigError(f"no draft model at {DRAFT.name}; give one with --draft")
    return str(DRAFT)


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
