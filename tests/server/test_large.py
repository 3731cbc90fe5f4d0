"""Large requests: refused or served, and whoever else asks is answered meanwhile."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.server.live import Live

pytestmark = pytest.mark.model

CHAT, NATIVE = "/v1/chat/completions", "/completion"
N = 7 * 2**20
WORDS = "a word " * (N // 7)
KINDS: dict[str, tuple[str, bytes]] = {
    "text": (NATIVE, json.dumps({"prompt": WORDS}).encode()),
    "chat": (CHAT, json.dumps({"messages": [{"role": "user", "content": WORDS}]}).encode()),
    "texts": (NATIVE, b'{"prompt": [' + b'"a",' * (N // 4) + b'"a"]}'),
    "numbers": (NATIVE, b'{"prompt": [' + b"1," * (N // 2) + b"1]}"),
    "as many numbers as are read": (NATIVE, b'{"prompt": [' + b"1," * 2**19 + b"1]}"),
    "wrong numbers": (NATIVE, b'{"prompt": [' + b"1.5," * 2**19 + b"1]}"),
    "messages": (CHAT, b'{"messages": [' + b'{"a":1},' * 2**19 + b"1]}"),
    "tokenize": ("/tokenize", json.dumps({"content": WORDS}).encode()),
    "broken": (NATIVE, b'{"prompt": "' + b"x" * N),
}


def status_of(server: Live, path: str, body: bytes) -> int:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        sock.sendall(head.encode() + body)
        return int(sock.recv(65536).split()[1])


def slowest_health(server: Live, work: Sequence[threading.Thread]) -> float:
    """Seconds the slowest answer took while the work was going on; of the computer's time where that is less, since
    other programs may keep us waiting too."""
    slowest = 0.0
    for thread in work:
        thread.start()
    with httpx.Client(base_url=server.url, timeout=60) as http:
        while any(thread.is_alive() for thread in work):
            start, start_cpu = time.monotonic(), time.process_time()
            assert http.get("/health").status_code == 200
            slowest = max(slowest, min(time.monotonic() - start, time.process_time() - start_cpu))
            time.sleep(0.02)
    return slowest


@pytest.mark.parametrize("kind", KINDS)
def test_health_answers_beside_large_requests(tiny: Live, kind: str) -> None:
    path, body = KINDS[kind]
    statuses: list[int] = []
    work = [threading.Thread(target=lambda: statuses.append(status_of(tiny, path, body))) for _ in range(4)]
    assert slowest_health(tiny, work) < 1
    assert statuses == [400] * 4


def test_a_text_that_cannot_fit_is_not_read(tiny: Live) -> None:
    for path, body in (KINDS["text"], KINDS["chat"], KINDS["tokenize"]):
        error = tiny.http.post(path, content=body).json()["error"]
        assert error["type"] == "exceed_context_size_error"
        assert "1048576 can be sent" in error["message"]


def test_bodies_that_are_too_much_together_wait_outside(tiny: Live) -> None:
    """Bytes that were sent count until the request is answered, also when the rest never comes."""
    host, port = tiny.url.removeprefix("http://").split(":")
    part = b'{"prompt": "' + b"x" * (8 * 2**20 - 100)
    socks = []
    try:
        statuses: list[bytes] = []
        for _ in range(34):
            sock = socket.create_connection((host, int(port)), timeout=60)
            socks.append(sock)
            head = f"POST {NATIVE} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(part) + 50}\r\n\r\n"
            try:
                sock.sendall(head.encode() + part)
            except ConnectionError:
                continue
        until = time.monotonic() + 60
        while b"503" not in statuses and time.monotonic() < until:
            for sock in select.select(socks, [], [], 1)[0]:
                socks.remove(sock)
                with sock, suppress(ConnectionError):
                    statuses += sock.recv(65536).split()[1:2]
        assert b"503" in statuses
    finally:
        for sock in socks:
            sock.close()
    until = time.monotonic() + 60
    while tiny.post(NATIVE, prompt="x" * 1000, n_predict=1).status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (NATIVE, {"prompt": "Hi", "n_probs": 20}),
        (CHAT, {"messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "top_logprobs": 20}),
        ("/v1/completions", {"prompt": "Hi", "logprobs": 20}),
    ],
)
def test_probabilities_that_would_not_fit_a_reply(
    tiny: Live, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    monkeypatch.setattr("paceline.server.stream.MAX_ENTRIES", 21 * 30)
    asked = {**body, "ignore_eos": True}
    assert tiny.post(path, **asked, max_tokens=20).status_code == 200
    reply = tiny.post(path, **asked, max_tokens=60)
    assert reply.status_code == 400
    assert "more than 630 probabilities" in reply.json()["error"]["message"]
    assert tiny.idle()
    assert tiny.post(path, **asked, max_tokens=60, stream=True).status_code == 200


def test_so_many_probabilities_and_no_more(tiny: Live) -> None:
    assert tiny.post(NATIVE, prompt="Hi", n_predict=2, n_probs=100).status_code == 200
    reply = tiny.post(NATIVE, prompt="Hi", n_predict=2, n_probs=101)
    assert reply.status_code == 400
    assert "less than or equal to 100" in reply.json()["error"]["message"]
