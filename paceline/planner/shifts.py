"""With which tokens a drafter is right more often, or less, than its confidence says: by the token itself, and by the
one before it. A summary goes on as its report does, but never with the blank before a comma; what followed a digit once
says little of what follows it now.

Each token has a shift of the log-odds, of which a new one has none and learns fast: a Bayesian logistic regression, a
step at a time. Bound: MOST tokens in each of the two tables.
"""

from __future__ import annotations

VARIANCE = 1.0  # of shifts before anything is known, and never more
WANDER = 0.003  # variance that each lesson adds: texts change
FARTHEST = 3.0
MOST = 8192
UNKNOWN = (0.0, VARIANCE)

Table = dict[int, tuple[float, float]]  # by token: the shift, and its variance


class TokenShifts:
    """What one drafter is good at."""

    def __init__(self) -> None:
        self._said: Table = {}
        self._after: Table = {}

    def shift(self, before: int, token: int) -> float:
        """Of the log-odds of this token, said after that one."""
        return self._said.get(token, UNKNOWN)[0] + self._after.get(before, UNKNOWN)[0]

    def learn(self, before: int, token: int, chance: float, *, right: bool) -> None:
        """What was believed in with this chance, all shifts counted, turned out right, or wrong."""
        said, after = self._said.get(token, UNKNOWN), self._after.get(before, UNKNOWN)
        weight = chance * (1 - chance)
        share = 1 / (1 + weight * (said[1] + after[1]))
        put(self._said, token, moved(said, share * (right - chance), share * weight))
        put(self._after, before, moved(after, share * (right - chance), share * weight))


def moved(known: tuple[float, float], off: float, weight: float) -> tuple[float, float]:
    shift, variance = known
    shift = max(-FARTHEST, min(FARTHEST, shift + variance * off))
    return shift, min(VARIANCE, variance - variance * variance * weight + WANDER)


def put(table: Table, token: int, value: tuple[float, float]) -> None:
    """At the end: when a table is full, the half that was not met for longest goes."""
    table.pop(token, None)
    if len(table) >= MOST:
        for old in list(table)[: MOST // 2]:
            del table[old]
    table[token] = value
