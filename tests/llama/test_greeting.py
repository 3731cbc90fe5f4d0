"""Who is at the other end of an address: real sockets on loopback, with real and wrong things behind them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from paceline.errors import ConfigError, WorkerAway
from paceline.llama.greeting import DEVICE_COUNT, HELLO, N_ABILITIES, Greeting, address_of, check_version, greet

HEAD = struct.Struct("<BQ")


@contextmanager
def peer(behaviour: Callable[[socket.socket], None]) -> Iterator[str]:
    """Somebody who listens and treats the first who comes so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                behaviour(line)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def worker(version: tuple[int, int, int], n_devices: int) -> Callable[[socket.socket], None]:
    def behave(line: socket.socket) -> None:
        assert HEAD.unpack(line.recv(HEAD.size, socket.MSG_WAITALL)) == (HELLO, N_ABILITIES)
        assert line.recv(N_ABILITIES, socket.MSG_WAITALL) == bytes(N_ABILITIES)
        line.sendall(struct.pack("<Q4B24x", 28, *version, 0))
        assert HEAD.unpack(line.recv(HEAD.size, socket.MSG_WAITALL)) == (DEVICE_COUNT, 0)
        line.sendall(struct.pack("<QI", 4, n_devices))

    return behave


def test_a_worker_says_its_version_and_devices() -> None:
    with peer(worker((7, 0, 0), 3)) as endpoint:
        assert greet(endpoint) == Greeting((7, 0, 0), 3)


def test_nobody_there_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(WorkerAway, match=rf"worker 127\.0\.0\.1:{port} cannot be reached .*start it there with"):
        greet(f"127.0.0.1:{port}")


def test_one_who_says_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(WorkerAway, match="one at a time"):
            greet(endpoint, 0.2)


def http(line: socket.socket) -> None:
    line.recv(100)
    line.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def hang_up(line: socket.socket) -> None:
    line.recv(HEAD.size + N_ABILITIES, socket.MSG_WAITALL)


def hang_up_rudely(line: socket.socket) -> None:
    line.recv(1)  # what is left unread makes it a reset


@pytest.mark.parametrize("behaviour", [http, hang_up, hang_up_rudely])
def test_others_are_no_workers(behaviour: Callable[[socket.socket], None]) -> None:
    with peer(behaviour) as endpoint, pytest.raises(ConfigError, match="is no RPC worker, or one of another libllama"):
        greet(endpoint)


@pytest.mark.parametrize(
    ("version", "fits"),
    [((7, 0, 0), True), ((7, 0, 9), True), ((6, 0, 0), False), ((8, 0, 0), False), ((7, 1, 0), False)],
)
def test_versions_are_compared_as_libllama_does(version: tuple[int, int, int], fits: bool) -> None:
    greeting = Greeting(version, 1)
    check_version("there:1", greeting, "9.9.9")  # one we know nothing of
    if fits:
        check_version("there:1", greeting, "0.3.36")
        return
    spelled = ".".join(map(str, version))
    with pytest.raises(ConfigError, match=rf"there:1 speaks version {spelled} .* version 7\.0\.0: install the same"):
        check_version("there:1", greeting, "0.3.36")


def test_another_count_of_operations_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    check_version("there:1", Greeting((7, 0, 9), 1), "0.3.36")
    assert "there:1 speaks version 7.0.9" in caplog.text


def test_an_address_is_the_same_however_it_is_spelled() -> None:
    assert address_of("localhost:50052") == address_of("127.0.0.1:50052") == ("127.0.0.1", 50052)


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":1", "host:0", "host:65536", "[::1]:50052", "::1:50052", "a b:1"]
)
def test_what_is_no_address_is_told_before_anything_is_sent(text: str) -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        address_of(text)
