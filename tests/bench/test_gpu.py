"""`benchmarks.gpu` as it is called on a lent machine, on real libllama with tiny models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.bits import parting

pytestmark = pytest.mark.model


@pytest.fixture
def words(models: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"category": c, "turns": [f"{c} {i} on and on"]} for c in ("qa", "rag") for i in range(2)]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = ["-m", target, "-md", str(models / "draft.gguf"), "--prompts", str(prompts)]
    return [*files, "-n", "6", "-t", "2", "--limit", "1", "--json", str(tmp_path / "gpu.json")]


def test_every_part_leaves_its_figures(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.main([*words, "--seconds", "5", "--methods", "none,auto,draft:2"])
    kept = json.loads((tmp_path / "gpu.json").read_text())
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [name for name in gpu.PARTS if "error" in kept[name]] == []
    assert list(kept["bench"]["methods"]) == ["none", "auto", "draft:2"]
    assert len(kept["bench"]["samples"]) in (3, 6)  # one category or both: it ends when the time is up
    assert "samples" not in printed["bench"]
    assert kept["slots"]["n_slots"] == 8 and kept["sampled"]["temperature"] == 0.8
    assert all(row["same"] == row["of"] == 8 for row in kept["exact"]["rows"])
    assert min(kept["steps"]["none"][part] for part in ("launch", "waiting", "python")) > 0
    assert kept["steps"]["none"]["drafting"] == 0 < kept["steps"]["draft"]["drafting"]
    assert set(kept["curves"]["target.gguf"]) == {"1", "2", "4", "8", "16", "32", "64"}


def test_a_part_that_fails_does_not_cost_the_others(words: list[str], tmp_path: Path) -> None:
    gpu.main([*words, "--seconds", "1", "--methods", "magic", "--parts", "bench,steps"])
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert "unknown method 'magic'" in kept["bench"]["error"]
    assert kept["steps"]["none"]["n_steps"] > 0


def test_where_texts_part() -> None:
    assert parting([1, 2, 3], [1, 2, 3]) is None
    assert parting([1, 2, 3], [1, 9, 3]) == 1
    assert parting([1, 2], [1, 2, 3]) == 2
