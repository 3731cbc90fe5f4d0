"""A growing text in one vocabulary, as tokens of another. Knows bytes and token ids, no vocabularies and no models.

The text is cut where every tokenizer ends a word, and each piece is translated by itself: so a text that grows is
translated as far as it is cut, once, and only the piece that is still open again. However a text was read, token by
token or at once, the result is the same.

Bound: the text's tokens, and a mark for every 32 of them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod

LONGEST = 64  # bytes of a piece, where no word ends
MARK_EVERY = 32  # tokens: so many are read again at most when the text turns out to have changed

# Between a letter or digit and a blank or sign, and before any blank between words. Not before signs that belong to
# contractions, names and tags as in <think> or <|im_end|>; bytes above 127 are letters mostly.
_WORD_END = re.compile(
    rb"(?<=\S)(?= )|(?<=[0-9A-Za-z\x80-\xff])(?=\s)|(?<=[0-9A-Za-z])(?=[!-&(-/:-=?@\[-^`{}~])",
)


@dataclass(frozen=True)
class Dictionary:
    """From one vocabulary into another.

    `spell` gives a token's bytes, `tokenize` a piece of text's tokens. `signs` are tokens that are no text, and what
    stands for them; `phrases` are texts that are something else on the other side. `opening` begins every text.
    """

    spell: Callable[[int], bytes]
    tokenize: Callable[[bytes], Sequence[int]]
    signs: Mapping[int, Sequence[int]] = field(default_factory=dict)
    phrases: Mapping[bytes, Sequence[int]] = field(default_factory=dict)
    opening: Sequence[int] = ()

    @cached_property
    def _phrase(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(map(re.escape, sorted(self.phrases, key=len, reverse=True))))

    def pieces(self, text: bytes, *, whole: bool) -> Iterator[bytes]:
        """Those that will stay as they are however the text goes on; all of them if this is the `whole` of it."""
        if not self.phrases:
            yield from words(text, len(text), whole=whole)
            return
        start, held = 0, len(text) if whole else n_before(text, self.phrases)
        while (match := self._phrase.search(text, start)) and match.start() < held:
            yield from words(text[start : match.start()], match.start() - start, whole=True)
            yield match.group()
            start = match.end()
        yield from words(text[start:], held - start, whole=whole)

    def translate(self, piece: bytes) -> Sequence[int]:
        return self.phrases[piece] if piece in self.phrases else self.tokenize(piece)


def words(text: bytes, n_most: int, *, whole: bool) -> Iterator[bytes]:
    """The text's words, none beyond its first `n_most` bytes; what is left at its end only if it is the `whole`."""
    start = 0
    for match in _WORD_END.finditer(text):
        if match.start() > n_most:
            break
        yield from slices(text[start : match.start()], whole=True)
        start = match.start()
    yield from slices(text[start : len(text) if whole else max(start, n_most)], whole=whole)


def slices(word: bytes, *, whole: bool) -> Iterator[bytes]:
    """A word that is too long in pieces, cut between characters."""
    start = 0
    while len(word) - start > LONGEST:
        end = start + LONGEST
        while end > start + LONGEST - 3 and is_inside(word[end]):
            end -= 1
        yield word[start:end]
        start = end
    if whole and start < len(word):
        yield word[start:]


def is_inside(byte: int) -> bool:
    """Whether this byte of a text in UTF-8 is another one than a character's first."""
    return byte & 0xC0 == 0x80


def n_before(text: bytes, phrases: Mapping[bytes, object]) -> int:
    """How many bytes stand before what may become a phrase when the text goes on."""
    begun = (
        n for phrase in phrases for n in range(min(len(phrase) - 1, len(text)), 0, -1) if text.endswith(phrase[:n])
    )
    return len(text) - max(begun, default=0)


