"""A sequence's memory as a file: which model and layout it belongs to, its tokens, libllama's bytes, and a checksum
over all of it. libllama believes every byte it is given, so a file is checked whole before it sees one."""

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

MAGIC = b"pacelseq"
VERSION = 1
HEAD = struct.Struct("<8sIIQ32s")  # magic, version, tokens, bytes of libllama's, whose
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
    head = HEAD.pack(MAGIC, VERSION, len(tokens), state.size, owner)
    body = np.asarray(tokens, "<i4").tobytes()
    data = b"".join([head, digest(head, body, state), body, state.tobytes()])
    try:
        write_whole(Path(path), data)
    except OSError as error:
        raise RequestError(f"{Path(path).name} cannot be saved: {error.strerror or error}") from error
    return len(data)


def read(path: str, owner: bytes) -> Saved:
    """Refuses what is not, byte for byte, a file that `write` wrote for this owner."""
    name = Path(path).name
    try:
        with Path(path).open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            head = stream.read(HEAD.size)
            n_tokens, n_state = check_head(name, head, owner)
            if size != HEAD.size + N_DIGEST + 4 * n_tokens + n_state:
                raise RequestError(f"{name} is damaged: it has {size} bytes, which is not what it says")
            checksum = stream.read(N_DIGEST)
            body, state = stream.read(4 * n_tokens), np.fromfile(stream, np.uint8, n_state)
    except OSError as error:
        raise RequestError(f"{name} cannot be read: {error.strerror or error}") from error
    if digest(head, body, state) != checksum:
        raise RequestError(f"{name} is damaged: its checksum is wrong")
    return Saved(np.frombuffer(body, "<i4").tolist(), state, size)


def check_head(name: str, head: bytes, owner: bytes) -> tuple[int, int]:
    """How many tokens and bytes follow."""
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        raise RequestError(f"{name} is not a saved slot")
    _, version, n_tokens, n_state, whose = HEAD.unpack(head)
    if version != VERSION:
        raise RequestError(f"{name} is a saved slot of version {version}; this is paceline for version {VERSION}")
    if whose != owner:
        raise RequestError(f"{name} was saved with another model, other cache types or another libllama")
    return n_tokens, n_state
