"""Prompts to measure with: our own small suite, and any file in Spec-Bench's JSONL format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from paceline.errors import ConfigError

# Spec-Bench files MT-Bench's questions under their own categories but reports them as one.
MT_BENCH = frozenset({"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"})


@dataclass(frozen=True, slots=True)
class SuitePrompt:
    category: str
    text: str


def load(path: str | Path) -> tuple[SuitePrompt, ...]:
    """The first turn of every question in a Spec-Bench file; blank lines are skipped."""
    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise ConfigError(f"cannot read prompts from {path}: {e.strerror}") from e
    return parse(data, str(path))


def parse(data: bytes, name: str) -> tuple[SuitePrompt, ...]:
    prompts = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        if line.strip():
            try:
                prompts.append(question(line))
            except (ValueError, RecursionError) as e:
                raise ConfigError(f"{name}, line {number}: {e}") from e
    if not prompts:
        raise ConfigError(f"{name} holds no prompts")
    return tuple(prompts)


def question(line: bytes) -> SuitePrompt:
    match json.loads(line.decode()):
        case {"category": str(category), "turns": [str(text), *_]} if category.strip() and text.strip():
            text.encode()  # a lone surrogate is valid JSON, but no text
            return SuitePrompt("mt_bench" if category in MT_BENCH else category, text)
    raise ValueError('expected {"category": text, "turns": [text, ...]}')


SUITE = parse((resources.files("paceline.bench") / "suite.jsonl").read_bytes(), "suite.jsonl")
