"""The draft model's interview: it tells a draft that agrees from one that does not, in bounded time."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from paceline import Engine
from paceline.engine.costs import CostCurve
from paceline.interview import ANSWER, LEAST, Opinion, interview, script
from paceline.llama.lib import Floats
from paceline.text.chat import CHATML, ChatTemplate
from tests.fakes import N_VOCAB, FakeContext, continuation

QUICK = CostCurve({1: 1e-3, 16: 4e-3})


class Dissenter(FakeContext):
    """Knows better than the fake model, always."""

    def _logits(self, cells: list[int]) -> Floats:
        return np.roll(super()._logits(cells), 1)


def ask(draft: FakeContext, curve: CostCurve = QUICK, seconds: float = 1.0) -> list[Opinion]:
    target, tokens = FakeContext(), continuation([1, 2, 3], 50)
    found = interview(target, draft, curve, tokens, 8, seconds)
    assert target.cells == draft.cells == [[]]
    return found


def test_who_agrees_and_who_does_not() -> None:
    same, other = ask(FakeContext()), ask(Dissenter())
    assert len(same) == len(other) == 50 - 7
    assert all(right for _, right in same)
    assert not any(right for _, right in other)
    assert all(sure > 1 / N_VOCAB for sure, _ in same)


def test_a_slow_target_reads_less_and_a_very_slow_one_nothing() -> None:
    slow = CostCurve({1: 0.01, 16: 0.32})
    assert len(ask(FakeContext(), slow)) == 50 - 7
    assert len(ask(FakeContext(), slow, seconds=0.7)) == 35 - 7
    assert ask(FakeContext(), slow, seconds=0.02 * (LEAST + 6)) == []


def test_a_small_context_limits_it() -> None:
    assert len(ask(FakeContext(n_ctx=33))) == 32 - 7
    assert ask(FakeContext(n_batch=10)) == []


def test_the_script_is_a_chat_where_the_model_chats(target: str) -> None:
    with Engine(target, spec_types=()) as engine:
        vocab = engine.vocab
        asked, n_asked = script(vocab, lambda: ChatTemplate(CHATML, "", ""))
        assert n_asked > 0
        assert asked[n_asked:] == vocab.tokenize(ANSWER, special=False)
        for template in (None, lambda: ChatTemplate("{{", "", ""), lambda: ChatTemplate("{{ 1 / 0 }}", "", "")):
            assert script(vocab, template) == (vocab.tokenize(ANSWER), 0)


def test_a_draft_that_agrees_with_nothing_is_told_of(
    models: Path, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Engine(target, draft=str(models / "draft.gguf"), n_ctx=256) as engine:
        assert engine.explain()["agreement"] < 0.1
    assert "draft.gguf says what the target says" in caplog.text
    caplog.clear()
    with Engine(target, draft=target, n_ctx=256) as engine:
        assert engine.explain()["agreement"] > 0.9
    assert not caplog.text
