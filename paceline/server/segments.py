"""A chat answer in stretches: thoughts, text, calls. What other APIs than OpenAI's chat make of its chunks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["thinking", "text", "call"]


@dataclass(slots=True)
class Segment:
    """One stretch. A call has an id and a name, and its text is its arguments."""

    index: int
    kind: Kind
    id: str = ""
    name: str = ""
    text: str = ""
    number: int = -1


@dataclass(frozen=True, slots=True)
class Change:
    """A segment was opened, grew by this text, or is complete."""

    what: Literal["open", "add", "close"]
    segment: Segment
    text: str = ""


class Segments:
    """Reads the chunks of one choice; one segment is open at a time."""

    def __init__(self) -> None:
        self.all: list[Segment] = []
        self._open: Segment | None = None

    def read(self, chunk: Mapping[str, Any]) -> Iterator[Change]:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if delta.get("reasoning_content"):
                yield from self._more("thinking", delta["reasoning_content"])
            if delta.get("content"):
                yield from self._more("text", delta["content"])
            for call in delta.get("tool_calls") or ():
                yield from self._call(call)
            if choice["finish_reason"]:
                yield from self._close()

    def _call(self, call: Mapping[str, Any]) -> Iterator[Change]:
        """The first part of a call has its id and name, each part may have arguments."""
        function = call.get("function") or {}
        number = call["index"]
        if not (self._open and self._open.number == number):
            yield from self._begin("call", id=call.get("id") or "", name=function.get("name") or "", number=number)
        if function.get("arguments"):
            yield self._grow(function["arguments"])

    def _more(self, kind: Kind, text: str) -> Iterator[Change]:
        if not (self._open and self._open.kind == kind):
            yield from self._begin(kind)
        yield self._grow(text)

    def _begin(self, kind: Kind, **about: Any) -> Iterator[Change]:
        yield from self._close()
        self._open = Segment(len(self.all), kind, **about)
        self.all.append(self._open)
        yield Change("open", self._open)

    def _grow(self, text: str) -> Change:
        assert self._open
        self._open.text += text
        return Change("add", self._open, text)

    def _close(self) -> Iterator[Change]:
        if self._open:
            closed, self._open = self._open, None
            yield Change("close", closed)


def random_id(prefix: str) -> str:
    return f"{prefix}_{os.urandom(16).hex()}"
