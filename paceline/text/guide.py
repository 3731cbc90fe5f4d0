"""A text that is free first and bound later: thoughts that end after so many tokens, a grammar that begins at a mark.

Knows the bytes of each token. What it allows depends on the tokens consumed alone, like a `Matcher`, and it is used in
one's place: nothing is masked while the text is free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from paceline.engine.request import Bounds
from paceline.text.grammar import Matcher


class Guide:
    """Follows one text token by token. For one thread at a time. `pieces` gives a token's bytes."""

    def __init__(
        self, bounds: Bounds, pieces: Callable[[int], bytes], n_vocab: int, grammar: Matcher | None = None
    ) -> None:
        self._bounds = bounds
        self._pieces = pieces
        self._n_vocab = n_vocab
        self._grammar = grammar
        self._text = b""
        self._n_thoughts = 0
        self._forced: list[int] = []
        self._state: Callable[[], None] = self._thinking if bounds.opened else self._beginning
        self._state()

    # -- what a grammar is asked

    def mask(self) -> NDArray[np.bool_] | None:
        """One flag per token: may it come next? None: any may."""
        if self._forced:
            return self._only(self._forced[0])
        return self._grammar.mask() if self._bound and self._grammar else None

    def allows(self, token: int) -> bool:
        if self._forced:
            return token == self._forced[0]
        return not self._bound or self._grammar is None or self._grammar.allows(token)

    def forced(self) -> list[int]:
        """The tokens that must come next."""
        if self._forced:
            return list(self._forced)
        return self._grammar.forced() if self._bound and self._grammar else []

    def n_valid(self, draft: Sequence[int]) -> int:
        """How many of these tokens, from the first on, may be worth drafting."""
        if self._forced:
            pairs = zip(draft, self._forced, strict=False)
            return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(draft), len(self._forced)))
        if self._bound and self._grammar:
            return self._grammar.n_valid(draft)
        return len(draft)

    def consume(self, token: int) -> None:
        """Go on by a token that was allowed."""
        if self._bound:
            if self._grammar:
                self._grammar.consume(token)
            return
        self._text += self._pieces(token)
        if self._forced:
            self._forced.pop(0)
        elif self._state == self._thinking:
            self._n_thoughts += 1
        self._state()

    @property
    def _bound(self) -> bool:
        return self._state == self._following

    def _only(self, token: int) -> NDArray[np.bool_]:
        mask = np.zeros(self._n_vocab, np.bool_)
        mask[token] = True
        return mask

    # -- states: each looks at what was written since it began

    def _beginning(self) -> None:
        """Nothing but white space so far: does it think?"""
        start, text = self._bounds.start.strip().encode(), self._text.lstrip()
        if start and text.startswith(start):
            self._go(self._thinking, text[len(start) :])
        elif not start.startswith(text) or not start or (self._grammar and not self._bounds.after):
            self._go(self._free, self._text)

    def _thinking(self) -> None:
        end = self._bounds.end.encode()
        _, found, rest = self._text.partition(end)
        if found:
            self._forced = []
            self._go(self._free, rest)
        elif not self._forced and 0 <= self._bounds.n_thoughts <= self._n_thoughts and whole_characters(self._text):
            self._forced = list(self._bounds.closing)
        else:
            self._text = self._text[-(len(end) + 4) :]

    def _free(self) -> None:
        """Until the mark; where none is waited for, the grammar begins."""
        if not self._bounds.after:
            self._go(self._following, self._text)
            return
        marks = [mark.encode() for mark in self._bounds.after]
        found = [(at, mark) for mark in marks if (at := self._text.find(mark)) >= 0]
        if found:
            at, mark = min(found)
            self._go(self._following, self._text[at + len(mark) :])
        else:
            self._text = self._text[-max(map(len, marks)) :]

    def _go(self, state: Callable[[], None], text: bytes) -> None:
        self._state, self._text = state, text
        state()

    def _following(self) -> None:
        """What the last token holds beyond the mark is the grammar's; where that does not fit the text stays free."""
        if self._grammar and self._text and not self._grammar.consume_text(self._text):
            self._grammar = None


def whole_characters(text: bytes) -> bool:
    """Whether the text does not end within a character."""
    try:
        text[-4:].decode()
    except UnicodeDecodeError as error:
        return error.reason != "unexpected end of data"
    return True
