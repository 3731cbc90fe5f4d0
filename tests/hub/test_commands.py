"""The main ways through the hub, as a user goes them: real commands, a real server on loopback."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.heads.heads import write_eagle3
from tests.hub.commands import PACELINE, PATIENCE, command, environ_for, serving
from tests.hub.conftest import REPO
from tests.hub.server import HubServer
from tests.tiny import write_model

pytestmark = pytest.mark.model

RUN = ("run", "-p", "the cat", "-n", "4", "--temp", "0", "-t", "1", "-c", "256")
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def environ(server: HubServer, tmp_path: Path) -> dict[str, str]:
    return environ_for(server.url, tmp_path)


def test_the_first_run_fetches_the_second_needs_no_network(server: HubServer, environ: dict[str, str]) -> None:
    first = command((*RUN, "-hf", f"{REPO}:q8_0"), environ)
    assert first.returncode == 0, first.stderr
    assert first.stdout.strip()
    assert first.stderr.startswith("fetching tiny-Q8_0.gguf (471 kB)\ntiny-Q8_0.gguf: 471 kB of 471 kB, ")
    again = command((*RUN, "-hf", f"{REPO}:q8_0"), {**environ, "HF_ENDPOINT": NOWHERE})
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert again.stderr.startswith(f"paceline: warning: {REPO}: {NOWHERE} cannot be reached")
    assert again.stderr.count("\n") == 1
    n_seen = len(server.seen)
    for offline in ({"HF_HUB_OFFLINE": "1"}, {"LLAMA_ARG_OFFLINE": "1"}):
        silent = command((*RUN, "-hf", f"{REPO}:q8_0"), {**environ, **offline})
        assert (silent.returncode, silent.stdout, silent.stderr) == (0, first.stdout, "")
    assert len(server.seen) == n_seen


def test_a_server_with_a_draft_from_the_hub(
    server: HubServer, environ: dict[str, str], models: Path, tmp_path: Path
) -> None:
    server.add("user/draft-GGUF", {"draft-Q8_0.gguf": models / "draft.gguf"})
    words = ("-hf", REPO, "-hfd", "user/draft-GGUF", "-t", "1", "-c", "512", "-np", "1")
    with serving(words, environ, tmp_path) as it:
        body = {"prompt": "the cat", "n_predict": 4, "temperature": 0}
        assert httpx.post(f"{it.url}/completion", json=body, timeout=PATIENCE).json()["tokens_predicted"] == 4
        listed = httpx.get(f"{it.url}/v1/models", timeout=60).json()["data"][0]
        assert listed["id"] == REPO, "the hub's name is the model's"
        log = it.log
    assert "fetching tiny-Q4_K_M.gguf (475 kB)" in log
    assert "fetching draft-Q8_0.gguf" in log
    assert it.process.returncode == 0


def test_heads_come_along(server: HubServer, environ: dict[str, str], tmp_path: Path) -> None:
    """By the drafter's name from the model's own repository, or without a word from the draft's."""
    model = write_model(tmp_path / "m.gguf", seed=1, n_layer=4, scale=4.0)
    head = write_eagle3(tmp_path / "head.gguf")
    server.add("user/both-GGUF", {"both-Q8_0.gguf": model, "eagle3-both-Q8_0.gguf": head})
    for words in (("--spec-type", "draft-eagle3"), ("-hfd", "user/both-GGUF")):
        done = command((*RUN, "-hf", "user/both-GGUF", *words, "--json"), environ)
        assert done.returncode == 0, done.stderr
        names = [each["name"] for each in json.loads(done.stdout)["statistics"]]
        assert "draft-eagle3" in names


def test_the_bench_fetches_too(server: HubServer, environ: dict[str, str], tmp_path: Path) -> None:
    server.add("user/long-GGUF", {"long-Q8_0.gguf": write_model(tmp_path / "long.gguf", n_ctx=2048)})
    words = ("--methods", "none", "--categories", "translate", "--limit", "1", "-n", "2", "-t", "1")
    done = command(("bench", "-hf", "user/long-GGUF", *words), environ)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["model"] == "long-Q8_0.gguf"


