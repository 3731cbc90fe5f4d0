"""Marks of a family's style as this model's tokens: which of them are control tokens, that no text can spell."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.library import Engine
from paceline.text.formats import Style


class Marks:
    """Looked up once for a model and a style."""

    def __init__(self, engine: Engine, style: Style) -> None:
        self._engine = engine
        self._ends = [engine.vocab.render(token, special=True).decode(errors="replace") for token in engine.vocab.eog]
        self._thoughts = self._control(style.thought_marks)
        self._all = self._control(style.markers)

    def _control(self, marks: Iterable[str]) -> dict[str, int]:
        vocab, found = self._engine.vocab, {}
        for mark in marks:
            for token in self._engine.tokenize(mark, special=False):
                if not vocab.piece(token) and token not in vocab.eog:
                    found[vocab.render(token, special=True).decode(errors="replace")] = token
        return found

    def spelled(self, *, tools: bool) -> tuple[int, ...]:
        """Tokens that an answer's text must show, so that it can be taken apart."""
        return tuple(sorted((self._all if tools else self._thoughts).values()))

    def spell(self, mark: str) -> list[int | str]:
        """The mark as texts and control tokens; tokens that end an answer are left out."""
        for end in self._ends:
            mark = mark.replace(end, "") if end else mark
        parts: list[int | str] = [mark]
        for text, token in self._all.items():
            parts = [piece for part in parts for piece in split(part, text, token)]
        return [part for part in parts if part != ""]

    def tokens(self, text: str) -> tuple[int, ...]:
        return tuple(self._engine.tokenize(text, special=False))


def split(part: int | str, text: str, token: int) -> list[int | str]:
    """With the token in the text's place."""
    if isinstance(part, int) or text not in part:
        return [part]
    pieces: list[int | str] = []
    for piece in part.split(text):
        pieces += [piece, token]
    return pieces[:-1]
