"""Thoughts apart from the answer: `<think>…</think>` in streamed text, or between other tags. Knows characters only.

A model thinks at the very start of its text or not at all; some templates open the tag themselves. White space around
the thoughts belongs to nobody. One character after the other decides, so the result does not depend on the cutting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Split:
    """A stretch of text: what of it was thought, what was said."""

    reasoning: str = ""
    content: str = ""


def opens_thoughts(prompt: str) -> bool:
    """Whether the template has written the opening tag already."""
    return prompt.rstrip().endswith(OPEN)


class ReasoningParser:
    """Splits one text. What may still become a tag, or white space at an edge, is held back."""

    def __init__(
        self, tags: tuple[str, str] = (OPEN, CLOSE), *, opened: bool = False, ends: Sequence[str] = ()
    ) -> None:
        """`ends` are marks that end the thoughts too, and belong to what follows."""
        self._open, self._close = tags
        self._ends = (self._close, *ends)
        self._state = self._thinking if opened else self._start
        self._held = ""
        self._begun = False

    def push(self, text: str) -> Split:
        """What became certain with this text."""
        self._held += text
        reasoning, content = "", ""
        while True:
            state = self._state
            split = state()
            reasoning, content = reasoning + split.reasoning, content + split.content
            if self._state == state:
                return Split(reasoning, content)

    def flush(self) -> Split:
        """The end of the text."""
        held, self._held = self._held, ""
        if self._state == self._thinking:
            return Split(reasoning=held.rstrip() if self._begun else held.strip())
        return Split(content="" if self._state == self._between else held)

    def _start(self) -> Split:
        """Nothing but white space so far: is it the tag? A model that was to think may close it at once."""
        text = self._held.lstrip()
        if text.startswith(self._open.rstrip()):
            self._held = text[len(self._open.rstrip()) :]
            self._state = self._thinking
        elif text.startswith(self._close):
            self._held = text[len(self._close) :]
            self._state = self._between
        elif text and not (self._open.startswith(text) or self._close.startswith(text)):
            self._state = self._saying
        return Split()

    def _thinking(self) -> Split:
        if not self._begun:
            self._held = self._held.lstrip()
            self._begun = bool(self._held)
        at, end = min(((at, end) for end in self._ends if (at := self._held.find(end)) >= 0), default=(-1, ""))
        if end:
            thought, self._held = self._held[:at], self._held[at + len(end) if end == self._close else at :]
            self._state = self._between
            return Split(reasoning=thought.rstrip())
        certain = min((without_start_of(end, self._held) for end in self._ends), key=len).rstrip()
        self._held = self._held[len(certain) :]
        return Split(reasoning=certain)

    def _between(self) -> Split:
        """White space after the thoughts."""
        self._held = self._held.lstrip()
        if self._held:
            self._state = self._saying
        return Split()

    def _saying(self) -> Split:
        text, self._held = self._held, ""
        return Split(content=text)


def without_start_of(marker: str, text: str) -> str:
    """The text without an ending that may be the start of the marker."""
    for n in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:n]):
            return text[:-n]
    return text
