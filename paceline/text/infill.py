"""Filling a gap in code: how the models trained for it want prefix and suffix laid out, and what of them has room.

The layout is that of llama-server and of Qwen's paper (arXiv 2409.12186): other files of the project, then what stands
before the gap, then what comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

SPELLINGS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>", "", ""),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "", ""),
    ("<PRE>", "<SUF>", "<MID>", "", ""),
)
SNIPPET = "\n\n--- snippet ---\n\n"
PROJECT, THIS_FILE = "myproject\n", "filename\n"
USUAL_ANSWER = 256
MOST_FILES = 1024
"""More files than that are not looked at; the last ones count."""

Tokenize = Callable[[str], list[int]]


class FimTokens(msgspec.Struct, frozen=True, array_like=True):
    """A model's tokens around a gap. `repo` and `file` are there when it learned several files at once; -1 is none."""

    prefix: int = -1
    suffix: int = -1
    middle: int = -1
    repo: int = -1
    file: int = -1

    @property
    def complete(self) -> bool:
        return min(self.prefix, self.suffix, self.middle) >= 0


def fim_tokens(known: Sequence[int], token_of: Callable[[str], int]) -> FimTokens:
    """Those the model's file names, else those of the first family whose spellings are tokens of the vocabulary."""
    named = FimTokens(*known)
    if named.complete:
        return named
    families = (FimTokens(*(token_of(text) if text else -1 for text in spelling)) for spelling in SPELLINGS)
    return next((family for family in families if family.complete), FimTokens())


@dataclass(frozen=True, slots=True)
class File:
    """Another file of the project, or a part of one."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens there are for a prompt: for what stands around the gap, and for other files before it."""

    gap: int
    files: int

    @classmethod
    def of(cls, n_ctx: int, n_batch: int, n_predict: int | None) -> Room:
        """As llama-server divides a slot: around the gap a batch; files get the rest, but for twice an answer. A small
        slot has a quarter for files all the same. What a request asks for plays no part: files that were sent ahead
        are cut as they will be."""
        n_answer = max(3, min(USUAL_ANSWER if n_predict is None else n_predict, n_ctx // 8))
        usable = max(0, n_ctx - 2 * n_answer)
        gap = min(n_batch, usable * 3 // 4)
        return cls(gap, usable - gap)


@dataclass(frozen=True, slots=True)
class Gap:
    """What stands before the gap and after it, and the beginning of what is to fill it, in tokens."""

    prefix: list[int]
    suffix: list[int]
    start: list[int]


def infill_prompt(
    fim: FimTokens, gap: Gap, files: list[int], room: Room, *, bos: int = -1, suffix_first: bool = False
) -> list[int]:
    """What is farthest from the gap is left out where there is no room for all: three quarters of it are for the
    prefix."""
    quarter = room.gap // 4
    n_suffix = max(0, quarter - 2 - len(gap.start))
    before = [fim.prefix, *last(gap.prefix, 3 * quarter), *gap.start]
    after = [fim.suffix, *gap.suffix[:n_suffix]]
    first, second = (after, before) if suffix_first else (before, after)
    return [*last(files, room.files), *([bos] if bos >= 0 else []), *first, *second, fim.middle]


def files_prompt(fim: FimTokens, files: Sequence[File], tokenize: Tokenize, n_most: int) -> list[int]:
    """Other files, at least as much of their end as has room."""
    end = [fim.file, *tokenize(THIS_FILE)] if fim.file >= 0 else []
    parts = [end]
    n = len(end)
    for file in reversed(files[-MOST_FILES:]):
        if n >= n_most:
            break
        parts.append([*head(fim, file, tokenize), *tokenize(file.text)])
        n += len(parts[-1])
    project = [fim.repo, *tokenize(PROJECT)] if fim.repo >= 0 else []
    return [token for part in (project, *reversed(parts)) for token in part]


def head(fim: FimTokens, file: File, tokenize: Tokenize) -> list[int]:
    return [fim.file, *tokenize(f"{file.name}\n")] if fim.file >= 0 else tokenize(SNIPPET)


def last(tokens: list[int], n: int) -> list[int]:
    return tokens[max(0, len(tokens) - n) :]
