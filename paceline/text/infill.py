"""Filling a gap in code: how the models trained for it want prefix and suffix laid out. Knows spellings, not tokens.

The layouts are those of the models' own cards: StarCoder's and Qwen's (arXiv 2409.12186), DeepSeek's, CodeLlama's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spelling:
    """One family's special tokens. `repo` and `file` are there when it learned several files at once."""

    prefix: str
    suffix: str
    middle: str
    repo: str = ""
    file: str = ""


SPELLINGS = (
    Spelling("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"),
    Spelling("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"),
    Spelling("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    Spelling("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    Spelling("<PRE>", "<SUF>", "<MID>"),
)


@dataclass(frozen=True, slots=True)
class File:
    """Another file of the project."""

    name: str
    text: str


def spelling_for(is_token: Callable[[str], bool]) -> Spelling | None:
    """The family this vocabulary belongs to; None for models that never learned to fill gaps."""
    for spelling in SPELLINGS:
        if all(map(is_token, (spelling.prefix, spelling.suffix, spelling.middle))):
            several = spelling.repo and is_token(spelling.repo) and is_token(spelling.file)
            return spelling if several else Spelling(spelling.prefix, spelling.suffix, spelling.middle)
    return None


def infill_prompt(spelling: Spelling, prefix: str, suffix: str, start: str = "", files: Sequence[File] = ()) -> str:
    """`start` is the beginning of the middle, which the model continues."""
    gap = f"{spelling.prefix}{prefix}{spelling.suffix}{suffix}{spelling.middle}{start}"
    if not files:
        return gap
    if not spelling.file:
        return "".join(file.text for file in files) + gap
    parts = [f"{spelling.file}{file.name}\n{file.text}\n" for file in files]
    return f"{spelling.repo}myproject\n{''.join(parts)}{spelling.file}filename\n{gap}"
