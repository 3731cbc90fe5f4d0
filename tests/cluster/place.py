"""Replicas without Ray: processes of the test's own, which it starts and kills, chosen by the same `Routes`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from itertools import count

import msgspec

from paceline.cluster.messages import Place
from paceline.cluster.roster import OnReplicas
from paceline.cluster.routing import Routes
from paceline.config import Settings


class Processes:
    """A `Placement`. One that is killed is still said to be there until `replace` starts another in its stead."""

    def __init__(self, settings: Settings, n_replicas: int) -> None:
        self.routes = Routes(settings.engine.n_slots)
        self.running: dict[str, subprocess.Popen[str]] = {}
        self._settings = msgspec.json.encode(settings).decode()
        self._names = map("replica-{}".format, count())
        self._n_replicas = n_replicas
        self._places: dict[str, Place] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_replicas: OnReplicas | None = None

    def start(self) -> None:
        for _ in range(self._n_replicas):
            self._add()

    def _add(self) -> None:
        command = [sys.executable, "-m", "tests.cluster.replica", self._settings]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        name = next(self._names)
        self._places[name] = msgspec.json.decode(process.stdout.readline(), type=Place)
        self.running[name] = process

    async def watch(self, on_replicas: OnReplicas) -> None:
        self._loop, self._on_replicas = asyncio.get_running_loop(), on_replicas
        on_replicas(dict(self._places))

    async def choose(self, hashes: Sequence[int]) -> str:
        while not self.routes.loads:
            await asyncio.sleep(0.01)
        return self.routes.choose(hashes, self.routes.loads.keys())

    def kill(self, name: str) -> None:
        self.running[name].kill()

    def replace(self, name: str) -> None:
        """As Ray does a little later."""
        self._end(self.running.pop(name))
        del self._places[name]
        self._add()
        assert self._loop and self._on_replicas
        self._loop.call_soon_threadsafe(self._on_replicas, dict(self._places))

    async def leave(self, *, last: bool) -> None:
        assert last

    def stop(self) -> None:
        for process in self.running.values():
            self._end(process)

    def _end(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin and process.stdout
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()
