"""The agreement probe: it tells a draft that agrees from one that does not, in bounded time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from paceline import Engine
from paceline.config import ModelParams
from paceline.drafters.base import Draft, Drafter, DraftRequest
from paceline.llama.model import Model
from paceline.process import probe
from paceline.process.probe import LEAST, N_WRITTEN, OPENING, Interview, question
from paceline.text.chat import CHATML, ChatTemplate
from tests.fakes import EOG, N_VOCAB, FakeContext, next_token

ASKED = [1, 2, 3, 4]


class Echo(Drafter):
    """Says what the fake model says, or what comes after that; each question takes it so long."""

    name = "echo"

    def __init__(self, off: int = 0, clock: list[float] | None = None, seconds: float = 0.0) -> None:
        self.off = off
        self.clock = clock or [0.0]
        self.seconds = seconds
        self.begun: list[Sequence[int]] = []

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        self.begun.append(tokens)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        (request,) = requests
        self.clock[0] += self.seconds
        return [Draft([(next_token(request.tokens) + self.off) % N_VOCAB], self.name, [0.9])]

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        raise AssertionError("nothing was checked")

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        raise AssertionError("nothing was written")

    def close(self) -> None:
        raise AssertionError("it is still needed")


def ask(drafter: Echo, target: FakeContext | None = None) -> Interview:
    target = target or FakeContext()
    found = probe.probe(target, drafter, ASKED, frozenset({EOG}))
    assert target.cells == [[]]
    assert drafter.begun == [[]], "the text is forgotten"
    return found


def test_who_agrees_and_who_does_not() -> None:
    same, other = ask(Echo()), ask(Echo(off=1))
    assert len(same.agreements) == len(other.agreements) == N_WRITTEN - 1
    assert set(same.agreements) == {(0.9, True)}
    assert set(other.agreements) == {(0.9, False)}


class Slow(FakeContext):
    def __init__(self, now: list[float], seconds: float) -> None:
        super().__init__()
        self.now, self.seconds = now, seconds

    def _check(self, entries: list[tuple[int, int]]) -> None:
        self.now[0] += self.seconds


def test_a_slow_target_says_less_and_a_very_slow_one_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(probe, "perf_counter", lambda: now[0])
    assert len(ask(Echo(), Slow(now, 0.02)).agreements) == 29
    assert len(ask(Echo(), Slow(now, 0.1)).agreements) == LEAST - 1
    assert ask(Echo(), Slow(now, 0.5)) == Interview()


def test_what_a_question_takes_is_told_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(probe, "perf_counter", lambda: now[0])
    found = ask(Echo(clock=now, seconds=0.03), Slow(now, 0.001))
    assert found.seconds == pytest.approx(0.03)
    assert len(found.agreements) == 19


def test_a_small_context_or_a_short_answer_limits_it() -> None:
    assert len(ask(Echo(), FakeContext(n_ctx=33)).agreements) == 27
    assert ask(Echo(), FakeContext(n_batch=3)) == Interview()
    short = FakeContext()
    short.ends_after = 8
    assert ask(Echo(), short) == Interview()


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
