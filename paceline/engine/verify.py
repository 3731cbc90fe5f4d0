"""The accept rule. The whole of speculative decoding is here: what the target would have said anyway, kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from paceline.errors import NoNumbers
from paceline.llama.lib import Floats


class Draws(Protocol):
    """What verification needs of a sampler."""

    def sample(self, row: Floats, position: int) -> int: ...


def verify(
    sampler: Draws, rows: Floats, draft: Sequence[int], position: int, eog: frozenset[int] = frozenset()
) -> list[int]:
    """Tokens of the text from `position` on: the draft as far as the target agrees, and one of the target's own.

    rows[j] are the target's logits after the first j tokens of the draft. What was drawn before a row without numbers
    stands: sampler and grammar know of it.
    """
    tokens: list[int] = []
    for j, row in enumerate(rows):
        try:
            token = sampler.sample(row, position + j)
        except NoNumbers:
            if tokens:
                break
            raise
        tokens.append(token)
        if j == len(draft) or token != draft[j] or token in eog:
            break
    return tokens


def log_probabilities(row: Floats, token: int, n_top: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The target's own log-probability of `token` and of its `n_top` likeliest ones, before any filter."""
    highest = row.max()
    total = highest + np.log(np.exp(row - highest, dtype=np.float64).sum())
    if not n_top:
        return float(row[token] - total), ()
    n_top = min(n_top, len(row))
    top = np.argpartition(row, len(row) - n_top)[len(row) - n_top :]
    top = top[np.lexsort((top, -row[top]))]
    return float(row[token] - total), tuple((int(t), float(row[t] - total)) for t in top)
