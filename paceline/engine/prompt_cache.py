"""Prompts that no slot has room for, with what was computed of them, in this process's memory. Knows tokens and bytes;
nothing of slots."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.llama.saved import Bytes

log = logging.getLogger("paceline")

LEAST = 16  # tokens: fewer are read again as quickly
N_KEPT = 256  # all are compared with every prompt
SHARE = 4  # an entry is brought back for a quarter of it, not for less
TOKEN_BYTES = 36  # of a Python list, and a number in it


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens are the same. Halving keeps the comparing in C: it is called on whole prompts."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Tokens, libllama's bytes of them, and the adapter they were computed with."""

    tokens: list[int]
    state: Bytes
    adapter: str | None = None

    @property
    def n_bytes(self) -> int:
        return self.state.nbytes + TOKEN_BYTES * len(self.tokens)


class PromptCache:
    """At most `n_bytes` (None: no limit) and 256 prompts; those unused for longest go first."""

    def __init__(self, n_bytes: int | None) -> None:
        self._n_most = n_bytes
        self._kept: list[Kept] = []  # the one used last is the last

    @property
    def n_prompts(self) -> int:
        return len(self._kept)

    @property
    def n_bytes(self) -> int:
        return sum(kept.n_bytes for kept in self._kept)

    def takes(self, n_bytes: int) -> bool:
        """Whether so much could be kept at all."""
        return self._n_most is None or n_bytes <= self._n_most

    def covers(self, tokens: list[int], adapter: str | None) -> bool:
        """Whether these tokens are the beginning of something kept."""
        return any(kept.adapter == adapter and kept.tokens[: len(tokens)] == tokens for kept in self._kept)

    def put(self, new: Kept) -> None:
        """What it goes on from is kept no longer."""
        self._kept = [
            kept for kept in self._kept if kept.adapter != new.adapter or kept.tokens != new.tokens[: len(kept.tokens)]
        ]
        self._kept.append(new)
        while self._kept and (len(self._kept) > N_KEPT or not self.takes(self.n_bytes)):
            del self._kept[0]
        log.debug("prompt cache: %d prompts, %.1f MiB", self.n_prompts, self.n_bytes / 2**20)

    def find(self, prompt: list[int], adapter: str | None, n_held: int) -> Kept | None:
        """What has most in common with a prompt, if that is clearly more than its slot holds already."""
        best, n_best = None, n_held + LEAST - 1
        for kept in self._kept:
            if kept.adapter == adapter and kept.tokens[:1] == prompt[:1]:
                n = common_prefix(kept.tokens, prompt)
                if n > n_best and SHARE * n >= len(kept.tokens):
                    best, n_best = kept, n
        if best:
            self._kept.remove(best)
            self._kept.append(best)
        return best
