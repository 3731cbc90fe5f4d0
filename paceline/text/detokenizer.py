"""Tokens to text, one at a time. Knows UTF-8 and each token's bytes; nothing of vocabularies, stops or requests.

A character may be spread over several tokens. What is not yet a whole character is held back, so that the pieces
joined are exactly the text that decoding all bytes at once (errors="replace") would give.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable

_new_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Turns one sequence's tokens into text. `pieces` gives a token's bytes."""

    def __init__(self, pieces: Callable[[int], bytes]) -> None:
        self._pieces = pieces
        self._decoder = _new_decoder(errors="replace")

    def push(self, token: int) -> str:
        """The text that became complete with this token; often a word, sometimes nothing."""
        return self._decoder.decode(self._pieces(token))

    def push_all(self, tokens: Iterable[int]) -> str:
        """The text that became complete with these tokens."""
        return self._decoder.decode(b"".join(map(self._pieces, tokens)))

    @property
    def pending(self) -> bytes:
        """Bytes held back: the start of a character whose end has not come."""
        return self._decoder.getstate()[0]

    def flush(self) -> str:
        """The end of the text: an unfinished character becomes U+FFFD. The next push starts afresh."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
