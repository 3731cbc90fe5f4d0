"""Thoughts apart from the answer: `<think>…</think>` in streamed text. Knows characters only.

A model thinks at the very start of its text or not at all; some templates open the tag themselves. White space around
the thoughts belongs to nobody. One character after the other decides, so the result does not depend on the cutting.
"""

from __future__ import annotations

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

    def __init__(self, *, opened: bool = False) -> None:
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
        """Nothing but white space so far: is it the tag?"""
        text = self._held.lstrip()
        if text.startswith(OPEN):
            self._held = text[len(OPEN) :]
            self._state = self._thinking
        elif text and not OPEN.startswith(text):
            self._state = self._saying
        return Split()

    def _thinking(self) -> Split:
        if not self._begun:
            self._held = self._held.lstrip()
            self._begun = bool(self._held)
        thought, tag, rest = self._held.partition(CLOSE)
        if tag:
            self._held = rest
            self._state = self._between
            return Split(reasoning=thought.rstrip())
        certain = without_start_of(CLOSE, self._held).rstrip()
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
