"""benchmarks.agreement counts what drafts come to: heads that are right always, drafts that are the target itself, and
random ones."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.agreement import Tally, measure
from tests.heads.heads import write_eagle3
from tests.heads.right import write_right_eagle3, write_right_llama

pytestmark = pytest.mark.model
N_TOKENS = 24


def test_what_a_draft_comes_to(tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    asked = [
        {"category": name, "turns": [text]} for name, text in (("qa", "the cat"), ("math", "and on"), ("qa", "re"))
    ]
    questions.write_text("".join(json.dumps(entry) + "\n" for entry in asked))
    target = write_right_llama(tmp_path / "target.gguf")
    files = [target, write_right_eagle3(tmp_path / "right.gguf"), write_eagle3(tmp_path / "random.gguf")]
    tallies, target_ms = measure(
        Namespace(files=files, model=target, prompts=str(questions), per_category=2, tokens=N_TOKENS, threads=1)
    )
    itself, right, random = tallies.values()
    assert target_ms > 0
    for tally in (itself, right):
        assert tally.agreement() == tally.agreement("qa") == 1
        assert [*tally.stood] == ["qa", "mt_bench"]
        assert tally.per_step(1) > 1.9 and tally.per_step(7) > tally.per_step(3) > 3
    assert random.agreement() < 0.5
    assert random.per_step(8) < 1.5
    assert all(len(tally.milliseconds) >= 3 * 8 for tally in tallies.values())


def test_steps_are_taken_one_after_the_other() -> None:
    tally = Tally({"qa": [[2, 1, 0, 0, 3, 2, 1]], "rag": [[0, 0]]})
    assert tally.agreement("qa") == round(5 / 7, 3)
    assert tally.per_step(8, "qa") == round(7 / 3, 3)
    assert tally.per_step(1, "qa") == round(7 / 5, 3)
    assert tally.agreement("rag") == 0 and tally.per_step(8, "rag") == 1
    assert tally.agreement() == round(5 / 9, 3)
