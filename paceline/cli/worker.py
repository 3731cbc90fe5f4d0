"""`paceline worker`: lends this machine's devices to a server on another one, by ggml's RPC."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from time import monotonic

from paceline.cli.flags import Parsed
from paceline.cli.kept_weights import KeptWeights
from paceline.cli.options import WorkerOptions
from paceline.config.granted import usable_cores
from paceline.errors import ConfigError
from paceline.llama import rpc
from paceline.llama.devices import device_of
from paceline.llama.lib import untile
from paceline.llama.lines import keep_alive
from paceline.llama.rpc import Address
from paceline.models import cache_folder

log = logging.getLogger("paceline")

TICK = 1.0  # seconds
JOINED, LEFT = "Accepted client connection", "Client connection closed"
OPEN = (
    "listening on %s: whoever reaches this port can use and crash this worker, and read what it computes; "
    "RPC has no password, so let a private network or a firewall keep others out"
)


def main(parsed: Parsed) -> int:
    options = WorkerOptions(**parsed.under("worker"))
    rpc.check_available()
    address = free_address(options)
    if options.exact:
        untile()
    devices = rpc.servable(options.devices)
    kept = KeptWeights(Path(options.cache or cache_folder() / "rpc")) if options.cache is not None else None
    if not ipaddress.ip_address(address[0]).is_loopback:
        log.warning(OPEN, address[0])
    for device in devices:
        log.info("lends %s", device_of(device))
    if kept:
        n_cut = kept.sweep()
        log.info("keeps weights in %s (%d MiB; %d files cut short are gone)", kept.folder, kept.n_bytes >> 20, n_cut)
    n_threads = options.n_threads or usable_cores()
    work = Serving(address, kept, n_threads, devices)
    log.info("at %s:%d with %d threads, for one client at a time; Ctrl-C ends it", *address, n_threads)
    return work.until_told()


def free_address(options: WorkerOptions) -> Address:
    """Where ggml can listen: numbers only, IPv4. It says little where it cannot, so that is tried first."""
    try:
        found = socket.getaddrinfo(options.host, options.port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
        address = str(found[0]), int(found[1])
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        place = f"{options.host} port {options.port}"
        raise ConfigError(f"cannot listen on {place}: {error.strerror or error}") from None
    return address


class Serving:
    """ggml serves on a thread and never returns; this one waits for signals, tells of clients and counts weights."""

    def __init__(self, address: Address, kept: KeptWeights | None, n_threads: int, devices: list[int]) -> None:
        self._kept = kept
        self._told = threading.Event()
        self._since: float | None = None  # when the client came
        self._announced = self._failed = self._full = False
        self._address = address
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._told.set())
        self._start(self._listen, take_stdout())
        self._start(self._serve, address, kept.folder if kept else None, n_threads, devices)

    def _start(self, work: object, *args: object) -> None:
        threading.Thread(target=work, args=args, daemon=True).start()  # type: ignore[arg-type]

    def _serve(self, address: Address, folder: Path | None, n_threads: int, devices: list[int]) -> None:
        rpc.serve(address, folder, n_threads, devices)
        self._failed = True
        self._told.set()

    def _listen(self, lines: int) -> None:
        """What ggml prints. Clients that only ask what is here come and go at once: nobody wants to read that."""
        with open(lines, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                log.debug("ggml: %s", line.rstrip())
                if line.startswith(JOINED):
                    self._since = monotonic()
                    keep_alive(lambda sock: sock.getsockname()[1] == self._address[1])
                elif line.startswith(LEFT):
                    self._since = None

    def until_told(self) -> int:
        while not self._told.wait(TICK):
            self._announce()
            self._settle()
        self._settle()
        if self._failed:
            raise ConfigError("ggml cannot listen there any more: has another program taken the port?")
        log.info("ended")
        logging.shutdown()
        sys.stderr.flush()
        os._exit(0)  # ggml's thread may be computing, and nothing can call it back

    def _announce(self) -> None:
        since = self._since
        here = since is not None and monotonic() - since > TICK
        if here != self._announced:
            self._announced = here
            log.info("a client has come" if here else "the client has left, its memory is free")

    def _settle(self) -> None:
        if self._kept and not self._full and not self._kept.settle():
            self._full = True
            log.warning("the disk of %s is full: what was written last is not kept", self._kept.folder)


def take_stdout() -> int:
    """ggml prints there; gives where that can be read. Our own lines go where they went before."""
    read, write = os.pipe()
    sys.stdout.flush()
    before = os.dup(sys.stdout.fileno())
    os.dup2(write, sys.stdout.fileno())
    os.close(write)
    sys.stdout = os.fdopen(before, "w", encoding="utf-8")
    return read
