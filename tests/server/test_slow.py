"""Connections that are held and not used: they are closed, and whoever else asks is answered meanwhile."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from paceline.server.connections import Connection, ConnectionLimits, Connections, Phase
from paceline.server.params import ServerParams
from tests.server.live import Live, live, settings

HEAD = b"POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
KINDS: dict[str, tuple[bytes, bytes]] = {
    "no request line": (b"", b""),
    "half a head": (HEAD, b""),
    "a head byte by byte": (b"", b"GET /health HTTP/1.1\r\nX: " + b"x" * 1000),
    "a body that never comes": (HEAD + b"\r\n", b""),
    "a body byte by byte": (HEAD + b"\r\n", b"x" * 900),
    "idle after an answer": (GET, b""),
    "the next head byte by byte": (GET, b"GET /health HTTP/1.1\r\nX: " + b"x" * 1000),
}


LONG = 60  # seconds: much longer than an answer takes, whatever else the machine does


@pytest.fixture(scope="module")
def hurried(target: str) -> Iterator[Live]:
    params = ServerParams(port=0, shutdown_timeout=1, timeout=1, head_timeout=1, body_timeout=1, max_connections=40)
    with live(settings(target, n_ctx=60_000), params) as server:
        yield server


def connected(server: Live) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def is_closed(sock: socket.socket, seconds: float, drip: bytes) -> bool:
    """Whether the server hangs up in time, while a byte comes now and then."""
    until = time.monotonic() + seconds
    sock.settimeout(0.1)
    while time.monotonic() < until:
        try:
            if drip:
                sock.send(drip[:1])
                drip = drip[1:]
            if not sock.recv(65536):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


@pytest.mark.model
@pytest.mark.parametrize("kind", KINDS)
def test_who_does_not_say_what_it_wants_is_cut_off(hurried: Live, kind: str) -> None:
    first, drip = KINDS[kind]
    with connected(hurried) as sock:
        sock.sendall(first)
        assert is_closed(sock, 45, drip)  # before the last byte has come


@pytest.mark.model
def test_a_flood_of_idle_connections_leaves_room_for_a_request(target: str) -> None:
    """Nobody waits until the idle ones are late."""
    params = ServerParams(port=0, shutdown_timeout=1, timeout=LONG, head_timeout=LONG, max_connections=40)
    with live(settings(target), params) as server, ExitStack() as held:
        start = time.monotonic()
        for n in range(150):
            held.enter_context(connected(server))
            if n % 10 == 0:
                assert httpx.get(f"{server.url}/health", timeout=LONG).status_code == 200
        assert time.monotonic() - start < LONG


@pytest.mark.model
def test_whoever_is_being_answered_is_not_cut_off(hurried: Live) -> None:
    """An answer takes longer than any of the limits, while others crowd in."""
    body = {"prompt": "Hi", "n_predict": -1, "ignore_eos": True, "stream": True, "t_max_predict_ms": 0}
    with hurried.http.stream("POST", "/completion", json=body) as response:
        lines = response.iter_lines()
        until = time.monotonic() + 3
        crowd = [connected(hurried) for _ in range(60)]
        while time.monotonic() < until:
            assert next(lines) is not None
        for sock in crowd:
            sock.close()
    assert hurried.idle()


@pytest.mark.model
def test_a_body_that_keeps_coming_is_waited_for(hurried: Live) -> None:
    """100 KB in two seconds: slower than the deadline, faster than the slowest that is allowed. What comes first earns
    so much time that the rest may be late."""
    body = b'{"prompt": "Hi", "n_predict": 1, "x": "' + b"x" * 100_000 + b'"}'
    with connected(hurried) as sock:
        sock.sendall(HEAD.replace(b"1000", str(len(body)).encode()) + b"\r\n" + body[:80_000])
        for at in range(80_000, len(body), 1024):
            sock.sendall(body[at : at + 1024])
            time.sleep(0.1)
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")


# -- without a server


class FakeTransport:
    def __init__(self, address: str) -> None:
        self.address, self.closed, self.aborted, self.sent = address, False, False, b""

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return self.address, 1

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


def joined(connections: Connections, address: str, phase: Phase = Phase.HEAD) -> FakeTransport:
    cycle = None if phase == Phase.HEAD else SimpleNamespace(response_complete=False, more_body=phase == Phase.BODY)
    transport: Any = FakeTransport(address)
    Connection(connections, SimpleNamespace(cycle=cycle, connection_made=lambda _: None)).connection_made(transport)
    assert isinstance(transport, FakeTransport)
    return transport


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> Connections:
    monkeypatch.setattr(Connections, "_sweep_later", lambda self: None)
    return Connections(ConnectionLimits(idle_s=9, head_s=9, body_s=9, n_max=6, n_per_address=3))


def test_one_address_has_its_share(crowded: Connections) -> None:
    theirs = [joined(crowded, "10.0.0.9") for _ in range(4)]
    assert [transport.aborted for transport in theirs] == [True, False, False, False]
    assert not joined(crowded, "10.0.0.8").aborted
    ours = [joined(crowded, "127.0.0.1") for _ in range(4)]
    assert not any(transport.aborted for transport in ours)


def test_those_at_work_stay_and_the_next_is_refused(crowded: Connections) -> None:
    busy = [joined(crowded, "127.0.0.1", Phase.ANSWER) for _ in range(5)]
    slow = joined(crowded, "127.0.0.1", Phase.BODY)
    busy.append(joined(crowded, "127.0.0.1", Phase.ANSWER))
    assert slow.aborted
    late = joined(crowded, "127.0.0.1")
    assert late.closed
    assert late.sent.startswith(b"HTTP/1.1 503")
    assert not any(transport.aborted or transport.closed for transport in busy)
