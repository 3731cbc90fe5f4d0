"""The agreement probe: it tells a draft that agrees from one that does not, in bounded time."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from paceline import Engine
from paceline.config import ModelParams
from paceline.llama.lib import Floats
from paceline.llama.model import Model
from paceline.process import probe
from paceline.process.probe import LEAST, N_WRITTEN, OPENING, Agreement, question
from paceline.text.chat import CHATML, ChatTemplate
from tests.fakes import EOG, N_VOCAB, FakeContext

ASKED = [1, 2, 3, 4]


class Dissenter(FakeContext):
    """Knows better than the fake model, always."""

    def _logits(self, cells: list[int]) -> Floats:
        return np.roll(super()._logits(cells), 1)


def ask(draft: FakeContext, target: FakeContext | None = None) -> list[Agreement]:
    target = target or FakeContext()
    found = probe.probe(target, draft, ASKED, frozenset({EOG}))
    assert target.cells == draft.cells == [[]]
    return found


def test_who_agrees_and_who_does_not() -> None:
    same, other = ask(FakeContext()), ask(Dissenter())
    assert len(same) == len(other) == N_WRITTEN
    assert all(right for _, right in same)
    assert not any(right for _, right in other)
    assert all(sure > 1 / N_VOCAB for sure, _ in same)


def test_a_slow_target_says_less_and_a_very_slow_one_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(probe, "perf_counter", lambda: now[0])

    class Slow(FakeContext):
        def __init__(self, seconds: float) -> None:
            super().__init__()
            self.seconds = seconds

        def _check(self, entries: list[tuple[int, int]]) -> None:
            now[0] += self.seconds

    assert len(ask(FakeContext(), Slow(0.02))) == 30
    assert len(ask(FakeContext(), Slow(0.1))) == LEAST
    assert ask(FakeContext(), Slow(0.5)) == []


def test_a_small_context_or_a_short_answer_limits_it() -> None:
    assert len(ask(FakeContext(n_ctx=33))) == 28
    assert ask(FakeContext(n_batch=10)) == []
    short = FakeContext()
    short.ends_after = 8
    assert ask(FakeContext(), short) == []


def test_the_question_is_a_chat_where_the_model_chats(target: str) -> None:
    with Model(ModelParams(path=target)) as model:
        vocab = model.vocab
        assert question(vocab, lambda: ChatTemplate(CHATML, "", "")) != vocab.tokenize(OPENING)
        for template in (None, lambda: ChatTemplate("{{", "", ""), lambda: ChatTemplate("{{ 1 / 0 }}", "", "")):
            assert question(vocab, template) == vocab.tokenize(OPENING)


def test_a_draft_that_agrees_with_nothing_is_told_of(
    models: Path, target: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "SECONDS", (60.0, 60.0))
    with caplog.at_level(logging.WARNING), Engine(target, draft=str(models / "draft.gguf"), n_ctx=256) as engine:
        assert engine.explain()["agreement"]["draft-simple"] < 0.1
    assert "draft.gguf says what the target says" in caplog.text
    caplog.clear()
    with Engine(target, draft=target, n_ctx=256) as engine:
        assert engine.explain()["agreement"]["draft-simple"] > 0.9
    assert "says what the target says" not in caplog.text
