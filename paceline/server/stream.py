"""From the engine's steps to a reply: what running texts add, as it comes, in server-sent events or folded to one
object. Three hands on the way of a token: `Steps` takes it, a `Reply` words it, `sse.EventStream` sends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import Request
from starlette.responses import Response

from paceline.engine.request import Timings
from paceline.errors import EngineClosed, RequestError
from paceline.generation import Chunk, Finish, Piece
from paceline.server.endings import Ending
from paceline.server.errors import Json
from paceline.server.service import Choice
from paceline.server.sse import PLAIN, ClientGone, EventStream, Wording, unless_gone

CLIENT_GONE = 499
MAX_ENTRIES = 200_000


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of the engine added to one choice and how it had gone by then, or how far its prompt is read. The
    last step of a choice has its `finish`."""

    index: int
    text: str = ""
    pieces: tuple[Piece, ...] = ()
    finish: Finish | None = None
    progress: Timings | None = None
    timings: Timings = field(default_factory=Timings)


class Reply(Protocol):
    """How one API words an answer."""

    choices: Sequence[Choice]

    def parts(self, step: Step) -> list[dict[str, Any]]:
        """What a client that reads a stream is told of this step."""

    def last_parts(self) -> list[dict[str, Any]]:
        """What it is told when all choices have ended."""

    def last_line(self) -> bytes:
        """What ends the stream."""

    def whole(self, parts: Sequence[dict[str, Any]]) -> Any:
        """The reply of a request that did not ask for a stream: a fold over its parts."""


class Steps:
    """All choices of a request: the steps that have come, in lists. The first error ends them all."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        self._open = dict(enumerate(choices))
        self._endings = [Ending(choice.wanted.t_max_predict_ms, choice.wanted.n_indent) for choice in choices]

    async def __aiter__(self) -> AsyncGenerator[list[Step], None]:
        """Who stops reading early closes the choices."""
        ready = asyncio.Event()
        for choice in self._open.values():
            choice.generation.notify(ready)
        while self._open:
            await ready.wait()
            ready.clear()
            for index, choice in list(self._open.items()):
                if chunks := choice.generation.take():
                    yield [self._step(index, choice, chunk) for chunk in chunks]
                if choice.generation.finish:
                    del self._open[index]
                    yield [Step(index, finish=self._finish(index, choice.generation.finish))]

    def _step(self, index: int, choice: Choice, chunk: Chunk) -> Step:
        choice.observe(chunk)
        ending = self._endings[index]
        text = ending.kept(chunk.text)
        if ending.over:
            choice.generation.cancel()
        return Step(index, text, chunk.pieces, progress=chunk.progress, timings=chunk.timings)

    def _finish(self, index: int, finish: Finish) -> Finish:
        """Nobody cancels an answer that is being read, but its ending and the end of the server."""
        if finish.reason != "cancelled":
            return finish
        if not self._endings[index].over:
            raise EngineClosed("the server is shutting down")
        return Finish("length", finish.timings)


async def lines(reply: Reply, wording: Wording) -> AsyncGenerator[bytes, None]:
    """The reply as server-sent events; what comes together is sent together."""
    async with aclosing(aiter(Steps(reply.choices))) as come:
        async for steps in come:
            data = b"".join([wording.part(part) for step in steps for part in reply.parts(step)])
            if data:
                yield data
    yield b"".join([*map(wording.part, reply.last_parts()), reply.last_line()])


async def folded(reply: Reply) -> Any:
    """The reply as one object. Probabilities are what can make it too large to hold."""
    parts: list[dict[str, Any]] = []
    n_entries = 0
    async with aclosing(aiter(Steps(reply.choices))) as come:
        async for steps in come:
            n_entries += sum(entries(step.pieces) for step in steps)
            if n_entries > MAX_ENTRIES:
                raise RequestError(
                    f"the reply would hold more than {MAX_ENTRIES} probabilities; ask for fewer of them or of tokens, "
                    "or for a stream"
                )
            parts += [part for step in steps for part in reply.parts(step)]
    return reply.whole(parts)


def entries(pieces: Sequence[Piece]) -> int:
    return sum(1 + len(piece.token.top_logprobs) for piece in pieces if piece.token.logprob is not None)


async def send(request: Request, reply: Reply, wording: Wording = PLAIN) -> Response:
    """However it ends, what was started is closed."""
    choices = reply.choices
    try:
        if choices[0].wanted.stream:
            ping_s = max(0, choices[0].service.params.sse_ping_interval)
            return await begun(request, lines(reply, wording), lambda: close(choices), wording, ping_s)
        whole = await unless_gone(request, folded(reply))
    except ClientGone:
        close(choices)
        return Response(status_code=CLIENT_GONE)
    except BaseException:
        close(choices)
        raise
    close(choices)
    return Json(whole)


async def begun(
    request: Request, events: AsyncGenerator[bytes, None], on_close: Callable[[], None], wording: Wording, ping_s: float
) -> EventStream:
    """The first event decides: before it an error has a status of its own."""
    try:
        first = await unless_gone(request, anext(events))
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events, on_close, ping_s, wording=wording)


def close(choices: Sequence[Choice]) -> None:
    for choice in choices:
        choice.close()
