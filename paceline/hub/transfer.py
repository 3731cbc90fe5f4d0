"""One file over HTTP, whole or not at all. Knows bytes: what came stays beside the file until all of it is there, so
that the next try, or the next run, goes on from there. Nothing that came is believed before it was checked."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from filelock import FileLock, Timeout
from huggingface_hub import constants
from huggingface_hub.utils import hf_raise_for_status, http_stream_backoff

from paceline.errors import HubError
from paceline.files import sync_folder

log = logging.getLogger("paceline")

MAGIC = b"GGUF"
CHUNK = 2**20
TRIES = 5  # without a single byte between them
PAUSE = 1.0  # seconds
BUSY = (408, 429, 500, 502, 503, 504)
OUT_OF_RANGE = 416
WAIT = 0.2  # seconds before we say that another process is at it

Advance = Callable[[int], None]
Display = Callable[[str, int | None], AbstractContextManager[Advance]]
"""Shows a file's way: given its name and size, it gives what to call with the number of bytes there are."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A file elsewhere. `key` stands for this very content: without one, what came of it before is not gone on with."""

    name: str
    url: str
    size: int | None = None
    key: str | None = None
    sha256: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def transfer(remote: Remote, path: Path, lock: Path, display: Display, *, anew: bool = False) -> None:
    """The file at `path`, unless another process has put it there meanwhile; `anew`: in place of the one that is."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(lock, remote.name):
            if anew or not path.exists():
                download(remote, path, display)
    except OSError as error:
        if isinstance(error, httpx.HTTPError):
            raise
        raise disk_error(error, remote.name, path.parent) from error


@contextmanager
def alone(lock: Path, name: str) -> Iterator[None]:
    """Two that write one file would spoil it."""
    guard = FileLock(lock)
    try:
        guard.acquire(timeout=WAIT)
    except Timeout:
        log.info("another process fetches %s; waiting for it", name)
        guard.acquire()
    try:
        yield
    finally:
        guard.release()


def download(remote: Remote, path: Path, display: Display) -> None:
    beside = path.with_name(f"{remote.key or path.name}.incomplete")
    with Arrival(beside, remote) as arrival:
        check_room(path.parent, (remote.size or 0) - arrival.n_bytes, remote.name)
        with display(remote.name, remote.size) as advance:
            advance(arrival.n_bytes)
            try:
                pull(remote, arrival, advance)
            except KeyboardInterrupt:
                log.warning("interrupted; what came of %s stays, and the same command goes on from there", remote.name)
                raise
        arrival.check()
        os.fsync(arrival.file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


class Arrival:
    """What has come of a file so far. Unbuffered: it is there whatever ends us."""

    def __init__(self, path: Path, remote: Remote) -> None:
        self.path, self.remote = path, remote
        self.file = path.open("ab+", buffering=0)
        self.digest = hashlib.sha256()
        self.n_bytes = 0
        if remote.key is None or path.stat().st_size > (remote.size or path.stat().st_size):
            self.restart()
        self.read_again()

    def __enter__(self) -> Arrival:
        return self

    def __exit__(self, *about: object) -> None:
        self.file.close()

    def read_again(self) -> None:
        """What came before counts in the digest too."""
        self.file.seek(0)
        while chunk := self.file.read(CHUNK):
            self.digest.update(chunk)
            self.n_bytes += len(chunk)

    def restart(self) -> None:
        self.file.truncate(0)
        self.digest, self.n_bytes = hashlib.sha256(), 0

    def write(self, chunk: bytes) -> None:
        """A page that says sorry is noticed at once, not after forty gigabytes."""
        if self.n_bytes == 0 and not MAGIC.startswith(chunk[: len(MAGIC)]):
            self.discard()
            raise HubError(f"what came for {self.remote.name} is not a GGUF file; it begins with {chunk[:16]!r}")
        view = memoryview(chunk)
        while view:
            n = self.file.write(view)
            self.digest.update(view[:n])
            self.n_bytes += n
            view = view[n:]

    def check(self) -> None:
        """Whole, and what it should be; otherwise it is thrown away."""
        expected, sha256 = self.remote.size, self.remote.sha256
        if expected is not None and self.n_bytes != expected:
            self.discard()
            raise HubError(f"{self.remote.name} came with {self.n_bytes} bytes instead of {expected}; try again")
        if sha256 is not None and self.digest.hexdigest() != sha256:
            self.discard()
            raise HubError(f"{self.remote.name} came damaged: its SHA-256 is not that of the hub; try again")

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)


def pull(remote: Remote, arrival: Arrival, advance: Advance) -> None:
    """Until all is there: after a lost connection it goes on, and gives up when nothing comes any more."""
    tries = TRIES
    while remote.size is None or arrival.n_bytes < remote.size:
        before = arrival.n_bytes
        try:
            stream(remote, arrival, advance)
            break
        except httpx.TransportError as error:
            tries = TRIES if arrival.n_bytes > before else tries - 1
            if not tries:
                raise
            log.warning("%s: connection lost after %s (%s); going on", remote.name, size(arrival.n_bytes), why(error))
            time.sleep(PAUSE)


def stream(remote: Remote, arrival: Arrival, advance: Advance) -> None:
    """One request, for what is missing. A server that knows no ranges sends all of it."""
    headers = {**remote.headers, "Accept-Encoding": "identity"}
    if arrival.n_bytes:
        headers["Range"] = f"bytes={arrival.n_bytes}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with http_stream_backoff(
        "GET",
        remote.url,
        headers=headers,
        timeout=timeout,
        retry_on_exceptions=(),
        retry_on_status_codes=BUSY,
        max_retries=3,
    ) as response:
        if response.status_code == OUT_OF_RANGE:
            arrival.restart()
            raise httpx.RemoteProtocolError("the server has less of it than was there")
        hf_raise_for_status(response)
        if arrival.n_bytes and not goes_on(response, arrival.n_bytes):
            arrival.restart()
        for chunk in response.iter_bytes():  # given a size, it would lose what it holds when the connection is lost
            arrival.write(chunk)
            advance(arrival.n_bytes)


def goes_on(response: httpx.Response, n_bytes: int) -> bool:
    return response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {n_bytes}-")


def check_room(folder: Path, n_bytes: int, name: str) -> None:
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if n_bytes > free:
        raise no_room(f"{name} needs {size(n_bytes)} more, and {folder} has {size(free)} free")


def disk_error(error: OSError, name: str, folder: Path) -> HubError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return no_room(f"the disk of {folder} is full, {name} does not fit")
    return HubError(f"cannot write {name} to {folder}: {error.strerror or error}")


def no_room(what: str) -> HubError:
    return HubError(f"{what}; make room, or name a folder on another disk with HF_HOME (PACELINE_CACHE for -mu)")


def size(n_bytes: int) -> str:
    """3.4 GB."""
    amount, units = float(n_bytes), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.3g} {units[0]}"


def why(error: Exception) -> str:
    return str(error) or type(error).__name__
