"""`paceline worker` in processes of their own, and a line to them that is as slow as a network."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TextIO

from benchmarks.server import LAST_WORDS, end
from paceline.errors import ConfigError

READY = "for one client at a time"
PIECE = 1 << 16


@dataclass(slots=True)
class Worker:
    """One that was started, the last lines it wrote, and where it listens."""

    process: subprocess.Popen[str]
    port: int
    said: deque[str]

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as trial:
        return int(trial.getsockname()[1])


def start(flags: Sequence[str] = (), port: int | None = None, python: str = sys.executable) -> Worker:
    """Blocks until it listens."""
    port = port or free_port()
    words = [python, "-m", "paceline", "worker", "-p", str(port), *flags]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said: deque[str] = deque(maxlen=LAST_WORDS)
    assert process.stderr
    for line in process.stderr:
        said.append(line)
        if READY in line:
            threading.Thread(target=listen, args=(process.stderr, said), daemon=True).start()
            return Worker(process, port, said)
    process.stderr.close()
    process.wait()
    raise ConfigError("the worker did not start: " + "".join(said).strip())


def listen(lines: TextIO, said: deque[str]) -> None:
    """A pipe that nobody reads would stop it once it is full."""
    with lines:
        said.extend(lines)


@contextmanager
def lending(n: int, flags: Sequence[str] = ("-t", "1")) -> Iterator[list[Worker]]:
    """So many of them; whoever is in the list at the end is ended."""
    workers: list[Worker] = []
    try:
        workers.extend(start(flags) for _ in range(n))
        yield workers
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.signal(signal.SIGCONT)
            end(worker.process)


# -- a line that takes its time


@contextmanager
def slow_line(port: int, *, delay: float = 0.0, bytes_per_s: float = float("inf")) -> Iterator[int]:
    """A port behind which is another one, as far away as that: what is sent arrives so many seconds later, and no
    quicker than so many bytes a second each way."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    near, _ = listener.accept()
                    far = socket.create_connection(("127.0.0.1", port))
                    for one, other in ((near, far), (far, near)):
                        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        carry(one, other, delay, bytes_per_s)

        threading.Thread(target=accept, daemon=True).start()
        yield int(listener.getsockname()[1])


def carry(source: socket.socket, goal: socket.socket, delay: float, bytes_per_s: float) -> None:
    """One direction, on two threads: pieces are read as they come and written when they are due."""
    under_way: deque[tuple[float, bytes]] = deque()
    arrived = threading.Condition()

    def read() -> None:
        free_at = 0.0
        piece = b"-"
        while piece:
            try:
                piece = source.recv(PIECE)
            except OSError:
                piece = b""
            free_at = max(free_at, time.perf_counter()) + len(piece) / bytes_per_s
            with arrived:
                arrived.wait_for(lambda: len(under_way) < 64)
                under_way.append((free_at + delay, piece))
                arrived.notify_all()

    def write() -> None:
        piece = b"-"
        while piece:
            with arrived:
                arrived.wait_for(lambda: under_way)
                due, piece = under_way.popleft()
                arrived.notify_all()
            time.sleep(max(0.0, due - time.perf_counter()))
            with suppress(OSError):
                goal.sendall(piece) if piece else goal.shutdown(socket.SHUT_WR)

    for work in (read, write):
        threading.Thread(target=work, daemon=True).start()
