"""Heads as people meet them: the library, command lines, a server's figures. Real libllama, tiny files."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from paceline import Engine
from paceline.cli import build
from paceline.cli.flags import parse
from paceline.cli.main import main
from paceline.config import ContextParams, ModelParams
from paceline.drafters.names import HEADS, canonical
from paceline.llama.model import Model
from paceline.process.gguf_check import check_gguf
from tests.cli.test_flags import seed_commands
from tests.heads.heads import write_eagle3
from tests.heads.right import (
    write_right_dflash,
    write_right_dspark,
    write_right_eagle3,
    write_right_gemma4,
    write_right_gemma4_assistant,
    write_right_llama,
    write_right_step35,
)
from tests.heads.targets import write_step35
from tests.other_vocab import write_permuted
from tests.recurrent_files import write_qwen35
from tests.server.live import Live, live, settings
from tests.tiny import write_model

pytestmark = pytest.mark.model

PAIRS = {
    "draft-eagle3": ("llama.gguf", "eagle3.gguf"),
    "draft-dflash": ("llama.gguf", "dflash.gguf"),
    "draft-dspark": ("llama.gguf", "dspark.gguf"),
    "draft-mtp": ("gemma4.gguf", "assistant.gguf"),
}
OWN = "step35.gguf"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads that are right, so that they draft what is accepted."""
    folder = tmp_path_factory.mktemp("right")
    write_right_llama(folder / "llama.gguf")
    write_right_eagle3(folder / "eagle3.gguf")
    write_right_dflash(folder / "dflash.gguf")
    write_right_dspark(folder / "dspark.gguf")
    write_right_gemma4(folder / "gemma4.gguf")
    write_right_gemma4_assistant(folder / "assistant.gguf")
    write_right_step35(folder / OWN)
    write_step35(folder / "chain.gguf", n_heads=3)
    return folder


# -- the library


@pytest.mark.parametrize("name", PAIRS)
def test_a_head_alone_is_enough(name: str, folder: Path) -> None:
    target, head = (str(folder / file) for file in PAIRS[name])
    with Engine(target, draft=head, n_ctx=256, n_threads=1, spec_policy="fixed") as engine:
        assert engine.info.drafters == ("grammar", "suffix", name)
        params = {"types": (name,), "p_min": 0.0, "n_max": 2}
        generation = engine.generate("hello", max_tokens=24, temperature=0, ignore_eos=True, speculative=params)
        assert generation.text()
        [stats] = [stats for stats in engine.drafter_stats() if stats.name == name]
        assert stats.n_accepted_tokens > 0
        assert f"statistics {name.replace('-', '_')}: #calls = " in stats.line()


def test_a_models_own_blocks_draft_when_they_are_named(folder: Path) -> None:
    with Engine(str(folder / OWN), n_ctx=256, n_threads=1, spec_policy="fixed", spec_types=("draft-mtp",)) as engine:
        assert engine.info.drafters == ("draft-mtp",)
        engine.generate("hello", max_tokens=24, temperature=0, ignore_eos=True).text()
        assert engine.drafter_stats()[0].n_accepted_tokens > 0
    with Engine(str(folder / OWN), n_ctx=256, n_threads=1) as engine:
        assert engine.info.drafters == ("grammar", "suffix")


@pytest.mark.parametrize(
    ("target", "head", "words"),
    [
        (
            "llama.gguf",
            "eagle3.gguf",
            "draft-eagle3: head of 'eagle3.gguf' reads layer 0, layer 1, layer 3 of the ",
        ),
        (
            "gemma4.gguf",
            "assistant.gguf",
            "draft-mtp: head of 'assistant.gguf' reads the last state, shares ",
        ),
        (
            "chain.gguf",
            None,
            "draft-mtp: head of the model's own file (3 in a chain) reads the last state of the ",
        ),
    ],
    ids=str,
)
def test_what_was_opened_says_who_reads_what(target: str, head: str | None, words: str, folder: Path) -> None:
    types = None if head else ("draft-mtp",)
    draft = str(folder / head) if head else None
    with Engine(str(folder / target), draft=draft, spec_types=types, n_ctx=256, n_threads=1) as engine:
        [line] = engine.info.heads
        assert line.startswith(words)


def test_short_names_are_understood() -> None:
    assert canonical(("mtp", "dspark", "eagle3", "dflash")) == HEADS


