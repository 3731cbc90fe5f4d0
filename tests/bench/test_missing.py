"""A benchmark that lacks a file says which in one line, and needs no model for that."""

from __future__ import annotations

import sys

import pytest

from benchmarks import beside, common, drafts, lookups, replay, start


@pytest.fixture(autouse=True)
def bare_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing beside the clone."""
    monkeypatch.setattr(common, "DRAFT", common.SHARED.parent / "nowhere" / "draft.gguf")


@pytest.mark.parametrize(
    ("main", "words", "needs"),
    [
        (start.main, ["start", "cold"], "needs a draft model"),
        (start.main, ["start", "busy", "--draft", "no.gguf"], "there is no file no.gguf"),
        (replay.main, ["replay"], "needs answers recorded"),
        (replay.main, ["replay", "--record", "new.json"], "needs a draft model"),
        (drafts.main, ["drafts", "no.gguf"], "there is no file no.gguf"),
        (beside.main, ["beside", "-m", "no.gguf", "--server", "no"], "there is no file no.gguf"),
        (lookups.main, ["lookups", "no.json"], "there is no file no.json"),
    ],
)
def test_it_is_told_in_one_line(
    main: common.Main, words: list[str], needs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        common.guarded(main)
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert line.startswith(f"{words[0]}: ") and needs in line
