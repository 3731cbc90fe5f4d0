"""What flags of the server's do to a real one: the log of prompts, pings, threads, a port that is shared."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.errors import ConfigError
from paceline.server.listener import Server, listen, listen_everywhere, url
from paceline.server.origin import only_this_machine
from paceline.server.params import ServerParams
from paceline.server.service import Service
from paceline.server.sse import EventStream
from tests.server.live import Live, live, settings


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "prompts"


@pytest.fixture(scope="module")
def server(target: str, prompts: Path) -> Iterator[Live]:
    params = ServerParams(
        port=0,
        shutdown_timeout=1,
        log_prompts_dir=str(prompts),
        threads_http=1,
        ui_config='{"theme": "dark"}',
    )
    with live(settings(target, spec_types=()), params) as server:
        yield server


def test_prompts_are_kept_as_the_model_reads_them(server: Live, prompts: Path) -> None:
    server.post("/completion", prompt=["<|start|>the cat", "a dog"], n_predict=1)
    until = time.monotonic() + 60
    while (kept := texts(prompts)) != {"<|start|>the cat", "a dog"} and time.monotonic() < until:
        time.sleep(0.01)  # a file is there before it is filled
    assert kept == {"<|start|>the cat", "a dog"}


def texts(folder: Path) -> set[str]:
    return {file.read_text() for file in folder.iterdir()}


def test_a_folder_for_prompts_that_cannot_be_made_is_told_of(target: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigError, match="cannot keep prompts in"),
        live(settings(target), ServerParams(port=0, log_prompts_dir=str(tmp_path / "file" / "under")), load=False),
    ):
        pass


def test_a_page_finds_its_settings(server: Live, tmp_path: Path) -> None:
    assert server.http.get("/props").json()["ui_settings"] == {"theme": "dark"}
    (tmp_path / "page.json").write_text('{"theme": "light"}')
    assert ServerParams(ui_config_file=str(tmp_path / "page.json")).ui_settings() == {"theme": "light"}
    for wrong in ("{", "[]"):
        with pytest.raises(ConfigError, match="page's settings"):
            ServerParams(ui_config=wrong)


def test_so_many_threads_work_beside_the_loop(server: Live) -> None:
    def ask(n: int) -> None:
        assert server.post("/tokenize", content=f"the {n}").status_code == 200
        assert server.post("/completion", prompt=f"the {n}", n_predict=1).status_code == 200

    askers = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("paceline-http")]
    assert names == ["paceline-http_0"]


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="this system cannot share ports")
def test_a_port_can_be_shared() -> None:
    with listen(ServerParams(port=0, reuse_port=True)) as first:
        port = first.getsockname()[1]
        first.listen()
        with listen(ServerParams(port=port, reuse_port=True)) as second:
            second.listen()
        with pytest.raises(ConfigError, match="cannot listen"):
            listen(ServerParams(port=port))


def test_it_listens_on_several_addresses(tmp_path: Path) -> None:
    file = tmp_path / "paceline.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(file))
    with listen(ServerParams(port=0)) as free, ExitStack() as stack:  # the port stays ours until it is listened on
        port = free.getsockname()[1]
        params = ServerParams(host=f"127.0.0.1, 127.0.0.2,{file}", port=port)
        sockets = stack.enter_context(listen_everywhere(params))
        running = Server(Service(settings("none.gguf"), params))
        thread = threading.Thread(target=running.run, kwargs={"sockets": sockets})
        thread.start()
        try:
            assert [url(params, sock) for sock in sockets] == [
                f"http://127.0.0.1:{port}",
                f"http://127.0.0.2:{port}",
                f"unix://{file}",
            ]
            until = time.monotonic() + 60
            while not running.started and time.monotonic() < until:
                time.sleep(0.005)
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(file)), timeout=60) as client:
                assert client.get("http://localhost/health").status_code == 503, "loading"
                assert client.get("http://evil.sock/health").status_code == 403
            for host in ("127.0.0.1", "127.0.0.2"):
                assert httpx.get(f"http://{host}:{port}/health", timeout=60).status_code == 503
        finally:
            running.should_exit = True
            thread.join()
    assert not file.exists()


def test_who_is_let_in_by_an_address() -> None:
    assert only_this_machine(("127.0.0.1", "::1", "/run/paceline.sock"))
    assert not only_this_machine(("127.0.0.1", "0.0.0.0"))
    assert ServerParams(host="127.0.0.1,[::1]").hosts == ("127.0.0.1", "::1")
    for host, port in ((",", 80), ("", 80), ("127.0.0.1,::1", 0)):
        with pytest.raises(ConfigError):
            ServerParams(host=host, port=port)


def sent(ping_s: float, *waits: float) -> list[bytes]:
    """What a client reads of a stream with these pauses."""

    async def events() -> AsyncGenerator[bytes, None]:
        for wait in waits:
            await asyncio.sleep(wait)
            yield b"line"

    async def read() -> list[bytes]:
        bodies: list[bytes] = []

        async def send(message: Any) -> None:
            bodies.append(message.get("body", b"head"))

        await EventStream(b"first", events(), lambda: None, ping_s)({}, asyncio.Event().wait, send)  # type: ignore[arg-type]
        return bodies

    return asyncio.run(read())


def test_silence_is_filled_with_comments() -> None:
    head, first, *pings, line, end = sent(0.05, 1.0)
    assert (head, first, line, end) == (b"head", b"first", b"line", b"")
    assert set(pings) == {b":\n\n"}
    assert 1 <= len(pings) <= 20
    assert sent(10.0, 0.01, 0.01) == [b"head", b"first", b"line", b"line", b""]
    assert sent(0.0, 0.1) == [b"head", b"first", b"line", b""]
