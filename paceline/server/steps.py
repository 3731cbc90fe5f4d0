"""What running requests add, step by step: the one stream every reply is made of, whole or in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter

from paceline.errors import EngineClosed
from paceline.generation import Finish, Piece
from paceline.server.service import Running


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of the engine added to one choice. The last step of a choice has its `finish`."""

    index: int
    text: str = ""
    pieces: tuple[Piece, ...] = ()
    finish: Finish | None = None


async def follow(running: Running, index: int) -> AsyncGenerator[Step, None]:
    """One choice, from its first step to its last. Leaving early cancels it at once."""
    deadline = Deadline(running.job.t_max_predict_ms)
    generation = running.generation
    async with aclosing(running.chunks()) as chunks:
        async for chunk in chunks:
            yield Step(index, chunk.text, chunk.pieces)
            if deadline.passed(chunk.text):
                generation.cancel()
    finish = generation.finish
    assert finish
    if finish.reason == "cancelled":
        if not deadline.over:
            raise EngineClosed("the server is shutting down")
        finish = Finish("length", finish.timings)
    yield Step(index, finish=finish)


class Deadline:
    """llama-server's t_max_predict_ms: so long after the first token, and not before a line is complete."""

    def __init__(self, ms: int) -> None:
        self._ms = ms
        self._first: float | None = None
        self._line = False
        self.over = False

    def passed(self, text: str) -> bool:
        if not self._ms:
            return False
        now = perf_counter()
        self._first = self._first or now
        self._line = self._line or "\n" in text
        self.over = self.over or (self._line and 1e3 * (now - self._first) > self._ms)
        return self.over


async def steps(runnings: Sequence[Running]) -> AsyncGenerator[Step, None]:
    """All choices of a request, each step as it comes."""
    if len(runnings) == 1:
        async with aclosing(follow(runnings[0], 0)) as stream:
            async for step in stream:
                yield step
        return
    async with aclosing(merged([follow(running, index) for index, running in enumerate(runnings)])) as stream:
        async for step in stream:
            yield step


async def merged(streams: Sequence[AsyncIterator[Step]]) -> AsyncGenerator[Step, None]:
    """Several streams as one; the first error ends them all."""
    arrived: asyncio.Queue[Step | Exception | None] = asyncio.Queue()

    async def pump(stream: AsyncIterator[Step]) -> None:
        try:
            async for step in stream:
                arrived.put_nowait(step)
            arrived.put_nowait(None)
        except Exception as error:
            arrived.put_nowait(error)

    tasks = [asyncio.create_task(pump(stream)) for stream in streams]
    try:
        n_open = len(tasks)
        while n_open:
            item = await arrived.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                n_open -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
