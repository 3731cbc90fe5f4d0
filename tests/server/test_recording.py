"""`--record`: a line for every text, readable by its owner alone, bounded, and never in anybody's way."""

from __future__ import annotations

import json
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline.server.params import MIB, ServerParams
from paceline.server.recording import RequestLog
from tests.server.live import Live, live, settings

pytestmark = pytest.mark.model


class Spelled:
    """Each token is a letter."""

    def render(self, token: int, *, special: bool) -> bytes:
        return bytes([token])


def recorded(target: str, path: str | Path) -> Any:
    return live(settings(target, spec_types=()), ServerParams(port=0, shutdown_timeout=1, record=str(path)))


def entries(path: Path, n: int) -> list[dict[str, Any]]:
    """Waits for so many lines: they are written beside the answers."""
    until = time.monotonic() + 30
    while path.read_bytes().count(b"\n") < n and time.monotonic() < until:
        time.sleep(0.02)
    return [json.loads(line) for line in path.read_text().splitlines()]


def complete(server: Live, prompt: str, **more: Any) -> str:
    reply = server.post("/completion", prompt=prompt, n_predict=6, seed=1, **more)
    assert reply.status_code == 200
    return str(reply.json()["content"]) if not more else ""


def test_every_text_is_a_line(target: str, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    with recorded(target, path) as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        answer = complete(server, "<|start|>the cat")
        complete(server, "a dog", stream=True)
        found = entries(path, 2)
        assert [entry["prompt"] for entry in found] == ["<|start|>the cat", "a dog"]
        assert found[0]["answer"].startswith(answer) and found[1]["answer"]
        assert {entry["model"] for entry in found} == {server.service.model_name}
        assert abs(found[0]["time"] - time.time()) < 600
    with recorded(target, path) as server:
        complete(server, "once more")
        assert [entry["prompt"] for entry in entries(path, 3)][-1] == "once more"


def test_a_full_disk_is_told_of_once_and_hurts_nobody(target: str, caplog: pytest.LogCaptureFixture) -> None:
    with recorded(target, "/dev/full") as server:
        for prompt in ("the", "cat", "sat"):
            complete(server, prompt)
    assert sum("no more requests are recorded" in record.message for record in caplog.records) == 1


def test_it_ends_at_its_bound_with_whole_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "requests.jsonl"
    record = RequestLog(str(path), 1, "tiny")

    def write() -> None:
        for _ in range(300):
            record.write([65] * 1000, [66] * 1000, Spelled())

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    record.close()
    lines = path.read_bytes().splitlines(keepends=True)
    assert MIB - 4096 < path.stat().st_size <= MIB
    assert all(json.loads(line)["answer"] == "B" * 1000 for line in lines)
    assert sum("--record-max" in entry.message for entry in caplog.records) == 1


def test_a_file_that_cannot_be_opened_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot record requests in"):
        RequestLog(str(tmp_path / "missing" / "requests.jsonl"), 1, "tiny")
    with pytest.raises(ConfigError, match="largest log of requests"):
        ServerParams(record_max=0)
