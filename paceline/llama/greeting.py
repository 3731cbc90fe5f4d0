"""Whether an RPC worker is there and can be understood, before libllama speaks to it: that would end the process where
it is not, and wait for ever where it does not answer. Speaks the first two words of ggml's protocol. No libllama here.
"""

from __future__ import annotations

import logging
import socket
import struct
from typing import NamedTuple

from paceline.config.endpoints import endpoint_of
from paceline.errors import ConfigError, WorkerAway

log = logging.getLogger("paceline")

PATIENCE = 5.0  # seconds, for the line and for each answer
HELLO, DEVICE_COUNT = 14, 15
N_ABILITIES = 24  # bytes for what a line can do beside TCP; we say nothing
LONGEST_ANSWER = 256  # bytes
PROTOCOLS = {"0.3.36": (7, 0, 0)}
"""What the libllama inside each llama-cpp-python speaks. One that is not here speaks for itself."""

START = "start it there with `paceline worker`"
BUSY = (
    "takes the line and says nothing for {:g} s: it computes for another client (a worker has one at a time), or hangs"
)
STRANGE = "is no RPC worker, or one of another libllama"
OTHER = (
    "speaks version {} of ggml's RPC and the libllama here version {}: install the same llama-cpp-python on both sides"
)


class Greeting(NamedTuple):
    """What a worker says of itself."""

    version: tuple[int, int, int]
    n_devices: int


def address_of(endpoint: str) -> tuple[str, int]:
    """One worker has one address, however it is spelled."""
    try:
        host, port = endpoint_of(endpoint)
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise away(endpoint, f"cannot be found ({error.strerror or error})") from None
    address = found[0][4]
    return str(address[0]), int(address[1])


def greet(endpoint: str, seconds: float = PATIENCE) -> Greeting:
    """Asks who is there, and leaves again."""
    address = address_of(endpoint)
    try:
        with socket.create_connection(address, seconds) as line:
            version = ask(line, endpoint, HELLO, bytes(N_ABILITIES))
            (n_devices,) = struct.unpack("<I", ask(line, endpoint, DEVICE_COUNT, b"")[:4].ljust(4, b"\0"))
    except TimeoutError:
        raise away(endpoint, BUSY.format(seconds)) from None
    except ConnectionResetError:
        raise ConfigError(f"{endpoint} {STRANGE}") from None
    except OSError as error:
        raise away(endpoint, f"cannot be reached ({error.strerror or error}); {START}") from None
    major, minor, patch = version[:3].ljust(3, b"\0")
    return Greeting((major, minor, patch), n_devices)


def away(endpoint: str, why: str) -> WorkerAway:
    return WorkerAway(f"the RPC worker {endpoint} {why}")


def ask(line: socket.socket, endpoint: str, command: int, content: bytes) -> bytes:
    """One byte for the command, eight for the length of what follows; the answer has a length too."""
    line.sendall(struct.pack("<BQ", command, len(content)) + content)
    (length,) = struct.unpack("<Q", receive(line, endpoint, 8))
    if length > LONGEST_ANSWER:
        raise ConfigError(f"{endpoint} {STRANGE}")
    return receive(line, endpoint, length)


def receive(line: socket.socket, endpoint: str, n: int) -> bytes:
    data = b""
    while len(data) < n:
        got = line.recv(n - len(data))
        if not got:
            raise ConfigError(f"{endpoint} {STRANGE}")
        data += got
    return data


def check_version(endpoint: str, greeting: Greeting, package: str) -> None:
    """As libllama checks it, which ends the process instead: the same major number, and nothing newer. The last number
    counts kinds of operations; it takes any, and what is computed may not be what was meant."""
    ours, theirs = PROTOCOLS.get(package), greeting.version
    if ours and (theirs[0] != ours[0] or theirs[1] > ours[1]):
        raise ConfigError(f"the RPC worker {endpoint} {OTHER.format(spelled(theirs), spelled(ours))}")
    if ours and theirs != ours:
        log.warning("the RPC worker %s %s", endpoint, OTHER.format(spelled(theirs), spelled(ours)))


def spelled(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))
