"""`paceline bench` as a user calls it, on real libllama with tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.config import ModelParams
from paceline.llama.model import Model

pytestmark = pytest.mark.model


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    lines = [{"category": c, "turns": [f"{c} {i} on and on and on"]} for c in ("qa", "rag") for i in range(3)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def bench(*words: str) -> int:
    return main(["bench", *words, "-t", "2"])


def test_a_table_then_one_line_of_json(
    models: Path, target: str, prompts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.json"
    words = ("-m", target, "-md", str(models / "draft.gguf"), "-cd", "64", "--prompts", prompts, "-n", "8")
    assert bench(*words, "--limit", "2", "--methods", "auto,draft:2,oracle", "--json", str(data)) == 0
    out, err = capsys.readouterr()
    assert all(line.startswith("paceline: warning: draft") for line in err.splitlines()), "its draft model is useless"
    *shown, last = out.splitlines()
    assert any("speed-up" in line for line in shown)
    summary = json.loads(last)
    assert list(summary["methods"]) == ["none", "auto", "draft:2", "oracle"]
    assert list(summary["methods"]["auto"]["categories"]) == ["qa", "rag"]
    assert summary["methods"]["oracle"]["acceptance"] in (1.0, None)
    samples = json.loads(data.read_text())["samples"]
    assert len(samples) == 4 * 4
    assert all(len(text) == 8 for s in samples for text in s["texts"])
    assert all(s["n_tokens"] == 7 and s["seconds"] > 0 for s in samples)
    assert {s["method"] for s in samples if s["planned_actual"] > 0} == {"auto", "oracle"}
    assert summary["methods"]["auto"]["predicted"] > 0 and summary["methods"]["draft:2"]["predicted"] is None


def test_the_weights_are_loaded_once_for_all_methods(
    models: Path, target: str, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    freed: list[str] = []

    class Counted(Model):
        def _load(self, params: ModelParams, *rest: Any) -> int:
            loaded.append(params.path)
            return super()._load(params, *rest)

        def close(self) -> None:
            if self.handle:
                freed.append(self.path)
            super().close()

    monkeypatch.setattr("paceline.llama.shared.Model", Counted)
    monkeypatch.setattr("paceline.process.parts.Model", Counted)
    draft = str(models / "draft.gguf")
    words = ("-m", target, "-md", draft, "-cd", "64", "--prompts", prompts, "-n", "4", "--limit", "1", "--repeat", "2")
    assert bench(*words, "--methods", "none,auto,draft:2,suffix+draft:2") == 0
    assert sorted(loaded) == sorted(freed) == sorted([target, draft])


def test_the_tail(target: str, prompts: str, tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    words = ("-m", target, "--prompts", prompts, "-n", "4", "--methods", "none", "--json", str(data), "--limit")
    assert bench(*words, "0") == 0
    every = [s["texts"] for s in json.loads(data.read_text())["samples"]]
    assert bench(*words, "1", "--tail") == 0
    assert [s["texts"] for s in json.loads(data.read_text())["samples"]] == every[-2:]


def test_several_slots(target: str, prompts: str, tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    words = ("-m", target, "--prompts", prompts, "-n", "8", "-np", "2", "--temp", "0.8", "--json", str(data))
    assert bench(*words, "--limit", "2", "--methods", "none,oracle,suffix") == 0
    samples = json.loads(data.read_text())["samples"]
    assert len(samples) == 2 * 3
    assert all(len(s["texts"]) == 2 and max(map(len, s["texts"])) == 8 for s in samples), "the first ends the other"
    assert all(s["n_tokens"] == sum(map(len, s["texts"])) - 2 for s in samples)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--methods", "magic"), "unknown method 'magic'"),
        (("--methods", "draft:8"), "-md"),
        (("--categories", "poems"), "no category 'poems'"),
        (("-n", "1"), "two tokens"),
        (("--limit", "-1"), "limit"),
        (("-c", "64"), "no prompt fits"),
        (("--json", "/nowhere/data.json"), "cannot write"),
        (("--spec-policy", "fixed"), "is a flag of `paceline run`"),
    ],
    ids=str,
)
def test_mistakes_end_in_one_line(
    target: str, words: tuple[str, ...], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("-m", target, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("paceline: error: ")
    assert part in err
