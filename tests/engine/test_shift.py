"""Texts that are longer than the context: they go on without their older half, the same whatever drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from paceline import Engine
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.engine import core
from paceline.engine.request import Finished, Resume, Timings
from tests.fakes import Client, FakeContext, Prophet, continuation, make_engine, run

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8]
LONG: dict[str, Any] = {"max_tokens": 400, "temperature": 0.7, "seed": 3, "ignore_eos": True}


@pytest.mark.parametrize("can_shift", [True, False])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.9])
def test_a_text_goes_on_when_its_slot_is_full(p: float, exact: bool, can_shift: bool) -> None:
    context = FakeContext(n_ctx=128, n_seqs=2, exact=exact)
    context.can_shift = can_shift
    prophet = Prophet(p)
    clients = [Client(PROMPT, max_tokens=300), Client(PROMPT[3:], max_tokens=150)]
    run(make_engine(context, prophet, context_shift=True), *clients)
    for client, n in zip(clients, (300, 150), strict=True):
        assert client.tokens == continuation(client.request.tokens, n)
        last = client.events[-1]
        assert isinstance(last, Finished)
        assert (last.reason, last.timings.predicted_n) == ("length", n)
    assert not prophet.live


@pytest.mark.parametrize(("n_keep", "n_kept"), [(0, 0), (5, 5), (-1, 8), (1000, 48)])
def test_the_first_tokens_stay(n_keep: int, n_kept: int) -> None:
    context = FakeContext(n_ctx=64)
    client = Client(PROMPT, max_tokens=60, n_keep=n_keep)
    run(make_engine(context, context_shift=True), client)
    text = [*PROMPT, *continuation(PROMPT, 60)]
    n_dropped = (63 - n_kept) // 2
    assert context.cells[0] == [*text[:n_kept], *text[n_kept + n_dropped : -1]]


def test_keep_is_the_engines_unless_the_request_says() -> None:
    context = FakeContext(n_ctx=64)
    run(make_engine(context, context_shift=True, n_keep=-1), Client(PROMPT, max_tokens=60))
    assert context.cells[0][:8] == PROMPT


def test_a_text_without_a_limit_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "ENDLESS", 500)
    client = Client(PROMPT, max_tokens=None)
    run(make_engine(FakeContext(n_ctx=64), Prophet(0.9), context_shift=True), client)
    assert (client.reason, len(client.tokens)) == ("length", 500)


@pytest.mark.parametrize("exact", [False, True])
def test_another_engine_goes_on_behind_a_shift(exact: bool) -> None:
    """As after a kill: all tokens so far are known, and drop out of the context where they did before."""
    client = Client(PROMPT, max_tokens=200)
    known = continuation(PROMPT, 150)
    client.active.request = replace(client.request, resume=Resume(known, Timings(predicted_n=150)))
    context = FakeContext(n_ctx=64, exact=exact)
    run(make_engine(context, Prophet(0.8), context_shift=True), client)
    assert client.tokens == continuation(PROMPT, 200)[150:]


# -- real models


def settings(target: str, *, n_slots: int = 1, draft: str | None = None, **engine: Any) -> Settings:
    return Settings(
        model=ModelParams(path=target),
        draft=ModelParams(path=draft) if draft else None,
        context=ContextParams(n_ctx=256 * n_slots, n_threads=1),
        draft_context=ContextParams(n_threads=1),
        engine=EngineParams(n_slots=n_slots, context_shift=True, **engine),
    )


def texts(options: Settings, n: int, **wish: Any) -> list[list[int]]:
    with Engine.from_settings(options) as engine:
        generations = [engine.generate("The cat and the dog", **{**LONG, **wish, "seed": seed}) for seed in range(n)]
        return [[piece.token.id for chunk in each for piece in chunk.pieces] for each in generations]


@pytest.mark.model
@pytest.mark.parametrize(("temperature", "drafter"), [(0.7, "draft-simple"), (0, "suffix"), (0, "ngram-mod")])
def test_exact_texts_are_the_same_with_and_without_drafts(
    models: Path, target: str, temperature: float, drafter: str
) -> None:
    plain = texts(settings(target, exact=True), 2, temperature=temperature)
    draft = str(models / "draft.gguf") if drafter == "draft-simple" else None
    types = {"spec_types": (drafter,), "spec_policy": "fixed"}
    assert texts(settings(target, n_slots=2, exact=True, draft=draft, **types), 2, temperature=temperature) == plain
    assert [len(text) for text in plain] == [400, 400]


@pytest.mark.model
def test_a_draft_of_the_same_weights_is_right_behind_a_shift_too(target: str) -> None:
    """Its noise and its window have to be where the text is."""
    options = settings(target, exact=True, draft=target, spec_types=("draft-simple",), spec_policy="fixed")
    with Engine.from_settings(options) as engine:
        generation = engine.generate("The cat and the dog", speculative={"p_min": 0.0}, **LONG)
        sources = [piece.token.source for chunk in generation for piece in chunk.pieces]
    assert len(sources) == 400
    assert sum(source is not None for source in sources[260:]) > 110


@pytest.mark.model
def test_without_the_flag_a_text_ends_with_its_slot(target: str) -> None:
    options = settings(target)
    with Engine.from_settings(
        Settings(model=options.model, context=options.context, engine=EngineParams(n_slots=1))
    ) as engine:
        prompt = engine.tokenize("The cat and the dog")
        assert len([p for chunk in engine.generate(prompt, **LONG) for p in chunk.pieces]) == 256 - len(prompt)
