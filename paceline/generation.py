"""One running request, as text: chunks as they come, with `for` or `async for`; stop strings; how it ended."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from paceline.engine.request import Emitted, Event, Failed, Progressed, Request, Started, Timings, Token
from paceline.errors import named
from paceline.text.stops import TextStream
from paceline.text.vocabulary import Vocabulary, spelling


@dataclass(frozen=True, slots=True)
class Piece:
    """One token and the text that became complete with it."""

    text: str
    token: Token


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one step of the engine added, and how it had gone by then; or `progress`, how far the prompt was read with
    it."""

    text: str
    pieces: tuple[Piece, ...] = ()
    progress: Timings | None = None
    timings: Timings = field(default_factory=Timings)


@dataclass(frozen=True, slots=True)
class Finish:
    """How it ended: reason is "stop", "length" or "cancelled"; `stop` the stop string, if one was met."""

    reason: str
    timings: Timings
    stop: str | None = None


class Generation:
    """Iterate over it, with `for` or `async for`; `cancel()` from anywhere. `slot` is -1 until it has one."""

    def __init__(self, request: Request, vocabulary: Vocabulary, cancel: Callable[[int], None]) -> None:
        self.request = request
        self.finish: Finish | None = None
        self.slot = -1
        self.timings = Timings()
        self._cancel = cancel
        self._stream = TextStream(spelling(vocabulary, request.spelled), request.stop)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Event | None = None
        self._failed: Failed | None = None  # not told yet

    def on_event(self, event: Event) -> None:
        """Called on another thread."""
        self._events.put(event)
        loop, ready = self._loop, self._ready
        if loop and ready:
            loop.call_soon_threadsafe(ready.set)

    def notify(self, ready: asyncio.Event) -> None:
        """From now on `ready` is set when there is something to take. On the event loop only."""
        self._ready, self._loop = ready, asyncio.get_running_loop()
        ready.set()

    def take(self) -> list[Chunk]:
        """What has come since the last time, without waiting. Raises what went wrong with the request; where something
        came before it, the next time, which is at once."""
        chunks: list[Chunk] = []
        while not self.finish and (self._failed or not self._events.empty()):
            event = self._failed or self._events.get()
            if chunks and isinstance(event, Failed):
                self._failed = event
                if self._ready:
                    self._ready.set()
                break
            chunks += self._chunks(event)
        return chunks

    def cancel(self) -> None:
        self._cancel(self.request.id)

    def __iter__(self) -> Iterator[Chunk]:
        try:
            while not self.finish:
                yield from self._chunks(self._events.get())
        finally:
            self._abandon()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        ready = asyncio.Event()
        self.notify(ready)
        try:
            while not self.finish:
                await ready.wait()
                ready.clear()
                for chunk in self.take():
                    yield chunk
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """The consumer left before the end: nobody reads any more."""
        if not self.finish:
            self.cancel()

    def _chunks(self, event: Event) -> list[Chunk]:
        if isinstance(event, Started):
            self.slot = event.slot
            return []
        self.timings = event.timings
        if isinstance(event, Progressed):
            return [Chunk("", progress=event.timings)]
        if isinstance(event, Emitted):
            pieces = tuple([Piece(self._stream.push(token.id), token) for token in event.tokens])
            return [Chunk("".join([piece.text for piece in pieces]), pieces, timings=event.timings)]
        if isinstance(event, Failed):
            self.finish = Finish("error", event.timings)
            raise named(event.kind, event.message)
        rest = self._stream.flush() if self._stream.stopped is None else ""
        self.finish = Finish(event.reason, event.timings, self._stream.stopped)
        return [Chunk(rest, timings=event.timings)] if rest else []

    def text(self) -> str:
        """Wait for the end and return the whole text."""
        return "".join(chunk.text for chunk in self)
