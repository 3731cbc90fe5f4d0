"""TCP lines that libllama opened: the kernel is to notice when the machine at the other end is gone. Otherwise a worker
would wait for ever for a client without power, and a client until its own patience ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress

SILENCE = 30  # seconds without a word, before the other end is asked whether it is there
BETWEEN, N_QUESTIONS = 10, 3
LOST_MS = 1000 * (SILENCE + BETWEEN * N_QUESTIONS)
OPTIONS = {
    "TCP_KEEPIDLE": SILENCE,
    "TCP_KEEPINTVL": BETWEEN,
    "TCP_KEEPCNT": N_QUESTIONS,
    "TCP_USER_TIMEOUT": LOST_MS,
}
"""What the system has of them. A machine that is there answers, even while its program is stopped."""


def keep_alive(is_ours: Callable[[socket.socket], bool]) -> int:
    """Of all connected lines of this process those that are ours; how many that were. A copy of a line's number has the
    same line behind it."""
    n = 0
    for name in os.listdir("/dev/fd") if os.path.isdir("/dev/fd") else ():
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as line:
            if line.family == socket.AF_INET and line.getpeername() and is_ours(line):
                set_options(line)
                n += 1
    return n


def set_options(line: socket.socket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in OPTIONS.items():
        if number := getattr(socket, name, None):
            line.setsockopt(socket.IPPROTO_TCP, number, value)