def n_split(text: bytes) -> int:
    """How many bytes at the end are the beginning of a character."""
    for n in range(1, min(4, len(text) + 1)):
        byte = text[-n]
        if not is_inside(byte):
            n_whole = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return n if n < n_whole and byte < 0xF8 else 0
    return 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A place to come back to: what was read, translated and still open there."""

    n_source: int
    n_closed: int
    open: bytes


class Translation:
    """One text. `source` is what was read of it, `tokens` what that is in the other vocabulary; the first `n_closed` of
    these stay as the text goes on. `pending` are bytes at its end that are no character yet, and not in `tokens`."""

    def __init__(self, dictionary: Dictionary) -> None:
        self.dictionary = dictionary
        self.source: list[int] = []
        self.tokens: list[int] = list(dictionary.opening)
        self.n_closed = len(self.tokens)
        self.pending = b""
        self._open = b""
        self._marks = [self._mark()]

    def _mark(self) -> Mark:
        """Here, while nothing that is open is written."""
        return Mark(len(self.source), len(self.tokens), self._open)

    def read(self, tokens: Sequence[int]) -> None:
        """The text goes on with these."""
        del self.tokens[self.n_closed :]
        for token in tokens:
            self._read(token)
            if len(self.source) % MARK_EVERY == 0:
                self._marks.append(self._mark())
        self.n_closed = len(self.tokens)
        self._write_open()

    def rewind(self, n: int) -> None:
        """Only the first n tokens that were read are still the text's."""
        if n >= len(self.source):
            return
        while self._marks[-1].n_source > n:
            self._marks.pop()
        mark = self._marks[-1]
        again = self.source[mark.n_source : n]
        del self.source[mark.n_source :], self.tokens[mark.n_closed :]
        self.n_closed, self._open = mark.n_closed, mark.open
        self.read(again)

    def n_common(self, tokens: Sequence[int]) -> int:
        """How many tokens of this text are those that were read."""
        pairs = zip(self.source, tokens, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.source), len(tokens)))

    def _read(self, token: int) -> None:
        self.source.append(token)
        sign = self.dictionary.signs.get(token)
        if sign is None:
            self._open += self._spelled(token)
            self._close(whole=False)
        else:
            self._close(whole=True)
            self._put(b"", sign)

    def _spelled(self, token: int) -> bytes:
        return self.dictionary.spell(token)

    def _close(self, *, whole: bool) -> None:
        n = 0
        for piece in self.dictionary.pieces(self._open, whole=whole):
            self._put(piece, self.dictionary.translate(piece))
            n += len(piece)
        if n:
            self._open = self._open[n:]

    def _put(self, piece: bytes, tokens: Sequence[int]) -> None:
        """These stand for that piece of the text, or for a sign."""
        self.tokens += tokens

    def _write_open(self) -> None:
        """What is still open counts as if the text ended here."""
        n = len(self._open) - n_split(self._open)
        self.pending = self._open[n:]
        for piece in self.dictionary.pieces(self._open[:n], whole=True):
            self._put(piece, self.dictionary.translate(piece))


class Rendering(Translation):
    """A draft, in the target's tokens. It has to begin with the bytes that are `expected`: the target has written them
    already. `measure` gives the length of a target's token; where its tokens do not spell the draft's text, the draft
    `fits` no more and ends."""

    def __init__(self, dictionary: Dictionary, measure: Callable[[int], int], expected: bytes = b"") -> None:
        super().__init__(dictionary)
        self.fits = True
        self._measure = measure
        self._expected = expected
        self._n_bytes = 0
        self._starts: list[int] = []  # where in the text each of the draft's tokens begins
        self._sure: list[float] = []
        self._spans: list[tuple[int, int]] = []  # where in the text each of the target's stands

    def add(self, token: int, sure: float) -> None:
        """The draft goes on with this token, of which it is so sure."""
        self._starts.append(self._n_bytes)
        self._sure.append(sure)
        del self._spans[self.n_closed :]
        self.read([token])

    def token(self, index: int) -> tuple[int, float]:
        """A token of the target's, and how sure the draft is of it: of all its own tokens that begin in it; of the one
        that it lies in where none does."""
        start, end = self._spans[index]
        begun = [sure for at, sure in zip(self._starts, self._sure, strict=True) if start <= at < end]
        covers = max(0, bisect_right(self._starts, start) - 1)
        return self.tokens[index], prod(begun) if begun else self._sure[covers]

    def _read(self, token: int) -> None:
        if token in self.dictionary.signs:
            self.fits &= not self._expected
            self._n_bytes += 1
        super()._read(token)

    def _spelled(self, token: int) -> bytes:
        text = super()._spelled(token)
        n = min(len(text), len(self._expected))
        self.fits &= text[:n] == self._expected[:n]
        self._expected = self._expected[n:]
        self._n_bytes += len(text) - n
        return text[n:]

    def _put(self, piece: bytes, tokens: Sequence[int]) -> None:
        """What stands for a phrase or a sign has its place with its first token."""
        start = self._spans[-1][1] if self._spans else 0
        lengths = [self._measure(token) for token in tokens]
        if piece in self.dictionary.phrases or not piece:
            lengths = [len(piece) or 1, *(0 for _ in tokens[1:])]
        self.fits &= bool(tokens) and sum(lengths) == (len(piece) or 1)
        if not self.fits:
            return
        super()._put(piece, tokens)
        ends = list(accumulate(lengths, initial=start))
        self._spans += pairwise(ends)
