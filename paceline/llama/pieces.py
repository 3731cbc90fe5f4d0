"""Cutting a text that libllama's tokenizers would not survive into pieces they do. Knows text only.

libllama splits a text into words with std::regex, which recurses once per character: about 26,000 letters, spaces or
dashes in a row overflow the stack and end the process. https://gcc.gnu.org/bugzilla/show_bug.cgi?id=86164
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

LONGEST_RUN = 4000  # characters of one class
LONGEST_WORD = 16000  # characters without a space: some tokenizers take letters, digits and signs as one class
LONGEST_PIECE = 8000

_CLASSES = (r"[^\W\d_]", r"\d", r"\s", r"(?:[^\w\s]|_)")
_BEHIND = (r"(?<![^\W\d_])", r"(?<!\d)", r"(?<!\s)", r"(?<![^\w\s])(?<!_)")
_RUNS = [f"{behind}{each}{{{LONGEST_RUN + 1}}}" for behind, each in zip(_BEHIND, _CLASSES, strict=True)]
# Looking behind first makes every run be read once, from its start.
_MONSTER = re.compile("|".join([*_RUNS, rf"(?<!\S)\S{{{LONGEST_WORD + 1}}}"]))
# A run that long fills the stride behind some multiple of it, which is seen at once.
_STRIDE = LONGEST_RUN // 2
_FULL = re.compile("|".join([*(f"{each}{{{_STRIDE}}}" for each in _CLASSES), rf"\S{{{LONGEST_WORD // 2}}}"]))
# Every tokenizer ends a word between these, whatever stands around them.
_WORD_ENDS = (re.compile(r"[^\W_](?=\s)"), re.compile(r"[^\W_](?=[^\w\s'’])"))


def is_monstrous(text: str) -> bool:
    """Whether some run of it is too long."""
    suspicious = any(_FULL.match(text, start) for start in range(0, len(text) - _STRIDE + 1, _STRIDE))
    return suspicious and _MONSTER.search(text) is not None


def pieces(text: str, whole: Sequence[str] = (), size: int = LONGEST_PIECE) -> Iterator[str]:
    """The text in pieces of at most `size` characters, cut between words where there is such a place in the latter half
    of a piece; never inside one of `whole`, unless that is longer than half a piece."""
    start = 0
    while len(text) - start > size:
        end = _word_end(text, start + size // 2, start + size)
        end = _before(text, end, [each for each in whole if len(each) <= size // 2])
        yield text[start:end]
        start = end
    yield text[start:]


def _word_end(text: str, low: int, high: int) -> int:
    """The last place to cut in text[low:high]."""
    for pattern in _WORD_ENDS:
        ends = [match.end() for match in pattern.finditer(text, low, high)]
        if ends:
            return ends[-1]
    return high


def _before(text: str, end: int, whole: Sequence[str]) -> int:
    """A cut inside one of `whole` moves to its front."""
    starts = [text.find(each, end - len(each) + 1, end + len(each) - 1) for each in whole]
    return min((start for start in starts if start >= 0), default=end)
