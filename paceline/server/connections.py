"""Connections: how many there may be, and how long one may take to say what it wants.

uvicorn reads requests; this stands between it and the socket, and closes who keeps a connection without using it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from time import monotonic
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

SWEEP_S = 0.5
SLOWEST = 4096
"""Bytes a second: a body that comes at this rate is not closed."""
FULL = b'{"error":{"code":503,"message":"too many connections","type":"unavailable_error","param":null}}'
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(FULL), FULL)
)


class Phase(IntEnum):
    """What a connection is at. Where one has to go, the first kind goes first."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    ANSWER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Seconds for the phases, and counts."""

    idle_s: float
    head_s: float
    body_s: float
    n_max: int
    n_per_address: int


def share_of_files() -> int:
    """Three quarters of the files that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if soft == resource.RLIM_INFINITY else min(4096, max(16, soft * 3 // 4))


class Connections:
    """All that are open."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: set[Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._sweeping = False

    def protocol(self, *args: Any, **kwargs: Any) -> Connection:
        """What uvicorn calls for a new one."""
        return Connection(self, AutoHTTPProtocol(*args, **kwargs))

    def admit(self, new: Connection) -> bool:
        """Whether there is room, after closing somebody who does not use theirs."""
        address = new.address
        if not is_loopback(address) and self._by_address[address] >= self.limits.n_per_address:
            if not self._make_room([other for other in self._open if other.address == address]):
                return False
        elif len(self._open) >= self.limits.n_max and not self._make_room(list(self._open)):
            return False
        self._open.add(new)
        self._by_address[address] += 1
        if not self._sweeping:
            self._sweep_later()
        return True

    def _make_room(self, among: list[Connection]) -> bool:
        candidates = [connection for connection in among if connection.observe() != Phase.ANSWER]
        if not candidates:
            return False
        min(candidates, key=lambda connection: (connection.phase, connection.since)).abort()
        return True

    def leave(self, connection: Connection) -> None:
        if connection in self._open:
            self._open.discard(connection)
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def _sweep_later(self) -> None:
        self._sweeping = True
        asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        for connection in list(self._open):
            if connection.is_late(self.limits):
                connection.abort()
        if self._open:
            self._sweep_later()


class Connection(asyncio.Protocol):
    """One connection, watched. Everything is passed on to uvicorn's own protocol."""

    def __init__(self, connections: Connections, inner: Any) -> None:
        self._connections = connections
        self._inner = inner
        self._transport: Any = None
        self._spoke = True  # whether the client said something since the last answer; a new one owes a head
        self._n_received = 0
        self._n_unsent = 0
        self.address = ""
        self.phase = Phase.HEAD
        self.since = monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        if not self._connections.admit(self):
            self._transport.write(REFUSAL)
            self._transport.close()
            self._inner = None
            return
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._inner is None:
            return
        if self.observe() == Phase.IDLE:
            self._spoke = True
        self._inner.data_received(data)
        self.observe()
        self._n_received += len(data)

    def observe(self) -> Phase:
        """The phase, and since when."""
        phase = self._phase()
        if phase != self.phase:
            self.phase, self.since, self._n_received = phase, monotonic(), 0
            if phase in (Phase.BODY, Phase.ANSWER):
                self._spoke = False
        return phase

    def _phase(self) -> Phase:
        cycle = self._inner.cycle if self._inner else None
        if cycle is None or cycle.response_complete:
            return Phase.HEAD if self._spoke else Phase.IDLE
        return Phase.BODY if cycle.more_body else Phase.ANSWER

    def is_late(self, limits: ConnectionLimits) -> bool:
        phase = self.observe()
        n_unsent = self._transport.get_write_buffer_size()
        if n_unsent != self._n_unsent:  # an answer is still being read
            self._n_unsent, self.since = n_unsent, monotonic()
        allowed = {Phase.IDLE: limits.idle_s, Phase.HEAD: limits.head_s}.get(phase, float("inf"))
        if phase == Phase.BODY:
            allowed = limits.body_s + self._n_received / SLOWEST
        return monotonic() - self.since > allowed

    def abort(self) -> None:
        """Now, without waiting for what is unsent."""
        self._connections.leave(self)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """An error is not passed on: uvicorn would keep all it has of a reset connection until its timer runs out."""
        self._connections.leave(self)
        if self._inner is not None:
            self._inner.connection_lost(None)

    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return True  # a socket that is a file of this machine
