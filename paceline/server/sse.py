"""Replies that a client may walk away from: watched for its leaving, never waited for when it stops reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paceline.server.errors import ApiError, api_error, encode

PING = b":\n\n"
DONE = b"data: [DONE]\n\n"
STALL_S = 10.0
Result = TypeVar("Result")


def event(content: object) -> bytes:
    return b"data: " + encode(content) + b"\n\n"


def named_event(content: Mapping[str, Any]) -> bytes:
    """With its type before it, as some clients want."""
    return b"event: " + str(content["type"]).encode() + b"\n" + event(content)


@dataclass(frozen=True, slots=True)
class Wording:
    """How a part of a stream is written, and an error in the middle of one."""

    part: Callable[[dict[str, Any]], bytes] = event
    error: Callable[[ApiError], bytes] = lambda error: event(error.body())


PLAIN = Wording()


class ClientGone(Exception):
    """Nobody is there to hear the answer."""


async def unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """The work's result; the work is cancelled when the client disconnects first."""
    task = asyncio.ensure_future(work)
    watch = asyncio.create_task(gone(request.receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        await ended(task, watch)


async def gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def ended(*tasks: asyncio.Future[Result] | asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class EventStream(Response):
    """Server-sent events. Ends when they do, when the client leaves, or when it has not read for a while. `ping_s`
    without one, and a comment is sent; 0 = never."""

    media_type = "text/event-stream"

    def __init__(
        self,
        first: bytes,
        events: AsyncGenerator[bytes, None],
        on_close: Callable[[], None],
        ping_s: float = 0.0,
        stall_s: float = STALL_S,
        wording: Wording = PLAIN,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._first = first
        self._events = events
        self._on_close = on_close
        self._ping_s = ping_s
        self._stall_s = stall_s
        self._wording = wording
        self._n_sent = 0
        self._since: float | None = None  # when the line that is being sent was begun

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = [asyncio.create_task(work) for work in (self._pump(send), gone(receive), self._stalled())]
        ping = asyncio.create_task(self._ping(send))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(*tasks, ping)
            await self._events.aclose()
            self._on_close()

    async def _pump(self, send: Send) -> None:
        with suppress(OSError):
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await self._body(send, self._first)
                async for data in self._events:
                    await self._body(send, data)
            except OSError:
                raise
            except Exception as error:
                await self._body(send, self._wording.error(api_error(error)))
            await self._body(send, b"", more=False)

    async def _body(self, send: Send, data: bytes, *, more: bool = True) -> None:
        await self._send(send, {"type": "http.response.body", "body": data, "more_body": more})

    async def _send(self, send: Send, message: dict[str, object]) -> None:
        self._since = perf_counter()
        await send(message)
        self._since = None
        self._n_sent += 1

    async def _ping(self, send: Send) -> None:
        """A comment whenever a while has passed without a line: some clients take silence for an end."""
        while self._ping_s > 0:
            n_sent = self._n_sent
            await asyncio.sleep(self._ping_s)
            if n_sent == self._n_sent and self._since is None:
                with suppress(OSError):
                    await self._body(send, PING)

    async def _stalled(self) -> None:
        """Ends when the client has not read for too long. A timeout for every line would cost more than the line."""
        while self._since is None or perf_counter() - self._since < self._stall_s:
            await asyncio.sleep(self._stall_s / 4)
