"""`paceline run` as a user calls it, on real libllama with tiny models: answers, and errors in one line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from paceline.cli.main import main
from tests.tiny import write_adapter

pytestmark = pytest.mark.model


def run(*words: str) -> int:
    return main(["run", *words, "-t", "2", "-c", "512"])


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("paceline: error: ")
    assert err.count("\n") == 1
    return err


def test_text_goes_to_stdout_and_speeds_to_stderr(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(
        "-m", target, "-p", "the cat", "-n", "12", "--temp", "0", "--spec-type", "ngram-simple", "--show-timings"
    )
    assert code == 0
    out, err = capsys.readouterr()
    assert out.strip()
    assert "draft acceptance rate = " in err
    assert "statistics ngram_simple: #calls = " in err


def test_json_is_one_object_and_drafting_changes_no_token(
    models: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("-m", target, "-p", "the cat", "-n", "30", "--temp", "0", "--exact", "--json")
    assert run(*words, "--spec-type", "none") == 0
    plain = json.loads(capsys.readouterr().out)
    literally = ("--spec-policy", "fixed", "--spec-type", "draft-simple", "--draft-max", "4", "--draft-p-min", "0")
    assert run(*words, "-md", target, *literally) == 0
    drafted = json.loads(capsys.readouterr().out)
    assert drafted["tokens"] == plain["tokens"]
    assert drafted["text"] == plain["text"]
    assert drafted["timings"]["predicted_n"] == 30
    assert drafted["timings"]["draft_n"] >= drafted["timings"]["draft_n_accepted"] > 15
    assert [s["name"] for s in drafted["statistics"]] == ["draft-simple"]
    assert plain["timings"]["draft_n"] == 0


def test_several_prompts_on_several_slots(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-m", target, "-p", "one", "-p", "two", "-np", "2", "-n", "5", "--temp", "0", "--json") == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [r["timings"]["predicted_n"] for r in results] == [5, 5]


def test_a_chat_remembers(target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"hello\nand again\n/exit\n")))
    assert run("-m", target, "-cnv", "-n", "8", "--temp", "0", "--show-timings") == 0
    out, _ = capsys.readouterr()
    assert out.strip()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("-c", "-1"), "context size"),
        (("-np", "0"), "slots"),
        (("--top-p", "3"), "top_p"),
        (("--temp", "warm"), "--temp"),
        (("--spec-type", "crystal-ball"), "unknown drafter"),
        (("--spec-type", "draft-simple"), "-md"),
        (("--no-such-flag",), "--no-such-flag"),
    ],
    ids=str,
)
def test_bad_flags_end_in_one_line(
    target: str, words: tuple[str, ...], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "-m", target, "-p", "hi", "-n", "3", *words]) == 2
    assert part in error_of(capsys)


def test_bad_files_end_in_one_line(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"caf\xe9 au lait")
    half = tmp_path / "half.gguf"
    half.write_bytes(Path(target).read_bytes()[:5000])
    long = tmp_path / "long.txt"
    long.write_text("word " * 2000)
    cases = [
        (("-m", str(tmp_path / "none.gguf"), "-p", "x"), "not found"),
        (("-m", str(broken), "-p", "x"), "not a GGUF file"),
        (("-m", str(half), "-p", "x"), "the model file is damaged"),
        (("-m", target, "-md", target, "--spec-replace", "one", "-p", "x"), "takes two texts"),
        (("-m", target, "-f", str(broken)), "UTF-8"),
        (("-m", target, "-f", str(long)), "a slot holds 512"),
    ]
    for words, part in cases:
        assert run(*words) == 2, words
        assert part in error_of(capsys), words


def test_a_static_cache_is_built_from_text_and_used(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus.txt").write_text("the cat and the dog and the cat " * 20)
    cache = tmp_path / "static.bin"
    assert main(["lookup-create", "-m", target, "-o", str(cache), str(tmp_path / "corpus.txt")]) == 0
    capsys.readouterr()
    dynamic = tmp_path / "dynamic.bin"
    words = ("-m", target, "-p", "the cat", "-n", "20", "--temp", "0", "--json", "--spec-policy", "fixed")
    assert run(*words, "--spec-type", "ngram-cache", "-lcs", str(cache), "-lcd", str(dynamic)) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [s["name"] for s in answer["statistics"]] == ["ngram-cache"]
    assert dynamic.stat().st_size > 0
    cache.write_bytes(b"broken")
    assert run(*words, "--spec-type", "ngram-cache", "-lcs", str(cache)) == 2
    assert "static.bin" in error_of(capsys)


def test_an_adapter_is_heard_in_the_answer(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = write_adapter(tmp_path / "lora.gguf", strength=50.0)
    answers = []
    for words in ((), ("--lora", adapter), ("--lora-scaled", f"{adapter}:0")):
        assert run("-m", target, "-p", "the cat", "-n", "8", "--temp", "0", "--spec-type", "none", *words) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[2] != answers[1]
    assert run("-m", target, "-p", "x", "--lora", target) == 2
    assert "cannot use the adapter" in error_of(capsys)
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(Path(adapter).read_bytes()[:-100])
    assert run("-m", target, "-p", "x", "--lora", str(cut)) == 2
    assert "damaged" in error_of(capsys)
