"""One running request, as text: chunks as they come, with `for` or `async for`; stop strings; how it ended."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

from paceline.engine.request import Emitted, Event, Failed, Request, Timings, Token
from paceline.llama.model import Vocab
from paceline.text.detokenizer import Detokenizer
from paceline.text.stops import StopMatcher


@dataclass(frozen=True, slots=True)
class Piece:
    """One token and the text that became complete with it."""

    text: str
    token: Token


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one step of the engine added."""

    text: str
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """How it ended: reason is "stop", "length" or "cancelled"; `stop` the stop string, if one was met."""

    reason: str
    timings: Timings
    stop: str | None = None


class TextStream:
    """Tokens to text, up to a stop string."""

    def __init__(self, vocab: Vocab, stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(vocab.piece)
        self.matcher = StopMatcher(stops) if stops else None

    def push(self, token: int) -> str:
        text = self._detokenizer.push(token)
        return self.matcher.push(text) if self.matcher else text

    def flush(self) -> str:
        text = self._detokenizer.flush()
        return self.matcher.push(text) + self.matcher.flush() if self.matcher else text

    @property
    def stopped(self) -> str | None:
        return self.matcher.stopped if self.matcher else None


def stop_check(vocab: Vocab, stops: Sequence[str]) -> Callable[[int], bool] | None:
    """For the engine's thread: does the text end with this token?"""
    if not stops:
        return None
    stream = TextStream(vocab, stops)

    def check(token: int) -> bool:
        stream.push(token)
        return stream.stopped is not None

    return check


class Generation:
    """One running request: iterate over it, with `for` or `async for`; `cancel()` from anywhere."""

    def __init__(self, vocab: Vocab, stops: Sequence[str]) -> None:
        self.finish: Finish | None = None
        self.request: Request | None = None
        self._stream = TextStream(vocab, stops)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Event | None = None

    def on_event(self, event: Event) -> None:
        """Called on the engine's thread."""
        self._events.put(event)
        loop, ready = self._loop, self._ready
        if loop and ready:
            loop.call_soon_threadsafe(ready.set)

    def cancel(self) -> None:
        assert self.request
        self.request.cancel()

    def __iter__(self) -> Iterator[Chunk]:
        try:
            while not self.finish:
                yield from self._chunks(self._events.get())
        finally:
            self._abandon()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            while not self.finish:
                self._ready.clear()
                while not self._events.empty() and not self.finish:
                    for chunk in self._chunks(self._events.get()):
                        yield chunk
                if not self.finish and self._events.empty():
                    await self._ready.wait()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """The consumer left before the end: nobody reads any more."""
        if not self.finish:
            self.cancel()

    def _chunks(self, event: Event) -> list[Chunk]:
        if isinstance(event, Emitted):
            pieces = tuple(Piece(self._stream.push(token.id), token) for token in event.tokens)
            return [Chunk("".join(piece.text for piece in pieces), pieces)]
        if isinstance(event, Failed):
            self.finish = Finish("error", event.timings)
            raise event.error
        rest = self._stream.flush() if self._stream.stopped is None else ""
        self.finish = Finish(event.reason, event.timings, self._stream.stopped)
        return [Chunk(rest)] if rest else []

    def text(self) -> str:
        """Wait for the end and return the whole text."""
        return "".join(chunk.text for chunk in self)
