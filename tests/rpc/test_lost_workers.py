"""A worker that dies while four clients are being written for: they go on when it is back, and the server stays."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from benchmarks.server import Server, serving
from benchmarks.workers import Worker, free_port, lending, start

pytestmark = pytest.mark.model

FLAGS = ["--exact", "-t", "1", "--spec-type", "none"]
N = 300


def ask(server: Server, i: int, n: int = N) -> dict[str, Any]:
    body = {"prompt": f"{i}: on and on", "n_predict": n, "temperature": 0, "ignore_eos": True}
    return dict(httpx.post(f"{server.url}/completion", json=body, timeout=300).json())


def health(server: Server) -> httpx.Response:
    return httpx.get(f"{server.url}/health", timeout=60)


def until(server: Server, status: int) -> httpx.Response:
    end = time.monotonic() + 120
    while (reply := health(server)).status_code != status:
        assert time.monotonic() < end, reply.text
        time.sleep(0.05)
    return reply


def busy(server: Server) -> None:
    end = time.monotonic() + 60
    while sum(slot["busy"] for slot in server.get("/paceline/stats")["slots"]) < 4:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_answers_go_on_when_the_worker_is_back(deep: str) -> None:
    with lending(2, ["-t", "1", "--exact"]) as workers:
        addresses = ",".join(worker.endpoint for worker in workers)
        with serving(deep, 4, 4 * 1024, ["--rpc", addresses, *FLAGS]) as server, ThreadPoolExecutor(4) as clients:
            expected = [ask(server, i)["content"] for i in range(4)]
            answers = [clients.submit(ask, server, i) for i in range(4)]
            busy(server)
            workers[1].kill()
            reply = until(server, 503)
            assert reply.json()["error"]["status"] == "restarting"
            replace(workers, 1)
            assert [answer.result()["content"] for answer in answers] == expected
            assert until(server, 200).json()["restarts"] >= 1
            assert server.alive


def replace(workers: list[Worker], i: int) -> None:
    workers[i] = start(["-t", "1", "--exact"], port=workers[i].port)


def test_a_server_whose_worker_is_away_does_not_start(deep: str) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(Exception, match="cannot be reached"), serving(deep, 1, 512, ["--rpc", nobody]):
        pass
