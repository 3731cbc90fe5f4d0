"""Text on the screen, accepted draft tokens tinted by the drafter that guessed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO
from zlib import crc32

if TYPE_CHECKING:
    from paceline import Chunk, Piece

RESET = "\x1b[0m"
COLORS = {
    "draft-simple": 114,
    "draft-eagle3": 111,
    "draft-mtp": 78,
    "draft-dflash": 177,
    "draft-dspark": 209,
    "ngram-simple": 75,
    "ngram-map-k": 80,
    "ngram-map-k4v": 116,
    "ngram-mod": 141,
    "ngram-cache": 215,
    "suffix": 221,
    "grammar": 211,
}
SPARE_COLORS = (109, 151, 174, 180, 183, 187)


def wants_color(choice: bool | None, stream: TextIO, environ: Mapping[str, str]) -> bool:
    """The user's word first, then NO_COLOR (https://no-color.org), then the terminal."""
    if choice is not None:
        return choice
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def color_of(drafter: str) -> str:
    """The same colour for the same name, in every run; also for drafters this file has not heard of."""
    color = COLORS.get(drafter) or SPARE_COLORS[crc32(drafter.encode()) % len(SPARE_COLORS)]
    return f"\x1b[38;5;{color}m"


class Screen:
    """Where text goes as it comes; counts what each drafter guessed for the legend."""

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        self.stream = stream
        self.color = color
        self.counts: Counter[str | None] = Counter()
        self.at_line_start = True

    def show(self, chunk: Chunk) -> None:
        self.counts.update(piece.token.source for piece in chunk.pieces)
        self.write(tinted(chunk.pieces) if self.color and chunk.pieces else chunk.text)

    def write(self, text: str) -> None:
        if text:
            self.stream.write(text)
            self.stream.flush()
            self.at_line_start = text.removesuffix(RESET).endswith("\n")

    def end_line(self) -> None:
        if not self.at_line_start:
            self.write("\n")

    def legend(self) -> str:
        """One line: a coloured name and its count for each drafter, then the target's own."""
        drafters = sorted(name for name in self.counts if name)
        parts = [f"{color_of(name)}{name}{RESET} {self.counts[name]}" for name in drafters]
        return ", ".join([*parts, f"the model itself {self.counts[None]}"])


def tinted(pieces: tuple[Piece, ...]) -> str:
    """Neighbours of one colour share their escape codes."""
    parts: list[str] = []
    current: str | None = None
    for piece in pieces:
        if piece.token.source != current:
            parts.append(RESET if current else "")
            current = piece.token.source
            parts.append(color_of(current) if current else "")
        parts.append(piece.text)
    return "".join([*parts, RESET if current else ""])
