"""The library on real libllama with tiny random models: exactness, threads, async, stops, errors."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline import Engine, Generation, Grammar
from paceline.config import ContextParams, ModelParams, Settings
from paceline.errors import (
    CannotWrite,
    ConfigError,
    ContextFull,
    EngineClosed,
    EngineFailed,
    ModelError,
    PromptError,
    RequestError,
)
from paceline.llama.model import Model
from paceline.llama.shared import SharedModels
from paceline.process.local import LocalEngine
from tests.tiny import write_bert, write_encoder, write_model

pytestmark = pytest.mark.model

PROMPTS = ["The cat and the dog", "on and on and on and on", "x = [1, 2, 3]\nx = [1, 2, 3]\n", "a" * 60]
SAMPLINGS: list[dict[str, Any]] = [{"temperature": 0.0}, {"temperature": 0.8, "seed": 7}]


def texts(engine: Engine, n: int = 40) -> list[str]:
    jobs = [(prompt, sampling) for prompt in PROMPTS for sampling in SAMPLINGS]
    return [g.text() for g in [engine.generate(p, max_tokens=n, **s) for p, s in jobs]]


@pytest.fixture(scope="module")
def expected(target: str) -> list[str]:
    with Engine(target, n_ctx=512, n_threads=2, exact=True, spec_types=[]) as engine:
        return texts(engine)


OPTIONS: dict[str, dict[str, Any]] = {
    "none": {"spec_types": []},
    "ngram-simple": {"spec_types": ["ngram-simple"]},
    "ngram-map-k": {"spec_types": ["ngram-map-k"]},
    "ngram-map-k4v": {"spec_types": ["ngram-map-k4v"]},
    "ngram-mod": {"spec_types": ["ngram-mod"]},
    "ngram-cache": {"spec_types": ["ngram-cache"]},
    "suffix": {"spec_types": ["suffix"]},
    "draft": {"draft": "draft.gguf", "draft_window": 64, "spec_types": ["draft-simple"]},
    "self": {"draft": "target.gguf", "spec_types": ["draft-simple"]},
    "look-ups": {"spec_types": ["ngram-mod", "ngram-cache", "suffix"]},
    "suffix and model": {"draft": "target.gguf", "spec_types": ["suffix", "draft-simple"]},
    "default": {"draft": "draft.gguf"},
}


@pytest.mark.parametrize("policy", ["fixed", "auto"])
@pytest.mark.parametrize("n_slots", [1, 3])
@pytest.mark.parametrize("drafter", OPTIONS)
def test_exact_text_does_not_depend_on_the_drafter(
    models: Path, target: str, expected: list[str], drafter: str, n_slots: int, policy: str
) -> None:
    options = dict(OPTIONS[drafter])
    if "draft" in options:
        options["draft"] = str(models / options["draft"])
    with Engine(
        target, n_ctx=512 * n_slots, n_slots=n_slots, n_threads=2, exact=True, spec_policy=policy, **options
    ) as engine:
        assert texts(engine) == expected
        drafted = {s.name: s for s in engine.drafter_stats()}
    if drafter == "self" and policy == "fixed":
        stats = drafted["draft-simple"]
        assert stats.n_tokens > 30
        assert stats.n_accepted_tokens >= 0.9 * stats.n_tokens


def test_the_default_mode_speculates_to_the_same_greedy_text_here(target: str) -> None:
    """Float32 weights have no quantised kernels to differ, so even the quick mode must agree."""
    with (
        Engine(target, n_ctx=512, n_threads=2) as plain,
        Engine(target, draft=target, n_ctx=512, n_threads=2, spec_policy="fixed") as fast,
    ):
        for prompt in PROMPTS:
            generation = fast.generate(prompt, max_tokens=40, temperature=0)
            assert generation.text() == plain.generate(prompt, max_tokens=40, temperature=0).text()
            assert generation.finish
            assert generation.finish.timings.n_steps < 40


def test_many_threads_get_their_own_text(target: str) -> None:
    with Engine(target, n_ctx=1024, n_slots=3, n_threads=2, exact=True) as engine:
        alone = {p: engine.generate(p, max_tokens=20, temperature=0).text() for p in PROMPTS}
        together: dict[str, str] = {}

        def work(prompt: str) -> None:
            together[prompt] = engine.generate(prompt, max_tokens=20, temperature=0).text()

        threads = [threading.Thread(target=work, args=(p,)) for p in PROMPTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert together == alone


def test_async_gives_the_same_chunks(target: str) -> None:
    async def collect(generation: Generation) -> str:
        return "".join([chunk.text async for chunk in generation])

    async def all_of_them(engine: Engine) -> list[str]:
        return await asyncio.gather(*(collect(engine.generate(p, max_tokens=20, temperature=0)) for p in PROMPTS))

    with Engine(target, n_ctx=1024, n_slots=2, n_threads=2, exact=True) as engine:
        alone = [engine.generate(p, max_tokens=20, temperature=0).text() for p in PROMPTS]
        assert asyncio.run(all_of_them(engine)) == alone


def test_a_stop_string_ends_the_text_before_it_wherever_tokens_are_cut(target: str) -> None:
    with Engine(target, n_ctx=512, n_threads=2, exact=True, draft=target) as engine:
        whole = engine.generate("The cat", max_tokens=60, temperature=0).text()
        stop = whole[20:26]
        generation = engine.generate("The cat", max_tokens=60, temperature=0, stop=[stop, "never there"])
        assert generation.text() == whole[: whole.index(stop)]
        assert generation.finish
        assert generation.finish.reason == "stop"
        assert generation.finish.stop == stop


def test_logprobs_come_with_every_token_drafted_or_not(target: str) -> None:
    def logprobs(engine: Engine) -> list[tuple[int, float | None]]:
        chunks = engine.generate("The cat", max_tokens=30, temperature=0, logprobs=3)
        return [
            (p.token.id, p.token.logprob) for chunk in chunks for p in chunk.pieces if len(p.token.top_logprobs) == 3
        ]

    with Engine(target, n_ctx=512, n_threads=2, exact=True) as plain:
        expected = logprobs(plain)
    with Engine(target, n_ctx=512, n_threads=2, exact=True, draft=target) as fast:
        assert logprobs(fast) == expected
    assert len(expected) == 30
    assert all(logprob is not None and logprob <= 0 for _, logprob in expected)


def test_leaving_early_frees_the_slot(target: str) -> None:
    with Engine(target, n_ctx=4096, n_threads=2) as engine:
        for chunk in engine.generate("The cat", temperature=0, ignore_eos=True):
            assert chunk.pieces
            break
        generation = engine.generate("The dog", max_tokens=5, temperature=0)
        assert generation.text()
        assert engine.status().slots[0].n_tokens <= 6 + len(engine.tokenize("The dog"))


def test_a_long_prompt_runs_with_a_small_draft(models: Path, target: str) -> None:
    with Engine(target, n_ctx=20480, n_threads=2, draft=str(models / "draft.gguf"), draft_window=64) as engine:
        tokens = engine.tokenize("and on " * 4000)[:20000]
        assert len(tokens) == 20000
        generation = engine.generate(tokens, max_tokens=8, temperature=0)
        generation.text()
        assert generation.finish
        assert generation.finish.timings.prompt_n == 20000
        assert generation.finish.reason == "length"


def test_a_generation_fills_the_context(models: Path, target: str) -> None:
    for exact in (False, True):
        with Engine(
            target, n_ctx=256, n_threads=2, exact=exact, draft=str(models / "draft.gguf"), draft_window=64
        ) as engine:
            generation = engine.generate("The cat", temperature=0, ignore_eos=True)
            generation.text()
            assert generation.finish
            assert generation.finish.reason == "length"
            assert engine.status().slots[0].n_tokens == 256


def test_bad_files_are_told_apart(models: Path, target: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not found"):
        Engine(str(tmp_path / "missing.gguf"))
    (tmp_path / "text.gguf").write_text("hello there")
    with pytest.raises(ModelError, match="not a GGUF file"):
        Engine(str(tmp_path / "text.gguf"))
    whole = Path(target).read_bytes()
    (tmp_path / "half.gguf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"damaged.*copied whole"):
        Engine(str(tmp_path / "half.gguf"))
    with pytest.raises(ModelError, match="needs an encoder"):
        Engine(write_encoder(tmp_path / "t5.gguf"))


@pytest.mark.parametrize(("n_extra", "n_draft_extra"), [(0, 120), (120, 0)])
def test_unused_tokens_of_one_vocabulary_hurt_nobody(
    n_extra: int, n_draft_extra: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The draft model neither drafts what the target does not know, nor is fed what it does not know itself."""
    target = write_model(tmp_path / "target.gguf", seed=1, n_extra=n_extra, scale=4.0)
    draft = write_model(tmp_path / "draft.gguf", seed=2, n_layer=1, n_embd=32, n_extra=n_draft_extra, scale=4.0)
    prompt = [65, 66, 265 + n_extra]
    with Engine(target, draft=draft, n_ctx=256, n_threads=2, spec_policy="fixed") as engine:
        engine.generate(prompt, max_tokens=40, temperature=0, speculative={"p_min": 0.0}).text()
        drafter = next(stats for stats in engine.status().drafters if stats.name == "draft-simple")
    assert drafter.n_drafts > 10
    assert "switched off" not in caplog.text


