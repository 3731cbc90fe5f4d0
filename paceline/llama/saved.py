"""A sequence's memory as a file: its tokens and libllama's bytes, laid out as llama-server does, and behind them which
model and layout it belongs to, and a checksum over all of it. libllama believes every byte it is given, so a file is
checked whole before it sees one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.errors import RequestError
from paceline.files import write_whole

STATE_MAGIC, STATE_VERSION = 0x67677371, 3  # libllama's, of a sequence's file
PACKED, PACKED_VERSION = -1, 1  # llama-server's, before the tokens and their number; after them how many images
MAGIC = b"pacelseq"
VERSION = 2
HEAD = struct.Struct("<III")  # magic, version, words that follow
TAIL = struct.Struct("<8sI32s32s")  # magic, version, whose, checksum
N_DIGEST = 32
N_PLACES, N_PLACE = 16, 65536  # of a model file, to tell it from its fine-tunes
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Saved:
    """What a file holds, and how large it is."""

    tokens: list[int]
    state: Bytes
    n_bytes: int


def digest(*parts: Any) -> bytes:
    found = blake2b(digest_size=N_DIGEST)
    for part in parts:
        found.update(part)
    return found.digest()


@cache
def sample(path: str) -> bytes:
    """A model file by some of its bytes, wherever it lies: reading all of it would take as long as loading it."""
    try:
        with Path(path).open("rb") as stream:
            size = stream.seek(0, 2)
            parts = [size.to_bytes(8, "little")]
            for i in range(N_PLACES):
                stream.seek(i * max(0, size - N_PLACE) // (N_PLACES - 1))
                parts.append(stream.read(N_PLACE))
    except OSError as error:
        raise RequestError(f"the model's file cannot be read any more: {error.strerror or error}") from error
    return digest(*parts)


def write(path: str, owner: bytes, tokens: Sequence[int], state: Bytes) -> int:
    """Whole or not at all; returns its size in bytes."""
    body = np.asarray([PACKED, PACKED_VERSION, len(tokens), *tokens, 0], "<i4")
    head = HEAD.pack(STATE_MAGIC, STATE_VERSION, len(body))
    tail = TAIL.pack(MAGIC, VERSION, owner, checksum(owner, tokens, state))
    data = b"".join([head, body.tobytes(), state.tobytes(), tail])
    try:
        write_whole(Path(path), data)
    except OSError as error:
        raise RequestError(f"{Path(path).name} cannot be saved: {error.strerror or error}") from error
    return len(data)


def checksum(owner: bytes, tokens: Sequence[int], state: Bytes) -> bytes:
    return digest(owner, len(tokens).to_bytes(8, "little"), np.asarray(tokens, "<i4"), state)


def read(path: str, owner: bytes) -> Saved:
    """Refuses what does not have, bit for bit, the tokens and bytes that `write` wrote for this owner."""
    name = Path(path).name
    try:
        with Path(path).open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - TAIL.size))
            expected = check_tail(name, stream.read(), owner)
            stream.seek(0)
            n_words = check_head(name, stream.read(HEAD.size), size)
            words = np.fromfile(stream, "<i4", n_words).tolist()
            state = np.fromfile(stream, np.uint8, size - HEAD.size - 4 * n_words - TAIL.size)
    except OSError as error:
        raise RequestError(f"{name} cannot be read: {error.strerror or error}") from error
    tokens = unpacked(words)
    if tokens is None or checksum(owner, tokens, state) != expected:
        raise RequestError(f"{name} is damaged: its checksum is wrong")
    return Saved(tokens, state, size)


def unpacked(words: list[int]) -> list[int] | None:
    """The tokens, packed or one after the other as servers wrote them earlier; None where they are neither."""
    if not words or words[0] != PACKED:
        return words
    tokens = words[3:-1]
    return tokens if words == [PACKED, PACKED_VERSION, len(tokens), *tokens, 0] else None


def check_head(name: str, head: bytes, size: int) -> int:
    """How many words follow."""
    magic, version, n_words = HEAD.unpack(head)
    if (magic, version) != (STATE_MAGIC, STATE_VERSION):
        raise RequestError(f"{name} is damaged: it does not begin as a saved slot")
    if HEAD.size + 4 * n_words + TAIL.size > size:
        raise RequestError(f"{name} is damaged: it has {size} bytes, which is not what it says")
    return int(n_words)


def check_tail(name: str, tail: bytes, owner: bytes) -> bytes:
    """The checksum of what comes before."""
    if len(tail) < TAIL.size or not tail.startswith(MAGIC):
        raise RequestError(f"{name} is not a slot that this server saved, or it is damaged: its end has no checksum")
    _, version, whose, expected = TAIL.unpack(tail)
    if version != VERSION:
        raise RequestError(f"{name} is a saved slot of version {version}; this is paceline for version {VERSION}")
    if whose != owner:
        raise RequestError(f"{name} was saved with another model, other cache types or another libllama")
    return bytes(expected)
