"""A server that only plays one: what the web page needs of paceline's HTTP, scripted by the test.

Also a stage to work on the page without a model: `python -m tests.server.web_stub 8080`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from pathlib import Path
from threading import Event, Thread
from typing import Any

WEB = Path(__file__).parents[2] / "paceline" / "server" / "web"
HOLD_S = 120.0
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css"}

Piece = tuple[str, str | None]
Step = Sequence[Piece]  # what one step of the engine emits: accepted draft tokens and one more


@dataclass
class Reply:
    steps: Sequence[Step]
    reasoning: Sequence[Step] = ()
    finish_reason: str = "stop"
    delay: float = 0.0
    error: str | None = None  # sent in the stream after the steps
    breaks_off: bool = False
    texts: Sequence[str] = ()  # the text of each step's chunk, where it is not that of its pieces
    holds: Mapping[int, Event] = field(default_factory=dict)  # before this event of the stream that is waited for


@dataclass
class Refusal:
    status: int
    message: str
    retry_after: int | None = None


def plain(*texts: str) -> list[Step]:
    return [[(text, None)] for text in texts]


ENDLESS = plain(*["word "] * 3000)  # with a delay of 0.02: somebody stops it long before its end


FIBONACCI: list[Step] = [
    [("Here", None)],
    [(" is", "suffix"), (" the", "suffix"), (" function", None)],
    [(" with", None)],
    [(" a", "draft-simple"), (" cache", "draft-simple"), (", so each", None)],
    [(" number", "draft-simple"), (" is computed once:\n\n", None)],
    [("```", "grammar"), ("python\n", "ngram-simple"), ("def", None)],
    [(" fibonacci(n", "ngram-simple"), (": int, cache", None)],
    [(": dict[int, int]) -> int:\n", "draft-simple"), ("    if n", None)],
    [(" in cache:\n        return cache[n]\n", "suffix"), ("    cache[n] =", None)],
    [(" fibonacci(n - 1, cache) + fibonacci(n - 2, cache)\n", "ngram-simple"), ("    return", None)],
    [(" cache[n]\n", "suffix"), ("```\n\n", "suffix"), ("Call", None)],
    [(" it", "draft-simple"), (" with", "draft-simple"), (" `{0: 0, 1: 1}`", None)],
    [(" as", "ngram-mod"), (" the", "ngram-mod"), (" first", None)],
    [(" cache", "suffix"), (".", "suffix")],
]
STATS: dict[str, Any] = {
    "model": "/models/SmolLM2-135M-Instruct.Q8_0.gguf",
    "speed": 71.25,
    "speedup": 1.428,
    "n_predicted": 5120,
    "slots": [
        {"id": 0, "busy": True, "n_tokens": 812, "n_ctx": 2048},
        {"id": 1, "busy": False, "n_tokens": 0, "n_ctx": 2048},
    ],
    "drafters": [
        {
            "name": "suffix",
            "n_calls": 1204,
            "n_drafts": 402,
            "n_tokens": 1610,
            "n_accepted": 1288,
            "acceptance_by_position": [0.93, 0.9, 0.84, 0.8, 0.71, 0.66, 0.52, 0.5],
        },
        {
            "name": "draft-simple",
            "n_calls": 802,
            "n_drafts": 640,
            "n_tokens": 1900,
            "n_accepted": 1083,
            "acceptance_by_position": [0.81, 0.6, 0.41, 0.3],
        },
        {
            "name": "ngram-simple",
            "n_calls": 162,
            "n_drafts": 12,
            "n_tokens": 96,
            "n_accepted": 60,
            "acceptance_by_position": [0.83, 0.8, 0.8, 0.75, 0.67, None, 0.5],
        },
    ],
}
PROPS: dict[str, Any] = {
    "default_generation_settings": {"params": {"temperature": 0.8, "top_k": 40, "min_p": 0.05, "max_tokens": -1}}
}


@dataclass
class Stage:
    """What the stub plays; tests change it and read what was asked."""

    reply: Reply = field(default_factory=lambda: Reply(FIBONACCI))
    stats: dict[str, Any] = field(default_factory=lambda: STATS)
    progress: float | None = None  # None: the model is loaded
    api_key: str | None = None
    refusal: Refusal | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    n_stats: int = 0
    cancelled: Event = field(default_factory=Event)


class WebStub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.stage = Stage()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: WebStub

    @property
    def stage(self) -> Stage:
        return self.server.stage

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        name = "index.html" if self.path == "/" else self.path.removeprefix("/")
        if self.path == "/health":
            self.send_health()
        elif self.path == "/paceline/stats":
            self.send_stats()
        elif self.path == "/props":
            self.send_json(200, PROPS)
        elif (WEB / name).is_file():
            self.send_body(200, (WEB / name).read_bytes(), TYPES[Path(name).suffix])
        else:
            self.send_error_body(Refusal(404, f"There is nothing at {self.path}"))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.stage.bodies.append(body)
        if not self.has_key():
            self.send_error_body(Refusal(401, "Invalid API key"))
        elif self.stage.refusal:
            self.send_error_body(self.stage.refusal)
        else:
            self.send_stream(self.stage.reply)

    def has_key(self) -> bool:
        return self.stage.api_key is None or self.headers["Authorization"] == f"Bearer {self.stage.api_key}"

    def send_health(self) -> None:
        if self.stage.progress is None:
            self.send_json(200, {"status": "ok"})
        else:
            self.send_json(503, {"status": "loading model", "progress": self.stage.progress})

    def send_stats(self) -> None:
        self.stage.n_stats += 1
        if self.has_key():
            self.send_json(200, self.stage.stats)
        else:
            self.send_error_body(Refusal(401, "Invalid API key"))

    def send_stream(self, reply: Reply) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        stage = self.stage  # the next test may have another by the time this one is cancelled
        try:
            for n, event in enumerate(events(reply)):
                if n in reply.holds:
                    reply.holds[n].wait(HOLD_S)
                self.wfile.write(f"data: {event}\n\n".encode())
                time.sleep(reply.delay)
        except OSError:
            stage.cancelled.set()

    def send_error_body(self, refusal: Refusal) -> None:
        headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
        error = {"code": refusal.status, "message": refusal.message, "type": "stub_error"}
        self.send_json(refusal.status, {"error": error}, headers)

    def send_json(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        self.send_body(status, json.dumps(body).encode(), "application/json", headers)

    def send_body(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def events(reply: Reply) -> Iterator[str]:
    chunks = Chunks()
    yield json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
    yield from chunks.of("reasoning_content", reply.reasoning)
    yield from chunks.of("content", reply.steps, reply.texts)
    if reply.breaks_off:
        return
    if reply.error is not None:
        yield json.dumps({"error": {"code": 500, "message": reply.error, "type": "server_error"}})
        return
    finish = {"index": 0, "delta": {}, "finish_reason": reply.finish_reason}
    yield json.dumps({"choices": [finish], "timings": chunks.timings()})
    yield "[DONE]"


class Chunks:
    """Counts as it goes, as the server's timings do."""

    def __init__(self) -> None:
        self.n_predicted = 0
        self.n_accepted = 0

    def of(self, name: str, steps: Iterable[Step], texts: Sequence[str] = ()) -> Iterator[str]:
        for step, text in zip_longest(steps, texts):
            self.n_predicted += len(step)
            self.n_accepted += sum(source is not None for _, source in step)
            delta = {name: "".join(text for text, _ in step) if text is None else text}
            pieces = [{"text": text, "source": source} for text, source in step]
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            yield json.dumps({"choices": [choice], "timings": self.timings(), "paceline": {"pieces": pieces}})

    def timings(self) -> dict[str, float]:
        return {
            "predicted_n": self.n_predicted,
            "predicted_per_second": 64.25,
            "draft_n": 2 * self.n_accepted,
            "draft_n_accepted": self.n_accepted,
        }


@contextmanager
def running_stub() -> Iterator[WebStub]:
    with WebStub() as stub:
        thread = Thread(target=stub.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield stub
        finally:
            stub.shutdown()
            thread.join()


if __name__ == "__main__":
    server = WebStub(int(sys.argv[1]))
    server.stage.reply.delay = 0.1
    print(server.url)
    server.serve_forever()
