"""`paceline` as a user starts it: real processes, which see no other hub than the one of the test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

PATIENCE = 300.0  # seconds, for machines that have much else to do
PACELINE = (sys.executable, "-m", "paceline")
ROOT = Path(__file__).parents[2]
THEIRS = ("HF_", "HUGGINGFACE_", "LLAMA_ARG_", "MODEL_ENDPOINT", "XDG_CACHE_HOME")


def environ_for(url: str, folder: Path, **more: str) -> dict[str, str]:
    """The test's own hub and caches; nothing of what the user has set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(THEIRS)}
    own = {"HF_ENDPOINT": url, "HF_HOME": str(folder / "hf"), "PACELINE_CACHE": str(folder / "cache")}
    python = {"PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    return {**kept, **own, **python, "XDG_CONFIG_HOME": str(folder / "config"), **more}


def command(
    words: Sequence[str], environ: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """One that ends by itself. A tiny model writes bytes of any kind."""
    return subprocess.run(
        [*PACELINE, *words],
        env=dict(environ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE,
        check=False,
    )


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that has loaded its model, and what it has logged."""

    url: str
    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")


@contextmanager
def serving(words: Sequence[str], environ: Mapping[str, str], folder: Path) -> Iterator[Serving]:
    """`paceline serve` with these flags, on a port of our choice. Ctrl-C ends it."""
    with (
        held_port() as port,
        (folder / f"serve-{port}.log").open("wb") as log,
        subprocess.Popen(
            [*PACELINE, "serve", *words, "--host", "127.0.0.1", "--port", str(port)],
            env=dict(environ),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        ) as process,
    ):
        server = Serving(f"http://127.0.0.1:{port}", process, Path(log.name))
        try:
            wait(server)
            yield server
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def wait(server: Serving) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if server.process.poll() is not None:
            raise AssertionError(f"the server ended: {server.log}")
        try:
            if httpx.get(f"{server.url}/health", timeout=10).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server is not ready: {server.log}")


@contextmanager
def held_port() -> Iterator[int]:
    """A port that the system gives to nobody else meanwhile; a server that reuses addresses can listen on it."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        yield int(sock.getsockname()[1])
