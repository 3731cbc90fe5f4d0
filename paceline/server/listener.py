"""Listening: a socket, uvicorn, and an orderly end. On SIGTERM or SIGINT answers get some seconds to finish."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import uvicorn
from anyio import to_thread

from paceline.errors import ConfigError
from paceline.server.app import create_app
from paceline.server.connections import ConnectionLimits, Connections, share_of_files
from paceline.server.params import ServerParams
from paceline.server.service import Service

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LAST_SECONDS = 5
LONGEST_IDLE_S = 75
BACKLOG = 128
"""As many may be accepted before any of them is counted."""


@contextlib.contextmanager
def listen_everywhere(params: ServerParams) -> Iterator[list[socket.socket]]:
    """On every address of --host; files of sockets are gone afterwards."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for host in params.hosts:
            sockets.append(stack.enter_context(listen(params, host)))
            if is_file(host):
                stack.callback(Path(host).unlink, missing_ok=True)
        yield sockets


def listen(params: ServerParams, host: str = "") -> socket.socket:
    """The socket is bound before the model loads: a taken port is told at once."""
    host = host or params.hosts[0]
    family = socket.AF_UNIX if is_file(host) else socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_UNIX:
            remove_stale(host)
            sock.bind(host)
            return sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and len(params.hosts) > 1:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if params.reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, params.port))
    except OSError as error:
        sock.close()
        place = host if family == socket.AF_UNIX else f"{host} port {params.port}"
        raise ConfigError(f"cannot listen on {place}: {error.strerror or error}") from None
    return sock


def is_file(host: str) -> bool:
    return host.endswith(".sock")


def remove_stale(path: str) -> None:
    """A socket that nobody listens on any more is in the way."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, contextlib.suppress(FileNotFoundError):
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()


def url(params: ServerParams, sock: socket.socket) -> str:
    if sock.family == socket.AF_UNIX:
        return f"unix://{sock.getsockname()}{params.api_prefix}"
    host, port = sock.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if params.ssl_cert_file else 'http'}://{host}:{port}{params.api_prefix}"


def limits_of(params: ServerParams) -> ConnectionLimits:
    return ConnectionLimits(
        idle_s=min(params.timeout, LONGEST_IDLE_S) + LAST_SECONDS,
        head_s=params.head_timeout,
        body_s=params.body_timeout,
        n_max=params.max_connections or share_of_files(),
        n_per_address=params.max_connections_per_address,
    )


class Server(uvicorn.Server):
    """uvicorn, ending our way: nobody new, some seconds for those at work, then their slots are taken."""

    def __init__(self, service: Service) -> None:
        params = service.params
        config = uvicorn.Config(
            create_app(service),
            log_config=None,
            log_level="warning",
            access_log=False,
            http=cast(Any, Connections(limits_of(params)).protocol),
            ws="none",
            backlog=BACKLOG,
            timeout_keep_alive=min(params.timeout, LONGEST_IDLE_S),
            timeout_graceful_shutdown=params.shutdown_timeout + LAST_SECONDS,
            ssl_keyfile=params.ssl_key_file,
            ssl_certfile=params.ssl_cert_file,
            lifespan="on",
        )
        super().__init__(config)
        self.service = service
        self._serving: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Templates, tokens and grammars are worked at beside the event loop, by so many threads."""
        self._serving = asyncio.get_running_loop()
        n_threads = self.service.params.threads_http
        if n_threads > 0:
            workers = ThreadPoolExecutor(n_threads, "paceline-http")
            asyncio.get_running_loop().set_default_executor(workers)
            to_thread.current_default_thread_limiter().total_tokens = n_threads
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.stop_accepting()
        asyncio.get_running_loop().call_later(self.service.params.shutdown_timeout, self.service.cancel_all)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal that was obeyed is not raised again: the exit code is 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = self._take_signals()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take_signals(self) -> dict[int, Any]:
        return {number: signal.signal(number, self.handle_exit) for number in SIGNALS}

    def take_signals_again(self) -> None:
        """From any thread: what was opened since may have taken them for itself, as Ray does."""
        if self._serving:  # else they are not taken yet
            self._serving.call_soon_threadsafe(self._take_signals)
