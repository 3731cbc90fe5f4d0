"""`paceline worker` and `--rpc` as far as they need no RPC in libllama: names, checks, the line without it."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

import pytest

from paceline.cli import build
from paceline.cli.flags import parse
from paceline.cli.main import main
from paceline.cli.options import WorkerOptions
from paceline.cli.worker import free_address
from paceline.errors import ConfigError
from paceline.llama import rpc

without_rpc = pytest.mark.skipif(rpc.available(), reason="this libllama has RPC")
BUILD = "CMAKE_ARGS=-DGGML_RPC=on pip install"


def options(line: str) -> WorkerOptions:
    return WorkerOptions(**parse(shlex.split(line), "worker").under("worker"))


def test_flags_are_rpc_servers() -> None:
    wanted = WorkerOptions(host="10.0.0.1", port=1234, devices=("CUDA0", "CPU"), n_threads=3, cache="")
    assert options("-H 10.0.0.1 -p 1234 -d CUDA0,CPU -t 3 -c") == wanted
    assert options("--host 10.0.0.1 --port 1234 --device CUDA0,CPU --threads 3 --cache") == wanted
    assert options("-c weights").cache == "weights"
    assert options("").host == "127.0.0.1"


@pytest.mark.parametrize("line", ["-p 0", "-p 70000", "-t -1", "-t 1000"])
def test_numbers_that_cannot_be_meant(line: str) -> None:
    with pytest.raises(ConfigError):
        options(line)


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use"):
            free_address(WorkerOptions(port=port))


def test_names_become_addresses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert free_address(WorkerOptions(host="localhost", port=port)) == ("127.0.0.1", port)


def test_target_and_draft_have_workers_of_their_own(tmp_path: Path) -> None:
    line = f"-m {tmp_path}/a.gguf -md {tmp_path}/b.gguf --rpc one:1,two:2 --rpc-draft three:3"
    settings = build.settings(parse(shlex.split(line), "serve"))
    assert settings.model.rpc == ("one:1", "two:2")
    assert settings.draft is not None
    assert settings.draft.rpc == ("three:3",)
    assert settings.workers == ("one:1", "two:2", "three:3")
    inner = parse(shlex.split(f"-m {tmp_path}/a.gguf -md {tmp_path}/b.gguf --draft-params '--rpc four:4'"), "serve")
    assert build.settings(inner).workers == ("four:4",)
    assert build.settings(parse(["-m", "a"], "serve", {"LLAMA_ARG_RPC": "five:5"})).workers == ("five:5",)


@pytest.mark.parametrize("value", ["", "host", "host:99999", "one:1,two", "[::1]:50052"])
def test_a_wrong_address_is_one_line(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-p", "hi", f"--rpc={value}"]) == 2
    assert capsys.readouterr().err.startswith("paceline: error: --rpc: ")


@without_rpc
@pytest.mark.parametrize(
    "line", ["worker --port 50999", "run --list-devices --rpc 127.0.0.1:1", "run -p hi --rpc 127.0.0.1:1"]
)
def test_without_rpc_the_way_to_it_is_one_line(line: str, capsys: pytest.CaptureFixture[str], target: str) -> None:
    words = line.split()
    assert main([*words, "-m", target] if "-p" in words else words) == 2
    said = capsys.readouterr().err
    assert said.startswith("paceline: error: this build of libllama has no RPC; build it with: ")
    assert BUILD in said
    assert said.count("\n") == 1


def test_a_configuration_meant_for_servers_does_not_open_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "paceline.toml").write_text('host = "0.0.0.0"\nport = 8080\n')
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(rpc, "available", lambda: True)
        assert main(["worker", "-p", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in capsys.readouterr().err
