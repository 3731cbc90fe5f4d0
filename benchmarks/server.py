"""`paceline serve` in a process of its own, and what can be seen of it from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

from paceline.errors import ConfigError

CHILD = b"paceline.process.child"
PROC = Path("/proc")
LAST_WORDS = 40
TO_END_S = 30.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one process holds at one moment."""

    rss_mb: float
    pss_mb: float
    n_files: int


@dataclass(slots=True)
class Server:
    """The front process, its address, and the last lines it wrote."""

    process: subprocess.Popen[str]
    host: str
    port: int
    said: deque[str]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def child(self) -> int | None:
        """The process with the engine; None when there is none at the moment."""
        return next((pid for pid in children(self.pid) if CHILD in command(pid)), None)

    @property
    def resident_mb(self) -> float:
        pids = [self.pid, *filter(None, [self.child])]
        return sum(footprint(pid).rss_mb for pid in pids)

    def get(self, path: str) -> Any:
        with urlopen(self.url + path, timeout=60) as reply:
            return json.load(reply)

    def free(self, seconds: float = 20.0) -> bool:
        """Whether all slots are free, or become so."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not any(slot["busy"] for slot in self.get("/paceline/stats")["slots"]):
                return True
            time.sleep(0.1)
        return False


@contextmanager
def serving(model: str, n_slots: int, n_ctx: int, flags: Sequence[str] = ()) -> Iterator[Server]:
    words = [sys.executable, "-m", "paceline", "serve", "-m", model, "--port", "0"]
    words += ["-np", str(n_slots), "-c", str(n_ctx), *flags]
    said: deque[str] = deque(maxlen=LAST_WORDS)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        # A pipe that nobody reads would stop the server once it is full.
        reader = Thread(target=said.extend, args=(process.stderr,), daemon=True)
        try:
            host, port = address(process.stderr, said)
            reader.start()
            yield Server(process, host, port, said)
        finally:
            end(process)
            if reader.ident:  # it reads to the end before the pipe is closed
                reader.join(TO_END_S)


def address(lines: Iterable[str], said: deque[str]) -> tuple[str, int]:
    for line in lines:
        said.append(line)
        if "ready at" in line:
            host, port = line.split("http://")[1].split()[0].split(":")
            return host, int(port)
    raise ConfigError("the server did not start:\n" + "".join(said))


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(TO_END_S)
    except subprocess.TimeoutExpired:
        process.kill()


# -- /proc


def children(pid: int) -> list[int]:
    return [int(stat.parent.name) for stat in PROC.glob("[0-9]*/stat") if parent(stat) == pid]


def parent(stat: Path) -> int | None:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def command(pid: int) -> bytes:
    """Empty once the process is dead, even before its parent has noticed."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def footprint(pid: int) -> Footprint:
    folder = PROC / str(pid)
    rss = kilobytes(folder / "status", "VmRSS")
    pss = kilobytes(folder / "smaps_rollup", "Pss")
    return Footprint(rss / 1024, pss / 1024, len(list((folder / "fd").iterdir())))


def kilobytes(file: Path, name: str) -> float:
    """0 where the system does not tell."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0.0)
