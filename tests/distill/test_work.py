"""A work folder knows what it was made with: the same command goes on, another one is refused in one line that says
what to do, and what it says to remove is made anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="distilling needs torch: pip install 'paceline[distill]'")

from paceline.cli.main import EXIT_ERROR, main  # noqa: E402
from paceline.distill.head_run import head_of  # noqa: E402
from tests.distill.files import write_target  # noqa: E402

pytestmark = pytest.mark.model
Distill = Callable[..., str]
"""Runs the command with more words, and gives the one line it ends with; nothing where all went well."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a log, and a folder with a draft and a head of both."""
    folder = tmp_path_factory.mktemp("made")
    write_target(folder / "target.gguf", sharpness=3.0, n_embd=32, n_layer=3, n_head=2, n_head_kv=1)
    entries = [{"prompt": f"<|start|>user\n{i}", "answer": "so"} for i in range(4)]
    (folder / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    log = ["--log", str(folder / "log.jsonl")]
    assert main(words(folder, *log, "--size", "32:1")) == 0
    shutil.copy(folder / "out.gguf", folder / "draft.gguf")
    assert main(words(folder, *log, "--type", "eagle3", "--head-tokens", "100", "--head-ff", "64")) == 0
    return folder


@pytest.fixture
def distill(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Distill:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)

    def run(*more: str) -> str:
        code = main(words(tmp_path, *more))
        said = capsys.readouterr().err.splitlines()
        assert code == (EXIT_ERROR if said[-1].startswith("paceline: error") else 0)
        return said[-1] if code else ""

    return run


def words(folder: Path, *more: str) -> list[str]:
    fixed = "--length 32 --rows 16 --text-tokens 512 --steps 2 --batch-tokens 256 --quant F16 --device cpu -t 1"
    files = ["-m", str(folder / "target.gguf"), "-o", str(folder / "out.gguf"), "--work", str(folder / "work")]
    return ["distill", *files, *fixed.split(), *more]


def test_the_same_command_goes_on(distill: Distill, tmp_path: Path) -> None:
    log = ["--log", str(tmp_path / "log.jsonl")]
    before = (tmp_path / "work" / "material.json").stat().st_mtime_ns
    assert not distill(*log, "--size", "32:1")
    assert not distill(*log)  # sizes that are not given are those that are there
    assert not distill(*log, "--type", "eagle3")
    assert not distill(*log, "--type", "eagle3", "--steps", "3", "--rate", "0.5", "--rows", "8")
    assert not distill("--stage", "write,train,export")  # the log is in material.json
    assert (tmp_path / "work" / "material.json").stat().st_mtime_ns == before


def test_another_command_is_told_which_flag_and_what_to_do(distill: Distill, tmp_path: Path) -> None:
    log, head = ["--log", str(tmp_path / "log.jsonl")], ["--type", "eagle3"]
    shutil.copy(tmp_path / "out.gguf", tmp_path / "head.gguf")
    start = {"draft": str(tmp_path / "draft.gguf"), "head": str(tmp_path / "head.gguf")}
    all_three = "choose another --work, or remove material.json, text, checkpoint.pt there"
    said = distill(*log, "--continue", start["draft"])
    assert "was made without --continue, not with --continue draft.gguf (" in said
    assert said.endswith("choose another --work, or remove checkpoint.pt there")
    said = distill(*log, "--continue", start["head"])
    assert "not with --continue head.gguf" in said and said.endswith("or remove head.pt there")
    assert "with --head-tokens 100, not with --head-tokens 120" in distill(*log, *head, "--head-tokens", "120")
    assert "with --head-ff 64, not with --head-ff 96" in distill(*log, *head, "--head-ff", "96")
    assert "with --size 32:1, not with --size 64:1" in distill(*log, "--size", "64:1")
    assert distill(*log, "--length", "48").endswith("remove text, checkpoint.pt there")
    assert "with --seed 0, not with --seed 1" in distill(*log, "--seed", "1")
    said = distill()
    assert "was made with --log log.jsonl (" in said and "not without --log" in said and said.endswith(all_three)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write("One more?\n")
    assert "not with --log log.jsonl (" in distill(*log)
    write_target(tmp_path / "target.gguf", seed=9, sharpness=3.0, n_embd=32, n_layer=3, n_head=2, n_head_kv=1)
    assert "not with -m target.gguf (" in distill("--stage", "export")


def test_what_was_removed_is_made_anew(distill: Distill, tmp_path: Path) -> None:
    log, work = ["--log", str(tmp_path / "log.jsonl")], tmp_path / "work"
    (work / "head.pt").unlink()
    assert not distill(*log, "--type", "eagle3", "--head-tokens", "120")
    assert head_of(work / "head.pt").shape.n_tokens == 120
    assert "with --head-tokens 120" in distill(*log, "--type", "eagle3", "--head-tokens", "100")
    (work / "checkpoint.pt").unlink()
    assert not distill(*log, "--continue", str(tmp_path / "draft.gguf"))
    assert "was made with --continue draft.gguf" in distill(*log)
    (work / "material.json").unlink()
    assert distill().endswith("or remove text, checkpoint.pt there")


def test_a_changed_file_of_the_folder_is_one_line(distill: Distill, tmp_path: Path) -> None:
    log, work = ["--log", str(tmp_path / "log.jsonl")], tmp_path / "work"
    (work / "material.json").write_text('{"own": []}')
    assert "was made by another version of paceline" in distill(*log, "--stage", "write")
    (work / "run.json").write_text("{")
    assert "run.json cannot be read" in distill(*log)