# -- the command line


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("-m llama.gguf -md eagle3.gguf", "draft_eagle3"),
        ("-m llama.gguf -md eagle3.gguf --spec-type draft-eagle3", "draft_eagle3"),
        ("-m llama.gguf -md dflash.gguf --spec-type suffix,dflash", "draft_dflash"),
        ("-m llama.gguf -md dspark.gguf --draft-p-min 0", "draft_dspark"),
        ("-m llama.gguf -md dflash.gguf --draft-p-min 0 -b 4 -ub 4", "draft_dflash"),
        ("-m step35.gguf --spec-type draft-mtp", "draft_mtp"),
        ("-m gemma4.gguf -md assistant.gguf --spec-type mtp", "draft_mtp"),
    ],
    ids=str,
)
def test_a_command_line_drafts_with_it(
    line: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    literally = ("--spec-policy", "fixed", "--draft-max", "2", "--temp", "0", "--ignore-eos", "--show-timings")
    assert main(["run", *line.split(), "-p", "hello", "-n", "24", "-t", "1", "-c", "256", *literally]) == 0
    found = re.search(rf"statistics {name}: .*#acc tokens = (\d+)", capsys.readouterr().err)
    assert found
    assert int(found[1]) > 0


def test_bench_has_them_for_methods(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Side by side with none, on weights that are in memory once."""
    monkeypatch.chdir(folder)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"category": "qa", "turns": ["on and on and on"]}) + "\n")
    loaded: list[str] = []
    load = Model.__init__

    def counted(self: Model, params: ModelParams, *rest: Any) -> None:
        loaded.append(Path(params.path).name)
        load(self, params, *rest)

    monkeypatch.setattr(Model, "__init__", counted)
    words = ("-m", OWN, "--methods", "none,mtp:2", "--prompts", str(prompts), "-n", "12", "-t", "1", "-c", "256")
    assert main(["bench", *words]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["methods"]["mtp:2"]["acceptance"] > 0.5
    assert loaded == [OWN]


# -- every line of the seeds that is about them, with files that are there


@dataclass(frozen=True)
class Replaced:
    """Tiny files in place of those a line names, by the kind of head it asks for."""

    folder: Path

    def words(self, words: list[str]) -> list[str]:
        target, head = self.files(" ".join(words))
        new: list[str] = []
        for word, before in zip(words[1:], words, strict=False):
            if word in ("-hf", "-hfd", "--spec-draft-hf"):
                new.append("-m" if word == "-hf" else "-md")
            elif before in ("-m", "-hf"):
                new.append(str(self.folder / target))
            elif before in ("-md", "-hfd", "--spec-draft-hf"):
                new.append(str(self.folder / head))
            else:
                new.append(word)
        return new

    def files(self, line: str) -> tuple[str, str]:
        if "draft-mtp" in line and "-md" not in line:
            return OWN, OWN
        return next((files for name, files in PAIRS.items() if name in line), PAIRS["draft-eagle3"])


ABOUT_HEADS = [words for words in seed_commands() if re.search(r"--spec-draft|--spec-type draft-", " ".join(words))]


def test_there_are_lines_about_heads() -> None:
    assert len(ABOUT_HEADS) >= 11


@pytest.mark.parametrize("words", ABOUT_HEADS, ids=lambda words: " ".join(words)[-60:])
def test_seed_lines_run(words: list[str], folder: Path) -> None:
    parsed = parse(Replaced(folder).words(words), "serve")
    chosen = build.settings(parsed)
    chosen = replace(
        chosen,
        context=replace(chosen.context, n_ctx=1024, n_threads=1),
        draft_context=replace(chosen.draft_context, n_threads=1),
        engine=replace(chosen.engine, cache_ram=0),
    )
    with Engine.from_settings(chosen) as engine:
        if chosen.draft:
            assert set(engine.info.drafters) & set(HEADS)
        assert engine.generate("hello", max_tokens=8, ignore_eos=True).text()


def test_a_server_starts_with_such_a_line(folder: Path) -> None:
    """As people start it: its engine in a child, and the log says what it has opened."""
    words = Replaced(folder).words(next(words for words in ABOUT_HEADS if "draft-eagle3" in words))
    command = [sys.executable, "-m", "paceline", "serve", *words, "--port", "0", "-t", "1", "-c", "512"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        try:
            log = read_until("ready at ", server.stderr)
            address = re.search(r"ready at (\S+)", log)
            assert address, log
            body = {"prompt": "hello", "n_predict": 8, "ignore_eos": True}
            reply = httpx.post(f"{address[1]}/completion", json=body, timeout=60).json()
        finally:
            server.terminate()
        log += server.stderr.read()
    assert reply["tokens_predicted"] == 8
    assert "load_model: drafters: draft-eagle3\n" in log
    assert "load_model: draft-eagle3: head of 'eagle3.gguf' reads layer 0, layer 1, layer 3" in log
    assert "statistics draft_eagle3: #calls = " in log


def read_until(words: str, log: IO[str]) -> str:
    lines: list[str] = []
    for line in log:
        lines.append(line)
        if words in line:
            break
    return "".join(lines)


# -- a server's figures


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Live]:
    chosen = settings(str(folder / "llama.gguf"), n_ctx=512, spec_types=("suffix", "draft-eagle3"), spec_policy="fixed")
    head = ModelParams(path=str(folder / "eagle3.gguf"))
    with live(replace(chosen, draft=head, draft_context=ContextParams(n_threads=1))) as server:
        yield server


def test_requests_choose_it_and_figures_name_it(server: Live) -> None:
    body = {"prompt": "hello", "n_predict": 24, "temperature": 0, "ignore_eos": True}
    reply = server.post("/completion", **body, **{"speculative.types": ["draft-eagle3"], "speculative.n_max": 3}).json()
    assert reply["generation_settings"]["speculative.types"] == "draft-eagle3"
    assert reply["timings"]["draft_n_accepted"] > 0
    plain = server.post("/completion", **body, **{"speculative.types": "none"}).json()
    assert plain["timings"]["draft_n"] == 0
    assert plain["content"] == reply["content"]
    metrics = server.http.get("/metrics").text
    found = re.search(r'paceline:drafter_accepted_tokens_total\{drafter="draft-eagle3"\} (\d+)', metrics)
    assert found
    assert int(found[1]) == reply["timings"]["draft_n_accepted"]
    stats = {each["name"]: each for each in server.http.get("/paceline/stats").json()["drafters"]}
    assert stats["draft-eagle3"]["n_accepted"] == reply["timings"]["draft_n_accepted"]
    assert server.http.get("/slots").json()[0]["speculative"] is True


def test_the_page_has_a_colour_for_every_drafter() -> None:
    web = Path(build.__file__).parents[1] / "server" / "web"
    tints = dict(re.findall(r'\["([\w-]+)", (\d+)\]', (web / "tints.js").read_text()))
    assert set(tints) == set(canonical(tints)) == set(canonical((*HEADS, *tints)))
    styles = re.findall(r'\[data-tint="(\d+)"\] \{ --(?:hue|chroma): (\d+)', (web / "style.css").read_text())
    assert set(tints.values()) - {"0"} <= {number for number, _ in styles}
    assert len({hue for _, hue in styles}) == len(styles)


# -- docs/drafters.md


DOCS = Path(__file__).parents[2] / "docs" / "drafters.md"
COMMANDS = [line.split("paceline ", 1)[1] for line in DOCS.read_text().splitlines() if line.startswith("    paceline ")]


@pytest.fixture(scope="module")
def documented(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny files under the names that the page has."""
    named = tmp_path_factory.mktemp("named")
    files = {"llama3": "llama", "llama3-eagle3": "eagle3", "qwen3": "llama", "qwen3-dflash": "dflash"}
    files |= {"qwen3-dspark": "dspark", "gemma4": "gemma4", "gemma4-assistant": "assistant"}
    for name, file in files.items():
        (named / f"{name}.gguf").symlink_to(folder / f"{file}.gguf")
    write_qwen35(named / "qwen3.5.gguf", n_nextn=1)
    write_eagle3(named / "qwen3.5-eagle3.gguf", target_width=n_embd(named / "qwen3.5.gguf"))
    write_step35(named / "step3.5.gguf", blocks=False)
    write_step35(named / "mtp-step3.5.gguf", trunk=False)
    write_model(named / "large.gguf")
    write_permuted(str(named / "large.gguf"), named / "other-family.gguf")
    return named


def n_embd(path: Path) -> int:
    return int(check_gguf(str(path)).own("embedding_length"))


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: line[:70])
def test_commands_of_the_page_run(
    line: str, documented: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(documented)
    command, *words = shlex.split(line)
    if command != "serve":
        shown = ("--show-timings",) if command == "run" else ()
        assert main([command, *words, "-t", "1", "-c", "512", "--ignore-eos", *shown]) == 0
        out, err = capsys.readouterr()
        assert out.strip()
        assert command != "run" or re.search("statistics draft_(simple|mtp|eagle3|dflash|dspark): ", err)
        return
    chosen = build.settings(parse(words, command))
    with Engine.from_settings(replace(chosen, context=replace(chosen.context, n_ctx=2048, n_threads=1))) as engine:
        assert engine.info.drafters == ("suffix", "draft-mtp")


def test_the_page_has_commands_for_all() -> None:
    assert len(COMMANDS) >= 10