def test_an_address_and_an_endpoint_of_llama_cpps_name(server: HubServer, environ: dict[str, str]) -> None:
    url = f"{server.state.cdn}/files/{REPO}/tiny-Q8_0.gguf"
    by_address = command((*RUN, "-mu", url), environ)
    assert by_address.returncode == 0, by_address.stderr
    elsewhere = {**environ, "HF_ENDPOINT": NOWHERE, "MODEL_ENDPOINT": f"{server.url}/"}
    by_name = command((*RUN, "-hf", REPO, "-hff", "tiny-Q8_0.gguf"), elsewhere)
    assert (by_name.returncode, by_name.stdout) == (0, by_address.stdout), by_name.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-hf", "user/none"), "there is no repository user/none at "),
        (("-hf", f"{REPO}:Q2_K"), f"{REPO} has no Q2_K; it has Q4_K_M, Q8_0, as in {REPO}:Q4_K_M"),
        (("-hf", REPO, "-hff", "x.gguf"), f"{REPO} has no file x.gguf; it has mmproj-tiny-Q8_0.gguf, tiny-Q4_K_M.gguf"),
        (("-hf", REPO, "-hft", "wrong"), f"{REPO}: the hub does not accept the token; check -hft and HF_TOKEN"),
        (("-hf", "nonsense"), "'nonsense' is not USER/MODEL, USER/MODEL:QUANT or USER/MODEL/FILE.gguf"),
        (("-hf", REPO, "--offline"), f"{REPO} is not in the cache "),
        (("-mu", f"{NOWHERE}/m.gguf"), f"{NOWHERE}/m.gguf: the server cannot be reached ("),
    ],
    ids=str,
)
def test_trouble_is_one_line(environ: dict[str, str], words: tuple[str, ...], said: str) -> None:
    done = command((*RUN, *words), environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"paceline: error: {said}")


def test_a_full_disk_is_one_line(environ: dict[str, str]) -> None:
    """A limit on the size of files is met while writing, as a full disk is."""
    limited = ["bash", "-c", 'ulimit -f 200; exec "$@"', "bash", *PACELINE, *RUN, "-hf", REPO]
    done = subprocess.run(
        limited, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("paceline: error: the disk of ")
    assert "is full, tiny-Q4_K_M.gguf does not fit; make room, or name a folder" in done.stderr


def test_ctrl_c_keeps_what_came_and_the_next_run_goes_on(
    server: HubServer, environ: dict[str, str], target: str, tmp_path: Path
) -> None:
    server.trouble.pause = 1.0  # between thirty pieces: it is not over before it is interrupted
    with subprocess.Popen(
        [*PACELINE, *RUN, "-hf", f"{REPO}:Q8_0"],
        env=environ,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        part = wait_for_some(tmp_path, process)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read() if process.stderr else ""
    assert process.returncode == 130
    assert "interrupted; what came of tiny-Q8_0.gguf stays, and the same command goes on from there" in said
    n_there = part.stat().st_size
    assert 0 < n_there < Path(target).stat().st_size
    server.forget()
    again = command((*RUN, "-hf", f"{REPO}:Q8_0"), environ)
    assert again.returncode == 0, again.stderr
    assert ", going on after " in again.stderr
    assert server.sent()[-1] == Path(target).stat().st_size - n_there  # the first one's end may be noticed late


def wait_for_some(folder: Path, process: subprocess.Popen[str]) -> Path:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        for path in folder.rglob("*.incomplete"):
            if path.stat().st_size:
                return path
        time.sleep(0.02)
    raise AssertionError("nothing came")


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def test_on_a_terminal_there_is_a_bar(environ: dict[str, str], terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    process = subprocess.Popen(
        [*PACELINE, *RUN, "-hf", f"{REPO}:Q8_0"],
        env={**environ, "TERM": "xterm", "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    screen = b""
    try:
        while piece := os.read(ours, 65536):
            screen += piece
    except OSError:  # how Linux says that nobody writes any more
        pass
    assert process.wait() == 0
    text = screen.decode(errors="replace")
    assert "fetching tiny-Q8_0.gguf" in text
    assert "━" in text
    assert "470.8/470.8 kB" in text