def test_bad_requests_are_refused_and_good_ones_go_on(target: str) -> None:
    with Engine(target, n_ctx=256, n_threads=2) as engine:
        with pytest.raises(ContextFull, match="300 tokens, a slot holds 256"):
            engine.generate([65] * 300)
        with pytest.raises(PromptError, match="UTF-8"):
            engine.generate(b"\xff\xfe broken")
        with pytest.raises(PromptError, match="UTF-8"):
            engine.generate("lone \ud800 surrogate")
        with pytest.raises(PromptError, match="empty"):
            engine.generate("")
        for bad in ({"top_p": 3.0}, {"temperature": float("nan")}, {"seed": -5}, {"no_such_thing": 1}):
            with pytest.raises(ConfigError):
                engine.generate("hello", **bad)
        with pytest.raises(ConfigError, match="unknown drafter"):
            engine.generate("hello", speculative={"types": ["crystal-ball"]})
        assert engine.generate("hello", max_tokens=3).text() is not None
    for options in ({"n_ctx": -1}, {"n_slots": 0}):
        with pytest.raises(ConfigError):
            Engine(target, **options)  # type: ignore[arg-type]


SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["cat", "dog"]}, "legs": {"type": "integer", "maximum": 9, "minimum": 0}},
    "required": ["name", "legs"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_a_schema_is_kept_and_its_forced_tokens_are_drafted(target: str, sampling: dict[str, Any]) -> None:
    def answer(**options: Any) -> tuple[str, int]:
        with Engine(target, n_ctx=512, n_threads=2, exact=True, spec_policy="fixed", **options) as engine:
            grammar = Grammar.json_schema(SCHEMA)
            generation = engine.generate("The cat", max_tokens=80, grammar=grammar, **sampling)
            text = generation.text()
            assert generation.finish
            assert generation.finish.reason == "stop"
            return text, generation.finish.timings.n_steps

    plain, n_plain = answer(spec_types=[])
    forced, n_forced = answer(spec_types=["grammar"])
    mixed, _ = answer(spec_types=["grammar", "ngram-simple", "draft-simple"], draft=target)
    assert set(json.loads(plain)) == {"name", "legs"}
    assert forced == plain
    assert mixed == plain
    assert n_forced < n_plain / 2


def test_an_impossible_grammar_is_refused(target: str) -> None:
    with Engine(target, n_ctx=512, n_threads=2) as engine:
        with pytest.raises(ConfigError):
            engine.generate("x", grammar=Grammar.json_schema({"type": "no-such-type"}))
        with pytest.raises(ConfigError):
            engine.generate("x", grammar=Grammar.gbnf("root ::= missing-rule"))


def test_a_slot_is_saved_and_comes_back_with_its_draft(models: Path, target: str, tmp_path: Path) -> None:
    file = str(tmp_path / "slot.bin")
    with Engine(target, n_ctx=512, n_threads=2, draft=str(models / "draft.gguf")) as engine:
        prompt = "The cat and the dog and the cat and the dog"
        first = engine.generate(prompt, max_tokens=10, temperature=0).text()
        n_tokens, n_bytes = engine.save_slot(0, file)
        assert n_bytes > 0
        assert engine.erase_slot(0) == n_tokens
        assert engine.restore_slot(0, file)[0] == n_tokens
        again = engine.generate(prompt, max_tokens=10, temperature=0)
        assert again.text() == first
        assert again.finish
        assert again.finish.timings.cache_n > 10
        Path(file).write_bytes(b"broken")
        with pytest.raises(RequestError, match=r"slot\.bin"):
            engine.restore_slot(0, file)
        assert engine.generate(prompt, max_tokens=10, temperature=0).text() == first


def test_the_planner_can_say_why(target: str) -> None:
    with Engine(target, n_ctx=512, n_threads=2) as engine:
        engine.generate("on and on and on", max_tokens=30, temperature=0).text()
        why = engine.explain()
    assert why["policy"] == "auto"
    assert why["speedup"] > 0
    assert why["actual_ms"] > 0
    assert float(why["target_ms"][1]) > 0


def test_a_model_that_only_embeds(tmp_path: Path) -> None:
    with Engine(write_bert(tmp_path / "bert.gguf"), n_threads=1) as engine:
        assert not engine.info.writes
        alone = engine.embed("hello")
        ((together,), _) = engine.embed_all(["hello", "world and more"])
        assert np.allclose(alone, together, atol=1e-5)
        assert abs(np.linalg.norm(alone) - 1) < 1e-5
        assert len(engine.embed_all(["hello"], n_values=8)[0][0]) == 8
        with pytest.raises(CannotWrite, match="makes embeddings and cannot write"):
            engine.generate("hello")
        with pytest.raises(ContextFull, match=r"65 tokens is too large: 64 .* knows no further"):
            engine.embed("x" * 65)
    with pytest.raises(EngineClosed):
        engine.embed("late")


def test_a_text_as_a_vector(demo: str) -> None:
    with Engine(demo, n_ctx=256, n_threads=2, spec_types=[]) as engine:
        cat, kitten, stocks = (
            np.array(engine.embed(text))
            for text in ("A cat sits on the mat.", "A kitten is lying on the rug.", "The stock market fell today.")
        )
        assert abs(np.linalg.norm(cat) - 1) < 1e-5
        assert cat @ kitten > cat @ stocks + 0.05
        with pytest.raises(PromptError, match="nothing to embed"):
            engine.embed([])
    with pytest.raises(EngineClosed):
        engine.embed("late")
    with pytest.raises(EngineClosed):
        engine.generate("late")


def model_of(engine: Engine) -> Model:
    assert isinstance(engine.backend, LocalEngine)
    return engine.backend.parts.model


def test_engines_can_share_their_models(target: str) -> None:
    settings = Settings(model=ModelParams(path=target), context=ContextParams(n_ctx=256, n_threads=2))
    with SharedModels() as models:
        with Engine.from_settings(settings, models=models) as first:
            expected = first.generate("on and on", max_tokens=8, temperature=0).text()
        with Engine.from_settings(settings, models=models) as second:
            assert model_of(second) is model_of(first)
            assert second.generate("on and on", max_tokens=8, temperature=0).text() == expected
    assert model_of(first).handle is None, "freed with those who share it"


def test_without_drafts_nothing_was_gained_or_lost(target: str) -> None:
    with Engine(target, n_ctx=256, n_threads=2) as engine:
        assert engine.speedup is None
        engine.generate("xyz", max_tokens=8, temperature=0, speculative={"n_max": 0}).text()
        planned = engine.status().planned
        assert planned and min(planned) > 0
        assert engine.speedup == 1.0
    with Engine(target, n_ctx=256, n_threads=2, spec_types=[]) as engine:
        assert engine.status().planned is None


def test_requests_hear_of_a_computing_thread_that_ended(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(target, n_ctx=16384, n_threads=1) as engine:
        generation = engine.generate("on and on", ignore_eos=True, max_tokens=16000)
        assert isinstance(engine.backend, LocalEngine)

        def stray() -> None:
            raise SystemExit

        monkeypatch.setattr(engine.backend.loop, "_take_over", stray)
        with pytest.raises(EngineFailed, match="the computing thread ended"):
            generation.text()
        assert not engine.health.ready
        with pytest.raises(EngineFailed, match="the computing thread ended"):
            engine.generate("later")
        monkeypatch.undo()
    with Engine(target, n_ctx=512, n_threads=1) as engine:
        assert engine.generate("again", max_tokens=3).text() is not None
