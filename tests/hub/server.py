"""A small hub on loopback: what huggingface_hub asks of the real one, and the troubles a network can make.

Two names of the same machine, as there are two hosts in real life: the hub says where a file is, a "CDN" has its bytes.

    with HubServer() as hub:
        hub.add("user/model-GGUF", {"model-Q8_0.gguf": path})
        environ = {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder)}
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, unquote, urlsplit

API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?")
RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
BLOB = re.compile(r"/blobs/([0-9a-f]+)")
RANGE = re.compile(r"bytes=([0-9]+)-")
CHUNK = 16384
SETTLE_S = 60.0


@dataclass(slots=True)
class Repo:
    """Files by name. Who may read it: everybody, those with a token (`private`), those with access too (`gated`)."""

    files: dict[str, bytes]
    private: bool = False
    gated: bool = False

    @property
    def commit(self) -> str:
        about = json.dumps({name: digest(data) for name, data in self.files.items()}, sort_keys=True)
        return hashlib.sha1(about.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came, and how many bytes of a file went out for it."""

    method: str
    path: str
    range: str | None
    token: str | None
    n_sent: int


@dataclass(slots=True)
class Trouble:
    """What goes wrong with files: the connection ends after so many bytes, so many times, and then nobody answers any
    more (`gone`); answers come late; a listing or an answer says another size; bytes are wrong; ranges are not known;
    every request gets this status."""

    cut_after: int | None = None
    n_cuts: int = 1
    gone: bool = False
    delay: float = 0.0
    pause: float = 0.0
    listed_size: int | None = None
    shorter_by: int = 0
    spoil: bool = False
    no_ranges: bool = False
    no_head: bool = False
    status: int | None = None


@dataclass(slots=True)
class State:
    repos: dict[str, Repo] = field(default_factory=dict)
    tokens: dict[str, bool] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    trouble: Trouble = field(default_factory=Trouble)
    cdn: str = ""
    n_answering: int = 0
    change: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def answering(self) -> Iterator[None]:
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, n: int) -> None:
        with self.change:
            self.n_answering += n
            self.change.notify_all()

    def settle(self) -> None:
        """A client has the last byte before the thread that sent it has noted so."""
        with self.change:
            self.change.wait_for(lambda: not self.n_answering, timeout=SETTLE_S)


