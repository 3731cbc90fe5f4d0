"""The worker as a program: what it says, how it ends, what it keeps."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from benchmarks.workers import Worker, lending, start
from paceline import Engine
from paceline.cli.kept_weights import LIST, SETTLED
from paceline.config import ContextParams, ModelParams, Settings
from paceline.errors import ConfigError
from tests.tiny import write_model

pytestmark = pytest.mark.model


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(number: signal.Signals) -> None:
    worker = start(["-t", "1"])
    worker.signal(number)
    assert worker.process.wait(60) == 0
    assert any("lends CPU: " in line and "MiB free" in line for line in worker.said)


def test_what_cannot_be_is_one_line() -> None:
    with lending(1) as [worker]:
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {worker.port}: Address already in use"):
            start(port=worker.port)
        with pytest.raises(ConfigError, match="there is no device CUDA7 to serve; here there is CPU"):
            start(["-d", "CUDA7"])


def test_an_open_port_is_warned_of() -> None:
    worker = start(["-H", "0.0.0.0", "-t", "1"])
    try:
        assert any(" W listening on 0.0.0.0: whoever reaches this port" in line for line in worker.said)
    finally:
        worker.kill()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its matrices are large enough to be kept: ggml keeps from 10 MiB on."""
    return write_model(tmp_path_factory.mktemp("wide") / "wide.gguf", n_embd=1280, n_layer=1)


def said_with(model: str, worker: Worker) -> str:
    params = ModelParams(path=model, rpc=(worker.endpoint,))
    settings = Settings(model=params, context=ContextParams(n_ctx=256, n_threads=1))
    with Engine.from_settings(settings, process=True) as engine:
        return engine.generate("hello", max_tokens=8, temperature=0, ignore_eos=True).text()


def test_weights_are_kept_and_never_half(tmp_path: Path, wide: str) -> None:
    folder = tmp_path / "kept"
    flags = ["-t", "1", "-c", str(folder)]
    with lending(1, flags) as [worker]:
        expected = said_with(wide, worker)
        kept = settled(folder)
    assert kept
    largest = max(folder.iterdir(), key=lambda file: file.stat().st_size)
    before = {name: (folder / name).stat().st_mtime_ns for name in kept}
    with lending(1, flags) as [worker]:
        assert said_with(wide, worker) == expected
        assert {name: (folder / name).stat().st_mtime_ns for name in kept} == before, "nothing was sent again"
    content = largest.read_bytes()
    largest.write_bytes(content[: len(content) // 2])
    with lending(1, flags) as [worker]:
        assert any("1 files cut short are gone" in line for line in worker.said)
        assert said_with(wide, worker) == expected
        assert largest.read_bytes() == content


def settled(folder: Path) -> set[str]:
    """What counts as whole, once all that was written has been left alone for long enough."""
    until = time.monotonic() + 20 * SETTLED
    while time.monotonic() < until:
        names = {file.name for file in folder.iterdir()} - {LIST}
        if names and (folder / LIST).is_file() and names == set(json.loads((folder / LIST).read_text())):
            return names
        time.sleep(0.2)
    raise AssertionError("never settled")
