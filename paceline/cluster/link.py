"""A front's connection to one replica: what it was asked, and what it says."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import msgspec

from paceline.cluster.messages import FROM_REPLICA, FromReplica, Hello, Place, Pulse, ToReplica, framed, received
from paceline.engine.request import Event, Failed, Finished, Started
from paceline.errors import PacelineError, named
from paceline.process.base import Health, Info, Status
from paceline.process.messages import Call, Cancel, Events, Loading, Logged, Raised, Ready, Refused, Returned, Submit
from paceline.process.supervisor import Live
from paceline.text.vocabulary import VocabularyTable

SILENCE = 60.0
"""Seconds without a pulse after which a replica is given up: its machine may be gone without a word."""
log = logging.getLogger("paceline")


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question, and who waits for the answer. One that is `bound` makes no sense anywhere else."""

    name: str
    args: tuple[Any, ...]
    future: Future[Any]
    bound: bool = False

    def answer(self, value: object) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(value)

    def fail(self, error: PacelineError) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class Owner(Protocol):
    """Who has links, and hears of what changes."""

    def changed(self, link: Link) -> None:
        """It is further with opening its engine, ready, or has refused."""

    def ended(self, link: Link, live: Live, event: Finished | Failed) -> None:
        """A request is over."""


class Link:
    """Used on one event loop. A replica that says nothing for a minute is given up."""

    def __init__(self, id: str, number: int, place: Place, owner: Owner) -> None:
        self.id = id
        self.number = number
        self.place = place
        self.live: dict[int, Live] = {}
        self.inquiries: dict[int, Inquiry] = {}
        self.info: Info | None = None
        self.vocabulary: VocabularyTable | None = None
        self.refusal: PacelineError | None = None
        self.share = 0.0
        self.pulse = Pulse(Health(ready=False), 0)
        self.status: Status | None = None  # as it last was
        self._owner = owner
        self._numbers = count(1)
        self._writer: asyncio.StreamWriter | None = None

    @property
    def n_slots(self) -> int:
        return self.info.limits.n_slots if self.info else 1

    @property
    def slot_zero(self) -> int:
        """Its first slot's number among those of all replicas."""
        return self.number * self.n_slots

    async def run(self, *, again: bool) -> None:
        """From the greeting until it is gone. The vocabulary is not sent `again`."""
        reader, self._writer = await asyncio.open_connection(self.place.host, self.place.port)
        try:
            self.send(Hello(self.place.secret, again))
            async for message in received(reader, FROM_REPLICA, SILENCE):
                self._hear(message)
        finally:
            self._writer.close()

    # -- what it is asked

    def send(self, message: ToReplica) -> None:
        assert self._writer
        self._writer.write(framed(message))

    def submit(self, live: Live) -> None:
        self.live[live.id] = live
        message = live.message()
        assert isinstance(message, Submit)
        slot = message.request.slot
        if slot is not None:
            message = Submit(msgspec.structs.replace(message.request, slot=slot % self.n_slots))
        self.send(message)

    def cancel(self, id: int) -> None:
        self.send(Cancel(id))

    def ask(self, inquiry: Inquiry) -> None:
        id = next(self._numbers)
        self.inquiries[id] = inquiry
        self.send(Call(id, inquiry.name, inquiry.args))

    # -- what it says

    def _hear(self, message: FromReplica) -> None:
        match message:
            case Events(events):
                for id, event in events:
                    self._hear_event(id, event)
            case Returned(id, value):
                self.inquiries.pop(id).answer(value)
            case Raised(id, kind, text):
                self.inquiries.pop(id).fail(named(kind, text))
            case Logged(name, level, text):
                logging.getLogger(name).log(level, "replica %d: %s", self.number, text)
            case Pulse():
                self.pulse = message
            case _:
                self._hear_of_opening(message)

    def _hear_of_opening(self, message: Loading | Refused | Ready) -> None:
        match message:
            case Loading(share):
                self.share = share
            case Refused(kind, text):
                self.refusal = named(kind, text)
            case Ready(info, vocabulary):
                self.info, self.vocabulary, self.share = info, vocabulary, 1.0
        self._owner.changed(self)

    def _hear_event(self, id: int, event: Event) -> None:
        live = self.live.get(id)
        if live is None:
            return
        live.note(event)
        if isinstance(event, Finished | Failed):
            del self.live[id]
            self._owner.ended(self, live, event)
        elif isinstance(event, Started):
            event = Started(self.slot_zero + event.slot)
        live.on_event(event)
