from __future__ import annotations

import socket

from paceline.llama.lines import OPTIONS, keep_alive


def test_lines_are_watched_by_the_kernel_and_others_left_alone() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
        socket.create_connection(listener.getsockname()) as other,
    ):
        assert keep_alive(lambda line: line.getsockname() == ours.getsockname()) == 1
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert other.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
        known = {name: number for name in OPTIONS if (number := getattr(socket, name, None))}
        assert {name: ours.getsockopt(socket.IPPROTO_TCP, number) for name, number in known.items()} == {
            name: OPTIONS[name] for name in known
        }
        assert ours.getpeername() == listener.getsockname(), "it is still open"
