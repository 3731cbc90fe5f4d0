"""Every command line of the seed documents, started for real, gives an answer. So does every preset.

What is changed, and nothing else: `llama-server` is `paceline serve`, `llama-cli` is `paceline run`; models are tiny
files of the same names (`seed_models.py`), repositories come from a hub on loopback under their own names; absolute
paths lead into the test's folder; host and port are loopback's; the number of cores, which the seeds' shell counts, is
one; a GPU by name is no device, for there is none here; lines that only name flags get a model to try them on.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from paceline.cli.table import TABLE
from tests.cli.seed_models import fill_hub, write_files
from tests.hub.commands import PATIENCE, Serving, command, environ_for, serving
from tests.hub.server import HubServer

pytestmark = pytest.mark.model

LINES = [
    shlex.split(line)
    for line in (Path(__file__).parent / "seed_commands.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
PRESETS = [flag for flag in TABLE if flag.stands_for]
TARGET, DRAFT = {"-m", "--model", "-hf"}, {"-md", "--model-draft", "-hfd", "--spec-draft-hf"}
OF_THE_DRAFT = {"-cd", "-ngld"}
CORES, GPU, HERE = {"--threads", "--threads-draft"}, {"-devd", "--device-draft"}, {"--host", "--port"}
EXPECTED = (
    " has no effect here: ",
    "no GPU in this build of libllama: ",
    "-kvu cannot act: ",
    "libllama sees no GPU here: ",
    "--spec-replace has no effect: ",
    " does not concern a draft model",
    " says what the target says in ",
    " cannot pay",
)
"""Warnings that say a flag cannot act, or what tiny random models are worth as drafts."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the lines run: a folder with the files they name, and an environment whose hub has their repositories."""

    folder: Path
    environ: dict[str, str]

    def words(self, line: list[str]) -> list[str]:
        """The line's flags, with what this machine cannot have replaced."""
        words = [self.word(flag, word) for flag, word in pairwise(line)]
        words = [word for flag, word in pairwise(("", *words)) if flag not in HERE and word not in HERE]
        if presets(line) or TARGET & set(words) or "--version" in words:
            return words
        draft = ["-md", "draft.gguf"] if OF_THE_DRAFT & set(words) and not DRAFT & set(words) else []
        return ["-m", "model.gguf", *draft, *words]

    def word(self, flag: str, word: str) -> str:
        if word.startswith("/"):
            name = Path(word).name
            return name if word.endswith(".gguf") else str(self.folder / "elsewhere" / name)
        return "1" if flag in CORES else "none" if flag in GPU else word


def presets(line: list[str]) -> list[tuple[str, str]]:
    """What a preset of the line stands for."""
    return [pair for flag in PRESETS if flag.names in line for pair in flag.stands_for]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("lines")
    write_files(folder)
    pairs = [pair for line in LINES for pair in pairwise(line)]
    pairs += [pair for flag in PRESETS for pair in flag.stands_for]
    with HubServer() as hub:
        targets = {value for name, value in pairs if name == "-hf"}
        fill_hub(hub, folder, targets, {value for name, value in pairs if name in ("-hfd", "--spec-draft-hf")})
        yield Bench(folder, environ_for(hub.url, folder))


def ends(line: list[str]) -> str:
    return " ".join(line)[-70:]


def served(line: list[str]) -> bool:
    return not line[0].endswith("llama-cli") and "--version" not in line


@pytest.mark.parametrize("line", [line for line in LINES if served(line)], ids=ends)
def test_a_server_line_answers(line: list[str], bench: Bench) -> None:
    words = bench.words(line)
    with serving(words, bench.environ, bench.folder) as server:
        messages = [{"role": "user", "content": "the cat and the cat and the cat"}]
        body = {"messages": messages, "max_tokens": 6}
        reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=PATIENCE)
        assert reply.status_code == 200, reply.text
        assert 1 <= reply.json()["usage"]["completion_tokens"] <= 6
        types = drafters(server)
    assert server.process.returncode == 0
    assert unexpected(server.log) == []
    for named in (value for flag, value in pairwise(words) if flag == "--spec-type"):
        assert types >= set(named.split(","))
    assert "--spec-default" not in words or "ngram-mod" in types
    has_draft = DRAFT & {*words, *(flag for flag, _ in presets(line))}
    assert not has_draft or any(name.startswith("draft-") for name in types)


def drafters(server: Serving) -> set[str]:
    return set(httpx.get(f"{server.url}/props", timeout=60).json()["speculative"]["types"])


def unexpected(log: str) -> list[str]:
    lines = [text for text in log.splitlines() if text[12:15] in (" W ", " E ")]
    return [text for text in lines if not any(words in text for words in EXPECTED)]


@pytest.mark.parametrize("line", [line for line in LINES if not served(line)], ids=ends)
def test_a_command_line_answers(line: list[str], bench: Bench) -> None:
    name = ["run"] if line[0].endswith("llama-cli") else []
    done = command([*name, *bench.words(line)], bench.environ, bench.folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "--show-timings" not in line or "tokens per second" in done.stderr


@pytest.mark.parametrize("name", [flag.names for flag in PRESETS])
def test_a_preset_answers(name: str, bench: Bench) -> None:
    with serving([name], bench.environ, bench.folder) as server:
        if name == "--embd-gemma-default":
            reply = httpx.post(f"{server.url}/v1/embeddings", json={"input": "the cat"}, timeout=PATIENCE)
            assert len(reply.json()["data"][0]["embedding"]) == 32
        else:
            body = {"prompt": "the cat", "n_predict": 4}
            reply = httpx.post(f"{server.url}/completion", json=body, timeout=PATIENCE)
            assert reply.json()["tokens_predicted"] == 4, reply.text
    assert server.process.returncode == 0
