"""A real server on loopback, in a thread of the test's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.server.listener import Server, listen, url
from paceline.server.params import ServerParams
from paceline.server.service import OpenBackend, Service
from paceline.server.text_request import Defaults


@dataclass(frozen=True, slots=True)
class Live:
    """A running server, and a client for it."""

    service: Service
    url: str
    http: httpx.Client

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(path, json=body)

    def at_work(self) -> int:
        """Requests in slots and waiting for one."""
        status = self.service.engine.status()
        return sum(slot.request is not None for slot in status.slots) + status.n_waiting

    def idle(self, seconds: float = 60.0) -> bool:
        """Whether every slot is free and nobody is being answered, or so it becomes: sooner than a text without an end
        fills 60,000 tokens, which takes minutes."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not self.at_work() and not self.service.running:
                return True
            time.sleep(0.02)
        return False


def settings(model: str, *, n_ctx: int = 2048, n_slots: int = 2, n_threads: int = 1, **engine: Any) -> Settings:
    """One thread is enough for tiny weights, and does not mind other work on the machine. A slot holds n_ctx tokens."""
    context = ContextParams(n_ctx=n_ctx * n_slots, n_threads=n_threads)
    return Settings(model=ModelParams(path=model), context=context, engine=EngineParams(n_slots=n_slots, **engine))


@contextmanager
def live(
    settings: Settings,
    params: ServerParams | None = None,
    defaults: Defaults | None = None,
    *,
    load: bool = True,
    open_backend: OpenBackend | None = None,
) -> Iterator[Live]:
    params = params or ServerParams(port=0, metrics=True, shutdown_timeout=1)
    service = Service(settings, params, defaults, open_backend=open_backend)
    if load:
        service.load()
    server = Server(service)
    with listen(params) as sock:
        address = url(params, sock)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            until = time.monotonic() + 60
            while not server.started and thread.is_alive() and time.monotonic() < until:
                time.sleep(0.005)  # the port is ours, but nobody listens yet
            with httpx.Client(base_url=address, timeout=60) as http:
                yield Live(service, address, http)
        finally:
            server.should_exit = True
            thread.join()
            service.close()
