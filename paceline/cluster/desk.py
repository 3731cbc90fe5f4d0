"""A replica's desk: fronts come to it over TCP, and one engine serves them all. Knows sockets and the engine behind;
nothing of Ray."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from time import perf_counter
from typing import Any

import msgspec

from paceline.cluster.messages import TO_REPLICA, FromReplica, Hello, Place, Pulse, framed, read, received
from paceline.engine.request import Event, Failed, Finished, Request, failed
from paceline.errors import PacelineError
from paceline.process.base import Backend, OnProgress, Status
from paceline.process.messages import (
    QUESTIONS,
    Call,
    Cancel,
    Events,
    Loading,
    Logged,
    Raised,
    Ready,
    Refused,
    Returned,
    Submit,
)
from paceline.text.vocabulary import table_of

PULSE = 1.0  # seconds
GREETING = 10.0
LONGEST_GREETING = 1024  # bytes
GROUPS = 2**40  # more than a front ever has

log = logging.getLogger("paceline")


class Desk:
    """Opens the engine on a thread of its own; fronts may come before it is there, and hear how far it is."""

    def __init__(self, open_engine: Callable[[OnProgress], Backend], host: str) -> None:
        self.refused: Refused | None = None
        self.engine: Backend | None = None
        self.numbers = count(1)
        self.visitors: set[Visitor] = set()
        self._open_engine = open_engine
        self._secret = secrets.token_urlsafe()
        self._loop = asyncio.new_event_loop()
        self._socket = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.place = Place(host, self._socket.getsockname()[1], self._secret)
        self._thread = threading.Thread(target=self._run, name="paceline-desk", daemon=True)
        self._thread.start()
        threading.Thread(target=self._open, name="paceline-open", daemon=True).start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        serving = self._loop.run_until_complete(asyncio.start_server(self._receive, sock=self._socket))
        pulse = self._loop.create_task(self._beat())
        self._loop.run_forever()
        pulse.cancel()
        serving.close()
        for visitor in list(self.visitors):
            visitor.leave()
        self._loop.run_until_complete(asyncio.sleep(0))

    # -- the engine

    def _open(self) -> None:
        log.addHandler(LogVisitors(self))
        try:
            self.engine = self._open_engine(lambda share: self.tell(Loading(share)))
        except Exception as error:
            self.refused = Refused(type(error).__name__, str(error))
            self.tell(self.refused)
            return
        self.call_soon(self._welcome_all)

    def _welcome_all(self) -> None:
        for visitor in self.visitors:
            visitor.welcome()

    def ready(self, *, again: bool) -> Ready | Refused | None:
        """None as long as it is being opened."""
        if self.engine is None:
            return self.refused
        return Ready(self.engine.info, None if again else table_of(self.engine.vocabulary))

    def pulse(self) -> Pulse | None:
        return Pulse(self.engine.health, len(self.visitors)) if self.engine else None

    # -- fronts

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await self._greeting(reader)
        if hello is None:
            writer.close()
            return
        visitor = Visitor(self, writer, again=hello.again)
        self.visitors.add(visitor)
        try:
            visitor.welcome()
            async for message in received(reader, TO_REPLICA):
                visitor.hear(message)
        finally:
            self.visitors.discard(visitor)
            visitor.leave()

    async def _greeting(self, reader: asyncio.StreamReader) -> Hello | None:
        """None where somebody does not know the word, or takes too long over it."""
        try:
            async with asyncio.timeout(GREETING):
                hello = await read(reader, TO_REPLICA, LONGEST_GREETING)
        except (asyncio.IncompleteReadError, OSError, TimeoutError, msgspec.DecodeError):
            return None
        known = isinstance(hello, Hello) and hmac.compare_digest(hello.secret.encode(), self._secret.encode())
        return hello if isinstance(hello, Hello) and known else None

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(PULSE)
            if pulse := self.pulse():
                self._send_all(pulse)

    def tell(self, message: FromReplica) -> None:
        """Everybody; from any thread."""
        self.call_soon(self._send_all, message)

    def _send_all(self, message: FromReplica) -> None:
        for visitor in self.visitors:
            visitor.send(message)

    def call_soon(self, work: Callable[..., object], *args: Any) -> None:
        with suppress(RuntimeError):  # the desk is closed
            self._loop.call_soon_threadsafe(work, *args)

    def close(self) -> None:
        self.call_soon(self._loop.stop)
        self._thread.join()
        if self.engine:
            self.engine.close()


class Visitor:
    """One front and what it has running. Its numbers for requests become the desk's own, and back."""

    def __init__(self, desk: Desk, writer: asyncio.StreamWriter, *, again: bool) -> None:
        self._desk = desk
        self._writer = writer
        self._again = again
        self._number = next(desk.numbers)
        self._inside: dict[int, int] = {}
        self._outside: dict[int, int] = {}
        self._events: list[tuple[int, Event]] = []

    def send(self, message: FromReplica) -> None:
        self._writer.write(framed(message))

    def welcome(self) -> None:
        for message in (self._desk.ready(again=self._again), self._desk.pulse()):
            if message:
                self.send(message)

    def hear(self, message: Hello | Submit | Cancel | Call) -> None:
        engine = self._desk.engine
        assert engine, "a front asks for nothing before it was told that the engine is ready"
        match message:
            case Submit(request):
                self._submit(engine, request)
            case Cancel(id) if id in self._inside:
                engine.cancel(self._inside[id])
            case Call():
                asyncio.get_running_loop().run_in_executor(None, self._answer, engine, message)

    def _submit(self, engine: Backend, request: Request) -> None:
        """Time is counted from its arrival here: clocks of two machines do not agree."""
        outside, inside = request.id, next(self._desk.numbers)
        group = None if request.group is None else GROUPS * self._number + request.group
        ours = msgspec.structs.replace(request, id=inside, group=group, submitted=perf_counter())
        self._inside[outside], self._outside[inside] = inside, outside
        try:
            engine.submit(ours, lambda event: self._desk.call_soon(self._take, outside, event))
        except PacelineError as error:
            self._take(outside, failed(error))

    def _take(self, outside: int, event: Event) -> None:
        """All that has come when the loop gets to it goes in one message."""
        if isinstance(event, Finished | Failed):
            self._outside.pop(self._inside.pop(outside, 0), None)
        if not self._events:
            asyncio.get_running_loop().call_soon(self._flush)
        self._events.append((outside, event))

    def _flush(self) -> None:
        events, self._events = self._events, []
        self.send(Events(events))

    def _answer(self, engine: Backend, call: Call) -> None:
        assert call.name in QUESTIONS, call.name
        try:
            value = getattr(engine, call.name)(*call.args)
            answer: Returned | Raised = Returned(call.id, self._seen(value) if isinstance(value, Status) else value)
        except Exception as error:
            answer = Raised(call.id, type(error).__name__, str(error))
        self._desk.call_soon(self.send, answer)

    def _seen(self, status: Status) -> Status:
        """With this front's numbers; what other fronts run has none of them."""
        slots = [
            slot
            if slot.request is None
            else msgspec.structs.replace(slot, request=self._outside.get(slot.request, -slot.request))
            for slot in status.slots
        ]
        return msgspec.structs.replace(status, slots=slots)

    def leave(self) -> None:
        """Nobody waits for what it had running."""
        for inside in self._inside.values():
            if self._desk.engine:
                self._desk.engine.cancel(inside)
        self._inside = {}
        self._writer.close()


class LogVisitors(logging.Handler):
    """The engine's log goes to the fronts, which know where people want it."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk
        self.setFormatter(logging.Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        self._desk.tell(Logged(record.name, record.levelno, self.format(record)))