class HubServer:
    """Both servers, each with a thread for every connection. `tokens` are those it knows: True has access to all."""

    def __init__(self) -> None:
        self.state = State()
        self.servers = [server_of(Front, self.state), server_of(Cdn, self.state)]
        ports = [server.server_address[1] for server in self.servers]
        self.url, self.state.cdn = f"http://127.0.0.1:{ports[0]}", f"http://localhost:{ports[1]}"
        self.threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in self.servers]

    def __enter__(self) -> HubServer:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server, thread in zip(self.servers, self.threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()

    def add(
        self, repo: str, files: Mapping[str, bytes | str | Path], *, private: bool = False, gated: bool = False
    ) -> None:
        data = {name: item if isinstance(item, bytes) else Path(item).read_bytes() for name, item in files.items()}
        self.state.repos[repo] = Repo(data, private, gated)

    @property
    def trouble(self) -> Trouble:
        return self.state.trouble

    @property
    def tokens(self) -> dict[str, bool]:
        return self.state.tokens

    def forget(self) -> None:
        """No troubles any more, and nothing seen."""
        self.state.settle()
        self.state.trouble = Trouble()
        self.state.seen.clear()

    def sent(self) -> list[int]:
        """Bytes of files, by request."""
        return [seen.n_sent for seen in self.seen if seen.method == "GET" and seen.path.startswith("/blobs/")]

    @property
    def seen(self) -> list[Seen]:
        self.state.settle()
        return self.state.seen


def server_of(handler: type[Answering], state: State) -> ThreadingHTTPServer:
    bound = type(handler.__name__, (handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
    server.daemon_threads = True
    return server


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Answering(BaseHTTPRequestHandler):
    """What both have in common."""

    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_HEAD(self) -> None:
        with self.state.answering():
            self.answer()

    def do_GET(self) -> None:
        with self.state.answering():
            self.answer()

    def answer(self) -> None:
        raise NotImplementedError

    def late(self) -> bool:
        """Waits as long as answers take; True when the request is done with."""
        time.sleep(self.state.trouble.delay)
        status = self.state.trouble.status
        if self.state.trouble.gone and self.state.trouble.n_cuts <= 0:
            self.close_connection = True
            return True
        if status is not None:
            self.refuse(status)
        return status is not None

    def note(self, n_sent: int = 0) -> None:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        self.state.seen.append(Seen(self.command, self.path, self.headers.get("Range"), token, n_sent))

    def refuse(self, status: int, code: str = "", message: str = "") -> None:
        self.note()
        body = json.dumps({"error": message}).encode()
        self.head(status, {"X-Error-Code": code, "X-Error-Message": message, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()


class Front(Answering):
    """Listings, and where files are."""

    def answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if self.late():
            return
        if match := API.fullmatch(path):
            if repo := self.admitted(match[1], listing=True):
                self.listing(match[1], repo)
        elif match := RESOLVE.fullmatch(path):
            if repo := self.admitted(match[1]):
                self.resolve(repo, match[2], match[3])
        else:
            self.refuse(404, message="Sorry, we can't find the page you are looking for.")

    def admitted(self, name: str, *, listing: bool = False) -> Repo | None:
        """As the real one refuses: without a token, what is missing and what is private look the same."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        repo = self.state.repos.get(name)
        if token and token not in self.state.tokens:
            self.refuse(401, message="Invalid credentials in Authorization header")
        elif repo is None or (repo.private and not self.state.tokens.get(token)):
            self.refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        elif repo.gated and not listing and not self.state.tokens.get(token):
            self.refuse(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted.")
        else:
            return repo
        return None

    def listing(self, name: str, repo: Repo) -> None:
        siblings = []
        for file, data in sorted(repo.files.items()):
            size = len(data) if self.state.trouble.listed_size is None else self.state.trouble.listed_size
            entry = {"rfilename": file, "size": size, "blobId": hashlib.sha1(data).hexdigest()}
            if file.endswith(".gguf"):
                entry["lfs"] = {"sha256": digest(data), "size": size, "pointerSize": 135}
            siblings.append(entry)
        about = {"_id": "1", "id": name, "modelId": name, "sha": repo.commit, "private": repo.private, "tags": []}
        body = json.dumps({**about, "siblings": siblings, "downloads": 0, "likes": 0}).encode()
        self.note()
        self.head(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
        self.wfile.write(body)

    def resolve(self, repo: Repo, revision: str, file: str) -> None:
        if revision not in ("main", repo.commit):
            return self.refuse(404, "RevisionNotFound", "Invalid rev id")
        data = repo.files.get(file)
        if data is None:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        key = digest(data)
        self.note()
        headers = {
            "X-Repo-Commit": repo.commit,
            "X-Linked-Etag": f'"{key}"',
            "X-Linked-Size": str(len(data)),
            "ETag": f'"{key}"',
            "Accept-Ranges": "bytes",
            "Location": f"{self.state.cdn}/blobs/{quote(key)}",
            "Content-Length": "0",
        }
        return self.head(302, headers)


class Cdn(Answering):
    """The bytes, by their digest; also under /files/REPO/NAME for who has an address only."""

    def answer(self) -> None:
        if self.late():
            return
        data = self.found(unquote(urlsplit(self.path).path))
        if data is None:
            self.refuse(404, message="Not found")
        elif self.command == "HEAD" and self.state.trouble.no_head:
            self.refuse(405)
        else:
            self.send_bytes(data)

    def found(self, path: str) -> bytes | None:
        match = BLOB.fullmatch(path)
        for name, repo in self.state.repos.items():
            for file, data in repo.files.items():
                if (match and digest(data) == match[1]) or path == f"/files/{name}/{file}":
                    return data
        return None

    def send_bytes(self, data: bytes) -> None:
        trouble = self.state.trouble
        key, size = digest(data), len(data)
        asked = None if trouble.no_ranges else RANGE.fullmatch(self.headers.get("Range") or "")
        start = int(asked[1]) if asked else 0
        if start >= size:
            return self.refuse(416)
        data = data[start : size - trouble.shorter_by]
        data = bytes(reversed(data)) if trouble.spoil and start else spoilt(data) if trouble.spoil else data
        headers = {"ETag": f'"{key}"', "Content-Length": str(len(data)), "Accept-Ranges": "bytes"}
        if asked:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        self.head(206 if asked else 200, headers)
        return self.body(data) if self.command == "GET" else self.note()

    def body(self, data: bytes) -> None:
        """A cut ends the connection in the middle of what was promised."""
        trouble, n_sent = self.state.trouble, 0
        cut = trouble.cut_after if trouble.n_cuts > 0 else None
        end = len(data) if cut is None else min(cut, len(data))
        try:
            for at in range(0, end, CHUNK):
                n_sent += self.wfile.write(data[at : min(at + CHUNK, end)])
                self.wfile.flush()
                time.sleep(trouble.pause)
        except OSError:
            self.close_connection = True
        if end < len(data):
            trouble.n_cuts -= 1
            self.close_connection = True
        self.note(n_sent)


def spoilt(data: bytes) -> bytes:
    """Still begins like a model."""
    return data[:64] + bytes(reversed(data[64:]))
