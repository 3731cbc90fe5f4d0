"""Going back in a memory that cannot be cut: the state of a sequence before a draft, brought back when the draft is
rejected. Knows bytes and counts; nothing of texts."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from paceline.llama.saved import Bytes


class Markable(Protocol):
    """What of a context checkpoints need. `n_rollback` tokens of the latest batch can be removed anyway; None: all."""

    n_rollback: int | None

    def mark(self, seq: int, state: Bytes | None = None) -> Bytes: ...
    def go_back(self, seq: int, state: Bytes, n: int) -> bool: ...


@dataclass(slots=True)
class Checkpoint:
    """The state of a sequence after its first n tokens; after 0, none that counts."""

    state: Bytes
    n: int


class Checkpoints:
    """One for each sequence, the latest. `seconds` adds up what they have taken."""

    def __init__(self, cells: Markable) -> None:
        self._cells = cells
        self._latest: dict[int, Checkpoint] = {}
        self.seconds = 0.0

    def take(self, seq: int, n: int, n_drafted: int) -> None:
        """Before a draft of so many tokens after the first n, if it could not be taken back otherwise."""
        n_rollback, latest = self._cells.n_rollback, self._latest.get(seq)
        if n_rollback is None or n_drafted <= n_rollback or (latest and latest.n == n):
            return
        start = perf_counter()
        self._latest[seq] = Checkpoint(self._cells.mark(seq, latest.state if latest else None), n)
        self.seconds += perf_counter() - start

    def restore(self, seq: int, n: int) -> int:
        """Go back as little as possible, to n tokens or fewer; returns how many are left, 0 where nothing is kept."""
        latest = self._latest.get(seq)
        if latest is None or not 0 < latest.n <= n:
            return 0
        start = perf_counter()
        done = self._cells.go_back(seq, latest.state, latest.n)
        self.seconds += perf_counter() - start
        return latest.n if done else 0

    def cut(self, seq: int, n: int) -> None:
        """The text of the sequence changes after its first n tokens: a later checkpoint is of another one."""
        latest = self._latest.get(seq)
        if latest and latest.n > n:
            latest.n = 0
