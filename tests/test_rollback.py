"""Targets that cannot forget single tokens, on the real libllama: their text is the same whatever is drafted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from paceline import Engine, Generation
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.config.drafters import DrafterSettings, NgramParams
from paceline.drafters.base import Draft, Drafter, DraftRequest
from tests.recurrent_files import write_each

pytestmark = pytest.mark.model

PROMPTS = ["on and on and on and on", "x = [1, 2, 3]\nx = [1, 2, 3]\n", "a" * 60]
SAMPLINGS: list[dict[str, Any]] = [{"temperature": 0.0}, {"temperature": 0.8, "seed": 7}]
NAMES = ["qwen35", "lfm2", "mamba", "gemma3"]
N = 60


class Forger(Drafter):
    """Drafts texts it has seen, long ones too, with a mistake now and then."""

    name = "forger"

    def __init__(self, texts: Sequence[list[int]], p_right: float = 0.9) -> None:
        self.texts = texts
        self.p_right = p_right
        self.random = random.Random(1)

    def begin(self, seq: int, tokens: Sequence[int]) -> None: ...
    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None: ...
    def end(self, seq: int, tokens: Sequence[int]) -> None: ...

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(list(request.tokens), request.n_max) for request in requests]

    def _draft(self, tokens: list[int], n_max: int) -> Draft:
        text = next((text for text in self.texts if text[: len(tokens)] == tokens), tokens)
        rest = text[len(tokens) :][: min(n_max, self.random.choice([0, 1, 3, 8, 9, 20]))]
        said = [token if self.random.random() < self.p_right else (token + 1) % 256 for token in rest]
        return Draft(said, self.name, [self.p_right] * len(said))

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_each(tmp_path_factory.mktemp("recurrent"))


def opened(
    path: str, *own: Drafter, draft: str | None = None, n_slots: int = 1, n_ctx: int = 256, **more: Any
) -> Engine:
    """Float32 caches without flash attention round so little that batches of other sizes write the same text."""
    context = ContextParams(
        n_ctx=n_ctx * n_slots, n_threads=1, flash_attn=False, cache_type_k="f32", cache_type_v="f32", n_ubatch=64
    )
    look_ups = DrafterSettings(ngram_simple=NgramParams(size_n=1, size_m=12))
    params = EngineParams(
        **{"n_slots": n_slots, "spec_types": (), "spec_policy": "fixed", "drafters": look_ups, **more}
    )
    settings = Settings(
        model=ModelParams(path=path),
        draft=ModelParams(path=draft) if draft else None,
        context=context,
        draft_context=ContextParams(n_threads=1),
        engine=params,
    )
    return Engine.from_settings(settings, drafters=own)


def tokens(generation: Generation) -> list[int]:
    return [piece.token.id for chunk in generation for piece in chunk.pieces]


def written(engine: Engine, n: int = N) -> list[list[int]]:
    """Prompts and what follows them, all at once."""
    jobs = [(prompt, sampling) for prompt in PROMPTS for sampling in SAMPLINGS]
    running = [engine.generate(prompt, max_tokens=n, ignore_eos=True, **sampling) for prompt, sampling in jobs]
    return [engine.tokenize(prompt) + tokens(g) for (prompt, _), g in zip(jobs, running, strict=True)]


Expected = Callable[[str, bool], list[list[int]]]


@pytest.fixture(scope="module")
def expected(files: dict[str, str]) -> Expected:
    """What each model writes when nothing is drafted."""
    found: dict[tuple[str, bool], list[list[int]]] = {}

    def of(name: str, exact: bool = False) -> list[list[int]]:
        if (name, exact) not in found:
            with opened(files[name], exact=exact) as engine:
                found[name, exact] = written(engine)
        return found[name, exact]

    return of


def counts(engine: Engine) -> tuple[int, int]:
    """Draft tokens that were accepted, and rejected."""
    stats = engine.drafter_stats()
    n_accepted = sum(each.n_accepted_tokens for each in stats)
    return n_accepted, sum(each.n_tokens for each in stats) - n_accepted


@pytest.mark.parametrize("n_slots", [1, 4])
@pytest.mark.parametrize("types", ["ngram-simple", "suffix", "suffix,draft-simple", "forger"])
@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_the_same_whatever_is_drafted(
    files: dict[str, str], expected: Expected, name: str, types: str, n_slots: int
) -> None:
    own = [Forger(expected(name, False))] if types == "forger" else []
    draft = files[name] if "draft" in types else None
    wanted = () if own else tuple(types.split(","))
    with opened(files[name], *own, draft=draft, n_slots=n_slots, spec_types=wanted) as engine:
        assert engine.speculation_off is None
        assert written(engine) == expected(name, False)
        n_accepted, n_rejected = counts(engine)
    assert n_accepted > 5
    assert n_rejected > 20


@pytest.mark.parametrize("n_slots", [1, 4])
@pytest.mark.parametrize("name", ["qwen35", "lfm2", "gemma3"])
def test_exact_text_is_the_same_to_the_byte(files: dict[str, str], expected: Expected, name: str, n_slots: int) -> None:
    forger = Forger(expected(name, True))
    with opened(files[name], forger, n_slots=n_slots, exact=True, spec_types=("suffix",)) as engine:
        assert written(engine) == expected(name, True)
        n_accepted, n_rejected = counts(engine)
    assert n_accepted > 50
    assert n_rejected > 20


def test_exact_mode_says_where_it_cannot_draft(
    files: dict[str, str], expected: Expected, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(files["mamba"], exact=True) as engine:
        assert engine.speculation_off is None, "the user's own choice"
    with opened(files["mamba"], exact=True, spec_types=("suffix",)) as engine:
        assert "run it without --exact" in (engine.speculation_off or "")
        assert not engine.info.drafters
        assert written(engine) == expected("mamba", True)
    said = [record.message for record in caplog.records if record.name == "paceline"]
    assert said == [f"speculation is off: {engine.speculation_off}"]


@pytest.mark.parametrize("name", NAMES)
def test_the_policy_may_choose(files: dict[str, str], expected: Expected, name: str) -> None:
    forger = Forger(expected(name, False), p_right=0.97)
    with opened(files[name], forger, spec_types=("suffix",), spec_policy="auto", n_slots=2) as engine:
        assert written(engine) == expected(name, False)


@pytest.mark.parametrize("name", NAMES)
def test_prompts_that_begin_alike_and_answers_that_are_gone_on_from(
    files: dict[str, str], expected: Expected, name: str
) -> None:
    text = expected(name, False)[0]
    again = [text[: len(text) - 30], text[: len(text) - 10], [*text[:12], 7, 8, 9], text[:15], [*text, 5, 6], text[:40]]
    sampling: dict[str, Any] = {"max_tokens": 25, "temperature": 0.0, "ignore_eos": True}
    with opened(files[name]) as engine:
        plain = [tokens(engine.generate(prompt, cache_prompt=False, **sampling)) for prompt in again]
    forger = Forger([prompt + answer for prompt, answer in zip(again, plain, strict=True)], p_right=0.8)
    with opened(files[name], forger) as engine:
        for prompt, answer in zip(again, plain, strict=True):
            assert tokens(engine.generate(prompt, **sampling)) == answer
            cancelled = engine.generate(prompt, **sampling)
            next(iter(cancelled))
            cancelled.cancel()
        n_accepted, n_rejected = counts(engine)
    assert min(n_accepted, n_rejected) > 5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("exact", [False, True])
def test_a_text_longer_than_its_slot(files: dict[str, str], name: str, exact: bool) -> None:
    long: dict[str, Any] = {"max_tokens": 200, "temperature": 0.8, "seed": 3, "ignore_eos": True}
    options: dict[str, Any] = {"n_ctx": 96, "context_shift": True, "exact": exact}
    with opened(files[name], **options) as engine:
        prompt = engine.tokenize(PROMPTS[0])
        plain = tokens(engine.generate(prompt, **long))
    with opened(files[name], spec_types=("ngram-simple",), **options) as engine:
        assert tokens(engine.generate(prompt, **long)) == plain
        assert engine.speculation_off or min(counts(engine)) > 5


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_slot_comes_back(files: dict[str, str], expected: Expected, name: str, tmp_path: Path) -> None:
    text = expected(name, False)[0]
    n_prompt = len(text) - N
    sampling: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, "slot": 0}
    with opened(files[name], Forger([text], p_right=0.7)) as engine:
        assert tokens(engine.generate(text[:n_prompt], max_tokens=30, **sampling)) == text[n_prompt : n_prompt + 30]
        n_saved, _ = engine.save_slot(0, str(tmp_path / "slot.bin"))
        engine.generate("another text", max_tokens=5, **sampling).text()
        engine.restore_slot(0, str(tmp_path / "slot.bin"))
        generation = engine.generate(text[: n_prompt + 30], max_tokens=30, **sampling)
        assert tokens(generation) == text[n_prompt + 30 :]
        assert generation.finish
        assert generation.finish.timings.cache_n == n_saved > n_prompt


@pytest.mark.parametrize("name", ["qwen35", "mamba"])
def test_measuring_between_requests_leaves_texts_as_they_are(
    files: dict[str, str], expected: Expected, name: str
) -> None:
    text = expected(name, False)[0]
    n_prompt = len(text) - N
    with opened(files[name], Forger([text]), spec_policy="auto") as engine:
        for n in (20, 40, 60):
            prompt = text[: n_prompt + n - 20]
            answer = tokens(engine.generate(prompt, max_tokens=20, temperature=0, ignore_eos=True))
            assert answer == text[len(prompt) :][:20]
            sleep(0.3)
