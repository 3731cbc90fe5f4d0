"""Somebody else on the server while it is attacked: asks the same again and again, and watches health and memory."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import linear_regression
from threading import Event, Thread
from typing import Any

import httpx

from benchmarks.server import Server, footprint

QUESTION = {"prompt": "Once there was", "n_predict": 24, "temperature": 0, "id_slot": 1}
PAUSE_S = 0.5
HANG_S = 10.0  # also beside other programs
SETTLED_S = 120.0  # memory of the first minutes says nothing
ANSWER_S = 60.0


@dataclass(slots=True)
class Bystander:
    """Two threads: one asks, one looks. `server` may lose its child at any time, never its front."""

    server: Server
    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    memory: list[tuple[float, float]] = field(default_factory=list)  # seconds, megabytes of the front
    _over: Event = field(default_factory=Event)
    _threads: list[Thread] = field(default_factory=list)
    _expected: str = ""

    def start(self) -> None:
        with self._client() as http:
            self._expected = self._asked(http)["content"]
        self._threads = [Thread(target=self._ask, daemon=True), Thread(target=self._look, daemon=True)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def megabytes_a_minute(self) -> float:
        """How fast the front grows, after the first minutes; 0 where that is too short."""
        late = [(at, mb) for at, mb in self.memory if at > SETTLED_S]
        return 60 * linear_regression(*zip(*late, strict=True)).slope if len(late) > 20 else 0.0

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self.server.url, timeout=ANSWER_S, trust_env=False)

    def _asked(self, http: httpx.Client) -> dict[str, Any]:
        reply = http.post("/completion", json=QUESTION)
        return dict(reply.json()) if reply.status_code == 200 else {"content": None, "status": reply.status_code}

    def _ask(self) -> None:
        while not self._over.wait(PAUSE_S):
            try:
                with self._client() as http:
                    found = self._asked(http)
            except httpx.TransportError:
                self.counts["lost"] += 1
                continue
            if found["content"] is None:
                self.counts["refused for now" if found["status"] in (429, 503) else "server error"] += 1
            else:
                self.counts["right answer" if found["content"] == self._expected else "wrong answer"] += 1

    def _look(self) -> None:
        start = time.monotonic()
        while not self._over.wait(PAUSE_S):
            before = time.monotonic()
            try:
                with self._client() as http:
                    http.get("/health")
            except httpx.TransportError:
                self.counts["hang"] += 1
            took = time.monotonic() - before
            self.slowest = max(self.slowest, took)
            self.counts["hang" if took > HANG_S else "health"] += 1
            if self.server.alive:
                self.memory.append((before - start, footprint(self.server.pid).rss_mb))
