"""What front and child say to each other, and the line they say it on: msgpack, each message after its length."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

from paceline.config import Settings
from paceline.engine.request import Event, Request
from paceline.process.base import Info
from paceline.text.vocabulary import VocabularyTable

N_LENGTH = 4
BUFFER = 2**20
QUESTIONS = ("tokenize", "apply_template", "embed", "pairs", "status", "save_slot", "restore_slot", "erase_slot")
"""Methods of a `Backend` that may be called from afar."""


class Open(msgspec.Struct, frozen=True, tag=True):
    """The first message: what to open. When it is opened `again` the vocabulary is known, and requests are waiting."""

    settings: Settings
    again: bool
    log_levels: dict[str, int]


class Submit(msgspec.Struct, frozen=True, tag=True):
    request: Request


class Cancel(msgspec.Struct, frozen=True, tag=True):
    id: int


class Call(msgspec.Struct, frozen=True, tag=True):
    """A question to the engine, by the name of its method."""

    id: int
    name: str
    args: tuple[Any, ...]


class Close(msgspec.Struct, frozen=True, tag=True):
    """End what is running, save what is to be saved, and go."""


ToChild = Open | Submit | Cancel | Call | Close


class Loading(msgspec.Struct, frozen=True, tag=True):
    share: float


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The model cannot be opened."""

    kind: str
    message: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    info: Info
    vocabulary: VocabularyTable | None


class Events(msgspec.Struct, frozen=True, tag=True):
    """All events of a step, or of several that came soon after each other, each with its request's id."""

    events: list[tuple[int, Event]]


class Returned(msgspec.Struct, frozen=True, tag=True):
    id: int
    value: Any


class Raised(msgspec.Struct, frozen=True, tag=True):
    id: int
    kind: str
    message: str


class Logged(msgspec.Struct, frozen=True, tag=True):
    """A line of the child's log."""

    name: str
    level: int
    text: str


ToFront = Loading | Refused | Ready | Events | Returned | Raised | Logged

Incoming = TypeVar("Incoming")


class Line(Generic[Incoming]):
    """One end. Anybody may send; one thread receives. A line whose other end is gone has no more messages."""

    def __init__(self, sock: socket.socket, decoder: msgspec.msgpack.Decoder[Incoming]) -> None:
        self._sock = sock
        self._decoder = decoder
        self._encoder = msgspec.msgpack.Encoder()
        self._reading = sock.makefile("rb", buffering=BUFFER)
        self._sending = threading.Lock()

    def send(self, message: ToChild | ToFront) -> None:
        """Blocks while the other end is not reading. Raises OSError when it is gone."""
        data = self._encoder.encode(message)
        with self._sending:
            self._sock.sendall(len(data).to_bytes(N_LENGTH, "little") + data)

    def __iter__(self) -> Iterator[Incoming]:
        while True:
            try:
                head = self._reading.read(N_LENGTH)
                n = int.from_bytes(head, "little")
                data = self._reading.read(n)
            except OSError:
                return
            if len(head) < N_LENGTH or len(data) < n:
                return
            yield self._decoder.decode(data)

    def close(self) -> None:
        """Wakes whoever is receiving."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._reading.close()
        self._sock.close()


def front_line(sock: socket.socket) -> Line[ToFront]:
    return Line(sock, msgspec.msgpack.Decoder(ToFront))


def child_line(sock: socket.socket) -> Line[ToChild]:
    return Line(sock, msgspec.msgpack.Decoder(ToChild))
