"""What the target has handed out of one text: the rows of its latest tokens, without a gap. Numpy only.

Bound: `window` rows per text, and its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.llama.lib import Floats

LEAST_ROOM = 16  # rows


class RowTrace:
    """The text as far as the target has computed it, and the rows of its tokens from `start` on."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._rows: Floats = np.zeros((0, 0), np.float32)
        self._first = 0  # of the rows in their buffer
        self.start = 0
        self.text: list[int] = []

    @property
    def end(self) -> int:
        return len(self.text)

    def follow(self, start: int, text: Sequence[int], rows: Floats) -> None:
        """The target has computed this text from position `start` on. What was kept from there on is no more; where
        something is missing before, all of it."""
        self.cut(start if self.start <= start <= self.end else 0)
        if self.start == self.end:
            self.start, self.text, self._first = start, list(text[:start]), 0
        kept = rows[-self._window :]
        n_old = max(0, self.end - self.start + len(kept) - self._window)
        if len(kept) < len(rows):
            self.start, self._first, n_old = start + len(rows), 0, 0
        self.start, self._first = self.start + n_old, self._first + n_old
        self._put(kept, max(0, self.end - self.start))
        self.text.extend(text[start : start + len(rows)])
        self.start = min(self.start, self.end - len(kept))

    def _put(self, rows: Floats, n: int) -> None:
        """After n that there are. The buffer has room for a few more than the window, so that they move seldom."""
        if not len(self._rows):
            self._rows = np.empty((self._window + max(self._window // 4, LEAST_ROOM), rows.shape[1]), np.float32)
        if self._first + n + len(rows) > len(self._rows):
            self._rows[:n] = self._rows[self._first : self._first + n].copy()
            self._first = 0
        at = self._first + n
        self._rows[at : at + len(rows)] = rows

    def cut(self, n: int) -> None:
        """Only the text's first n tokens are still the same."""
        del self.text[n:]
        if n <= self.start:
            self.start, self._first = n, 0

    def n_common(self, text: Sequence[int]) -> int:
        """How many tokens at its beginning this text has in common with ours."""
        n = min(len(text), len(self.text))
        if list(text[:n]) == self.text[:n]:
            return n
        return next(i for i, (own, other) in enumerate(zip(self.text, text, strict=False)) if own != other)

    def ends_before_last(self, text: Sequence[int]) -> bool:
        """Whether the last row is that of the last token but one; the last one nobody has computed yet."""
        return self.start < self.end == len(text) - 1

    def rows(self, first: int, last: int) -> Floats:
        """Of these positions: a view, until the trace goes on."""
        at = self._first - self.start
        return self._rows[at + first : at + last]
