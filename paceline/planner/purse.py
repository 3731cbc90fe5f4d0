"""What drafts may lose: the seconds that drafting has gained so far, and a little more.

However good chances look, they are guesses: whoever promises and fails is stopped here after a few drafts, before all
that is learned of it says so. A draft is checked only if all of it may be wrong.
"""

from __future__ import annotations

FIRST = 0.8  # plain steps, before anything was gained
SHARE = 0.02  # of all time
MOST = 64.0  # plain steps that count of what was gained: texts change
DEBT = 4.0  # plain steps that count of what was lost: a machine that stood still is nobody's fault


class Purse:
    """Seconds, as plain steps of now would take."""

    def __init__(self) -> None:
        self._gained = 0.0

    def seconds(self, plain: float) -> float:
        """What may be lost now, when a plain step takes so long."""
        return self._gained + FIRST * plain

    def book(self, gained: float, took: float, plain: float) -> None:
        """A step that took so long gained this much against plain ones, or lost it."""
        self._gained = max(-DEBT * plain, min(MOST * plain, self._gained + gained + SHARE * took))
