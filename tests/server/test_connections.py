"""Keys, queues, clients that leave or stall, and the end of the server."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from paceline.cli.flags import parse
from paceline.errors import ConfigError
from paceline.server.middleware import ApiKey
from paceline.server.params import ServerParams
from paceline.server.sse import EventStream
from paceline.server.stream import send
from tests.server.live import Live, live, settings

ENDLESS = {"prompt": "The cat", "n_predict": -1, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def roomy(target: str) -> Iterator[Live]:
    """One slot that takes a while to fill, and room for two to wait."""
    with live(settings(target, n_ctx=60_000, n_slots=1, n_queue=2)) as server:
        yield server


# -- leaving


@pytest.mark.model
@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/v1/chat/completions"])
def test_a_client_that_leaves_frees_its_slot_at_once(roomy: Live, path: str) -> None:
    body = {**ENDLESS, "messages": [{"role": "user", "content": "Hi"}]}
    with roomy.http.stream("POST", path, json=body) as response:
        lines = response.iter_lines()
        assert next(lines)
        assert roomy.at_work()
    assert roomy.idle()
    assert not roomy.service.running


@pytest.mark.model
def test_a_client_that_leaves_before_the_answer_frees_its_slot(roomy: Live) -> None:
    with pytest.raises(httpx.ReadTimeout):
        roomy.http.post("/completion", json={**ENDLESS, "stream": False}, timeout=0.3)
    assert roomy.idle()


@pytest.mark.model
def test_a_client_that_leaves_the_queue_is_forgotten(roomy: Live) -> None:
    with roomy.http.stream("POST", "/completion", json=ENDLESS) as response:
        lines = response.iter_lines()
        next(lines)
        for stream in (True, False):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{roomy.url}/completion", json={**ENDLESS, "stream": stream}, timeout=0.3)
        until = time.monotonic() + 30
        while len(roomy.service.running) > 1 and time.monotonic() < until:
            time.sleep(0.02)
        assert len(roomy.service.running) == 1
    assert roomy.idle()


@pytest.mark.model
def test_past_the_queue_clients_are_told_to_come_back(roomy: Live) -> None:
    streams = []
    for n in (1, 2, 3):
        streams.append(socket_post(roomy, "/completion"))
        until = time.monotonic() + 30
        while roomy.at_work() < n and time.monotonic() < until:
            time.sleep(0.02)
    try:
        reply = roomy.post("/completion", prompt="x")
        assert reply.status_code == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert "waiting already" in reply.json()["error"]["message"]
        assert roomy.http.get("/slots?fail_on_no_slot=1").status_code == 503
        assert roomy.http.get("/health").status_code == 200
    finally:
        for stream in streams:
            stream.close()
    assert roomy.idle()
    assert roomy.post("/completion", prompt="x", n_predict=1).status_code == 200


def socket_post(server: Live, path: str, n_receive: int = 0, **more: Any) -> socket.socket:
    """A client that says what it wants and never reads."""
    import json

    sock = socket.socket()
    if n_receive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, n_receive)
    host, port = server.url.removeprefix("http://").split(":")
    sock.connect((host, int(port)))
    body = json.dumps({**ENDLESS, **more}).encode()
    sock.sendall(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    return sock


@pytest.mark.model
def test_a_client_that_stops_reading_does_not_slow_the_others(target: str) -> None:
    with live(settings(target, n_ctx=60_000, n_slots=2)) as server:
        stalled = socket_post(server, "/completion", 4096, n_probs=50, timings_per_token=True)
        for _ in range(3):
            assert server.post("/completion", prompt="Hi", n_predict=20).status_code == 200
        stalled.close()
        assert server.idle()


def test_a_stalled_stream_is_cut_off() -> None:
    closed: list[str] = []
    sent: list[bytes] = []

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"more"
        finally:
            closed.append("events")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message.get("body", b"start"))
        if len(sent) == 4:
            await asyncio.Event().wait()

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def serve() -> None:
        stream = EventStream(b"first", endless(), lambda: closed.append("request"), stall_s=0.05)
        await asyncio.wait_for(stream({"type": "http"}, receive, send), 60)

    asyncio.run(serve())
    assert sent == [b"start", b"first", b"more", b"more"]
    assert closed == ["events", "request"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_is_gone_before_anything_ran_leaves_nothing_behind(stream: bool) -> None:
    closed: list[bool] = []
    wanted = SimpleNamespace(stream=stream, t_max_predict_ms=0, n_indent=0)
    generation = SimpleNamespace(notify=lambda ready: None)
    service = SimpleNamespace(params=ServerParams())
    choice: Any = SimpleNamespace(
        wanted=wanted, generation=generation, service=service, close=lambda: closed.append(True)
    )
    reply: Any = SimpleNamespace(choices=[choice])

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def serve() -> int:
        response = await send(Request({"type": "http"}, receive), reply)
        return response.status_code

    assert asyncio.run(serve()) == 499
    assert closed == [True]


# -- keys


@pytest.mark.model
def test_keys(target: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("from-file\n\n  second \n")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("<p>page")
    (tmp_path / "secret.txt").write_text("no")
    params = ServerParams(
        port=0, api_keys=("sekrit",), api_key_file=str(tmp_path / "keys"), static_path=str(tmp_path / "web")
    )
    with live(settings(target), params) as server:
        for path in ("/health", "/v1/health", "/", "/index.html"):
            assert server.http.get(path).status_code == 200, path
        for path in ("/v1/models", "/props", "/slots", "/metrics", "/openapi.json", "/paceline/stats", "/nothing"):
            assert server.http.get(path).status_code == 401, path
        for path in ("/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/%00"):
            assert server.http.get(path).status_code == 401, path
        reply = server.post("/v1/chat/completions", messages=[])
        assert reply.status_code == 401
        assert reply.json()["error"]["type"] == "authentication_error"
        for key, status in (("sekrit", 200), ("from-file", 200), ("second", 200), ("sekri", 401), ("x", 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert server.http.get("/v1/models", headers=headers).status_code == status, key
        assert server.http.get("/v1/models", headers={"x-api-key": "sekrit"}).status_code == 200
        assert server.http.get("/v1/models", headers={"authorization": "Basic sekrit"}).status_code == 401


@pytest.mark.parametrize("words", [("--api-key", ""), ("--api-key", " , "), ("--api-key-file", "FILE"), ()])
def test_an_empty_key_does_not_open_the_server(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n  \n")
    given = [str(tmp_path / "keys") if word == "FILE" else word for word in words]
    variables = {} if given else {"LLAMA_API_KEY": ""}
    with pytest.raises(ConfigError, match="leave the flag out"):
        ServerParams(**parse(given, "serve", variables).under("server")).keys()


def test_every_key_is_compared_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append(b)
        return a == b

    monkeypatch.setattr("paceline.server.middleware.hmac.compare_digest", compare)
    guard = ApiKey(lambda *_: asyncio.sleep(0), ["one", "two", "three"], lambda path: False)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"authorization", b"Bearer one")]}
    assert guard._may_pass(scope)
    assert len(compared) == 3
    assert {len(digest) for digest in compared} == {32}


@pytest.mark.model
def test_slots_show_a_request_to_its_owner(target: str) -> None:
    params = ServerParams(port=0, shutdown_timeout=1, api_keys=("mine", "theirs"))
    body = {**ENDLESS, "stop": ["a secret word"], "n_predict": 50_000}
    with live(settings(target, n_ctx=60_000, n_slots=1), params) as server:

        def slot(key: str) -> dict[str, Any]:
            headers = {"authorization": f"Bearer {key}"}
            found: dict[str, Any] = server.http.get("/slots", headers=headers).json()[0]
            return found

        headers = {"authorization": "Bearer mine"}
        with server.http.stream("POST", "/completion", json=body, headers=headers) as response:
            lines = response.iter_lines()
            next(lines)
            assert slot("mine")["params"]["stop"] == ["a secret word"]
            assert slot("theirs")["is_processing"]
            assert "params" not in slot("theirs")
            assert slot("theirs")["next_token"][0]["n_remain"] == -1


# -- names


def status_of(server: Live, method: str = "GET", path: str = "/v1/models", **headers: str) -> int:
    content = b'{"content": "x"}' if method == "POST" else None
    return server.http.request(method, path, headers=headers, content=content).status_code


@pytest.mark.model
def test_pages_from_elsewhere_cannot_use_a_server_without_a_key(target: str) -> None:
    params = ServerParams(port=0, shutdown_timeout=1, allow_hosts=("box.lan",))
    with live(settings(target), params) as server:
        for host in ("127.0.0.1", "127.0.0.1:8080", "localhost:1", "LOCALHOST", "[::1]:80", "127.0.0.2", "box.lan:9"):
            assert status_of(server, host=host) == 200, host
        for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1"):
            assert status_of(server, host=host) == 403, host
            assert status_of(server, path="/health", host=host) == 403, host
        for origin in (server.url, "http://localhost:3000", "http://[::1]:5", "https://box.lan"):
            assert status_of(server, "POST", "/tokenize", origin=origin) == 200, origin
        for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example", "http://[", ""):
            assert status_of(server, "POST", "/tokenize", origin=origin) == 403, origin
            preflight = server.http.options("/tokenize", headers={"origin": origin})
            assert "access-control-allow-origin" not in preflight.headers, origin
        assert status_of(server, "POST", "/tokenize") == 200
        assert server.http.get("/", headers={"host": "localhost:8080"}).status_code == 200
        assert "--allow-host evil.example" in server.http.get("/props", headers={"host": "evil.example"}).text


@pytest.mark.model
def test_with_a_key_or_for_other_machines_any_name_will_do(target: str) -> None:
    with live(settings(target), ServerParams(port=0, shutdown_timeout=1, api_keys=("k",))) as server:
        headers = {"authorization": "Bearer k", "host": "model.example", "origin": "https://page.example"}
        reply = server.http.get("/v1/models", headers=headers)
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == "https://page.example"
    with live(settings(target), ServerParams(port=0, shutdown_timeout=1, host="0.0.0.0")) as server:
        assert status_of(server, host="model.example") == 200


# -- the end


@pytest.mark.model
def test_answers_are_finished_at_shutdown_and_nobody_new_is_let_in(target: str) -> None:
    replies: list[httpx.Response] = []
    with live(settings(target, n_ctx=8192), ServerParams(port=0, shutdown_timeout=30)) as server:
        body = {"prompt": "Hi", "n_predict": 300, "ignore_eos": True}
        work = threading.Thread(
            target=lambda: replies.append(httpx.post(f"{server.url}/completion", json=body, timeout=60))
        )
        work.start()
        until = time.monotonic() + 30
        while not server.service.running and time.monotonic() < until:
            time.sleep(0.005)
    work.join()
    assert replies[0].status_code == 200
    assert replies[0].json()["tokens_predicted"] == 300


@pytest.mark.model
def test_past_the_grace_answers_end_with_an_error(target: str) -> None:
    with live(settings(target, n_ctx=60_000, n_slots=1), ServerParams(port=0, shutdown_timeout=0)) as server:
        stream = httpx.Client(timeout=60).stream("POST", f"{server.url}/completion", json=ENDLESS)
        response = stream.__enter__()
        lines = response.iter_lines()
        next(lines)
        rest: list[str] = []
        reader = threading.Thread(target=lambda: rest.extend(line for line in lines if line))
        reader.start()
    reader.join(60)
    stream.__exit__(None, None, None)
    assert "shutting down" in rest[-1]


@pytest.mark.model
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_starts_serves_and_ends_cleanly(target: str, number: signal.Signals) -> None:
    words = [sys.executable, "-m", "paceline", "serve", "-m", target, "--port", "0", "-c", "512", "-a", "mine"]
    environment = {**os.environ, "NO_COLOR": "1"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process, killed(process):
        assert process.stderr
        said = [process.stderr.readline()]
        while "ready at http://127.0.0.1:" not in said[-1]:
            said.append(process.stderr.readline())
            assert said[-1], said
        assert "/health answers while mine loads" in said[0]
        assert any("loaded model 'target.gguf'" in line for line in said)
        assert any("drafters: grammar, suffix" in line for line in said)
        address = said[-1].split("ready at ")[1].split()[0]
        assert httpx.get(f"{address}/v1/models", timeout=60).json()["data"][0]["id"] == "mine"
        body = {"prompt": "on and on", "n_predict": 4}
        assert httpx.post(f"{address}/completion", json=body, timeout=60).json()["timings"]["predicted_n"] == 4
        process.send_signal(number)
        assert process.wait(60) == 0
        rest = process.stderr.read().splitlines()
        assert "prompt eval time =" in rest[0]
        assert all("print_timing" in line for line in rest)


@contextmanager
def killed(process: subprocess.Popen[str]) -> Iterator[None]:
    """A test that fails does not wait for a server that runs on."""
    try:
        yield
    finally:
        process.kill()


def test_a_broken_start_is_one_line() -> None:
    def failure(*words: str) -> str:
        command = [sys.executable, "-m", "paceline", "serve", *words]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert result.returncode == 2
        return result.stderr.splitlines()[-1]

    assert "model file not found" in failure("-m", "/no/such.gguf", "--port", "0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "cannot listen on" in failure("-m", "/no/such.gguf", "--port", str(taken.getsockname()[1]))
    assert "--ssl-key-file" in failure("-m", "x.gguf", "--ssl-cert-file", "a")


@pytest.mark.model
def test_nothing_is_kept_of_connections_that_were_reset(tiny: Live) -> None:
    """An answer is complete, its reader gone without reading it: 6 kB each, for as long as a client may be idle."""
    address = httpx.URL(tiny.url)
    for _ in range(20):
        with socket.create_connection((address.host, address.port or 0), timeout=60) as sock:
            sock.sendall(b"POST /completion HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: 50\r\n\r\n{")
            time.sleep(0.05)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until = time.monotonic() + 30
    while (n_kept := n_cycles()) >= 10 and time.monotonic() < until:  # the server has to hear of the resets first
        time.sleep(0.1)
    assert n_kept < 10


def n_cycles() -> int:
    gc.collect()
    return sum(type(each).__name__ == "RequestResponseCycle" for each in gc.get_objects())
