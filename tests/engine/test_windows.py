"""Models with a sliding window: a text that goes on from a remembered beginning is the one that is read from its start,
whoever else is in the memory and however it came back there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline import Engine
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from tests.recurrent_files import write_gemma3

N_SLOTS, N_WRITTEN = 4, 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_gemma3(tmp_path_factory.mktemp("windows") / "gemma3.gguf")


def opened(model: str, *, n_slots: int = N_SLOTS, cache_ram: int = 0) -> Engine:
    """Nothing depends on how batches round: float32 in the cache, and no flash attention."""
    context = ContextParams(n_ctx=256 * n_slots, n_threads=1, cache_type_k="f32", cache_type_v="f32", flash_attn=False)
    engine = EngineParams(n_slots=n_slots, cache_ram=cache_ram)
    return Engine.from_settings(Settings(model=ModelParams(path=model), context=context, engine=engine))


@pytest.fixture(scope="module")
def fresh(model: str) -> Iterator[Engine]:
    with opened(model, n_slots=1) as engine:
        yield engine


def write(engine: Engine, prompt: list[int], slot: int = 0, *, cached: bool = True) -> list[int]:
    generation = engine.generate(
        prompt, max_tokens=N_WRITTEN, temperature=0, ignore_eos=True, slot=slot, cache_prompt=cached
    )
    return [piece.token.id for chunk in generation for piece in chunk.pieces]


def text(seed: int, n: int) -> list[int]:
    return random.Random(seed).choices(range(256), k=n)


def test_prefixes_of_several_slots(model: str, fresh: Engine) -> None:
    """In one pool 9 of 25 such texts were wrong."""
    rnd = random.Random(3)
    held: list[list[int]] = [[] for _ in range(N_SLOTS)]
    with opened(model) as engine:
        for i in range(25):
            slot = rnd.randrange(N_SLOTS)
            prompt = [*held[slot][: len(held[slot]) // 2], *text(i, rnd.randint(1, 40))][:90]
            written = write(engine, prompt, slot)
            assert written == write(fresh, prompt, cached=False)
            held[slot] = prompt + written


def test_a_saved_slot_of_which_only_a_part_is_used(model: str, fresh: Engine, tmp_path: Path) -> None:
    long = text(1, 150)
    with opened(model) as engine:
        write(engine, long)
        engine.save_slot(0, str(tmp_path / "slot"))
        engine.restore_slot(1, str(tmp_path / "slot"))
        for n in (149, 100, 40):
            engine.restore_slot(1, str(tmp_path / "slot"))
            prompt = [*long[:n], *text(n, 7)]
            assert write(engine, prompt, 1) == write(fresh, prompt, cached=False)


def test_a_prompt_that_was_set_aside_of_which_only_a_part_is_used(model: str, fresh: Engine) -> None:
    long = text(2, 150)
    with opened(model, n_slots=1, cache_ram=64) as engine:
        for n in (149, 100, 40):
            write(engine, long)
            write(engine, text(9, 60))
            prompt = [*long[:n], *text(n, 7)]
            assert write(engine, prompt) == write(fresh, prompt, cached=False)
