"""`paceline pair` as a user calls it: the table, the command line, JSON, exit codes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from paceline.cli.flags import parse
from paceline.cli.main import main
from tests.process.pair_files import write_five, write_target
from tests.tiny import write_bert, write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a folder")
    write_target(folder / "target.gguf")
    return write_five(folder)


@pytest.mark.model
def test_the_table_names_the_best_first_and_how_to_use_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(folder / "target.gguf")
    assert main(["pair", target, "-t", "1", "-cd", "256", "--seconds", "20"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert lines[0].startswith("target.gguf: 13M parameters, 51.0 MB; ")
    rows = [line.split()[0] for line in lines if ".gguf " in line and not line.startswith(("target", "paceline"))]
    assert rows[:2] == ["d-right.gguf", "a-random.gguf"]
    assert len(rows) == 5
    assert "100%" in next(line for line in lines if "use it" in line and line.strip().startswith("d-right.gguf"))
    wanted = ["paceline", "serve", "-m", target, "-md", str(folder / "d-right.gguf"), "-t", "1", "-cd", "256"]
    assert shlex.split(lines[-1]) == wanted
    assert parse(wanted[2:], "serve").values["draft.path"] == wanted[5]


@pytest.mark.model
def test_json_has_every_figure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [str(folder / "d-right.gguf"), str(folder / "e-cut-short.gguf")]
    assert main(["pair", "-m", str(folder / "target.gguf"), *places, "-t", "1", "--seconds", "20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    right, broken = found["candidates"]
    assert found["best"] == right["path"] == places[0]
    assert shlex.split(found["command"])[:4] == ["paceline", "serve", "-m", found["target"]["path"]]
    assert right["relation"] == "same vocabulary"
    assert right["measured"]["agreement"] == 1.0
    assert right["measured"]["speedup"] > found["look_ups"] > 0
    assert right["worth_using"] and right["verdict"] == "use it"
    assert not broken["worth_using"] and "measured" not in broken
    assert found["plain_ms"] == found["batch_ms"]["1"] == right["measured"]["plain_ms"]


@pytest.mark.model
def test_what_to_look_for_is_said_where_nothing_is_worth_using(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [write_model(tmp_path / "random.gguf", seed=5, n_layer=1, n_embd=32, scale=4.0)]
    assert main(["pair", str(folder / "target.gguf"), *places, "-t", "1", "--seconds", "20"]) == 1
    out = capsys.readouterr().out
    assert "it hardly ever says what the target says" in " ".join(out.split())
    assert "at most a tenth of the size" in out
    assert "-hfd" in out and "paceline distill" in out
    assert "paceline serve" not in out


def test_a_folder_without_a_file_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write_model(tmp_path / "target.gguf")
    (tmp_path / "empty").mkdir()
    assert main(["pair", target, str(tmp_path / "empty")]) == 1
    out, err = capsys.readouterr()
    assert "no other GGUF file is there" in out
    assert err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which model is to be drafted for?"),
        (["nowhere.gguf"], "model file not found: nowhere.gguf"),
        (["{bert}"], "it is an embedding model"),
        (["{model}", "nowhere"], "there is no folder or file nowhere"),
        (["{model}", "--seconds", "0"], "--seconds must be more than 0"),
        (["{model}", "--temp", "1"], "--temp is a flag of `paceline"),
        (["{model}", "--second", "1"], "did you mean --seconds?"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {"bert": write_bert(tmp_path / "bert.gguf"), "model": write_model(tmp_path / "model.gguf")}
    assert main(["pair", *(word.format(**made) for word in words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("paceline: error: ") and err.count("\n") == 1
    assert said in err


def test_help_says_what_exit_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pair", "--help"]) == 0
    out = capsys.readouterr().out
    assert "Exit status: 0 where a file is worth using, 1 where none is, 2" in out
    assert "--seconds" in out and "-ngld" in out
    assert "--top-k" not in out, "it draws nothing"


def test_the_first_word_is_the_target_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLAMA_ARG_MODEL", "another.gguf")
    (tmp_path / "empty").mkdir()
    assert main(["pair", write_model(tmp_path / "target.gguf"), str(tmp_path / "empty")]) == 1
    assert capsys.readouterr().out.startswith("target.gguf: ")
    assert main(["pair"]) == 2
    assert "another.gguf" in capsys.readouterr().err


def test_words_beside_flags_are_for_pair_alone() -> None:
    parsed = parse(["a.gguf", "-t", "4", "b", "--json", "c"], "pair")
    assert parsed.words == ["a.gguf", "b", "c"]
    assert [typed for _, typed in parsed.typed] == [["-t", "4"], ["--json"]]
    with pytest.raises(ValueError, match="every value follows a flag"):
        parse(["a.gguf"], "run")
