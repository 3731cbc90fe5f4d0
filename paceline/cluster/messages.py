"""What a front and a replica say to each other: what a front and its child process do (`process/messages.py`), a
greeting, and how the replica is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from paceline.process.base import Health
from paceline.process.messages import (
    N_LENGTH,
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


@dataclass(frozen=True, slots=True)
class Place:
    """Where a replica answers, and the word that it wants to hear first: its port may be in reach of others."""

    host: str
    port: int
    secret: str


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first message. A front that knows the vocabulary already does not want it again."""

    secret: str
    again: bool


class Pulse(msgspec.Struct, frozen=True, tag=True):
    """Once a second, and with that a sign of life: how the engine is, and how many fronts there are."""

    health: Health
    n_fronts: int


ToReplica = Hello | Submit | Cancel | Call
FromReplica = Loading | Refused | Ready | Events | Returned | Raised | Logged | Pulse
TO_REPLICA = msgspec.msgpack.Decoder(ToReplica)
FROM_REPLICA = msgspec.msgpack.Decoder(FromReplica)
ENCODER = msgspec.msgpack.Encoder()
Incoming = TypeVar("Incoming")


def framed(message: ToReplica | FromReplica) -> bytes:
    data = ENCODER.encode(message)
    return len(data).to_bytes(N_LENGTH, "little") + data


async def read(
    reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[Incoming], longest: int = 2**31
) -> Incoming:
    """One message. Who wants to send more bytes is cut off."""
    n = int.from_bytes(await reader.readexactly(N_LENGTH), "little")
    if n > longest:
        raise ConnectionError(f"a message of {n} bytes is too long")
    return decoder.decode(await reader.readexactly(n))


async def received(
    reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[Incoming], silence: float | None = None
) -> AsyncIterator[Incoming]:
    """Until the other side is gone, or has been silent for so many seconds."""
    try:
        while True:
            async with asyncio.timeout(silence):
                message = await read(reader, decoder)
            yield message
    except (asyncio.IncompleteReadError, OSError, TimeoutError):
        return
