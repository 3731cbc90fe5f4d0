"""Prompts set aside in memory: brought back for who needs them, bounded, and never another text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from paceline import Engine
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.engine.prompt_cache import N_KEPT, TOKEN_BYTES, Kept, PromptCache
from paceline.engine.request import Finished
from tests.fakes import Client, FakeContext, Prophet, continuation, make_engine, run

CHAT = list(range(40))
TITLE = list(range(40, 5, -1))


def kept(tokens: list[int], n_bytes: int = 2000, adapter: str | None = None) -> Kept:
    return Kept(tokens, np.zeros(n_bytes - TOKEN_BYTES * len(tokens), np.uint8), adapter)


def n_cached(client: Client) -> int:
    last = client.events[-1]
    assert isinstance(last, Finished)
    return last.timings.cache_n


# -- the cache itself


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    cache = PromptCache(7000)
    texts = [[i] * 20 for i in range(4)]
    for text in texts[:3]:
        cache.put(kept(text))
    assert cache.find(texts[0], None, 0)
    cache.put(kept(texts[3]))
    assert [cache.find(text, None, 0) is not None for text in texts] == [True, False, True, True]
    assert cache.n_bytes == 6000
    cache.put(kept([9] * 20, 8000))
    assert cache.n_prompts == 0
    assert not cache.takes(7001)


def test_there_are_never_too_many() -> None:
    cache = PromptCache(None)
    for i in range(N_KEPT + 10):
        cache.put(kept([i] * 20))
    assert cache.n_prompts == N_KEPT
    assert cache.takes(2**50)


def test_a_longer_text_replaces_what_it_goes_on_from() -> None:
    cache = PromptCache(None)
    cache.put(kept(CHAT[:20]))
    cache.put(kept(CHAT[:20], adapter="other"))
    cache.put(kept(CHAT[:30]))
    assert cache.n_prompts == 2
    assert cache.covers(CHAT[:25], None)
    assert not cache.covers(CHAT[:25], "other")
    assert not cache.covers(CHAT, None)


def test_only_what_is_worth_it_is_found() -> None:
    cache = PromptCache(None)
    cache.put(kept([*CHAT[:20], *[0] * 80], 10_000))
    assert cache.find(CHAT, None, 0) is None, "a fifth of it"
    cache.put(kept(CHAT[:30], 10_000))
    assert cache.find(CHAT, None, 20) is None, "ten tokens more"
    assert cache.find(CHAT, "adapter", 0) is None
    found = cache.find(CHAT, None, 10)
    assert found
    assert found.tokens == CHAT[:30]


# -- in the engine


@pytest.mark.parametrize("exact", [False, True])
def test_chat_title_chat_remembers_the_chat(exact: bool) -> None:
    """With one slot only: what was read before the title is brought back."""
    engine = make_engine(FakeContext(exact=exact), cache_ram=1)
    chat = Client(CHAT, max_tokens=5)
    run(engine, chat)
    run(engine, Client(TITLE, max_tokens=5))
    again = [*CHAT, *chat.tokens, 3, 4]
    client = Client(again, max_tokens=5)
    run(engine, client)
    assert client.tokens == continuation(again, 5)
    assert n_cached(client) == (32 if exact else 44)


def test_without_a_cache_it_does_not() -> None:
    engine = make_engine(FakeContext())
    for text in (CHAT, TITLE, CHAT):
        client = Client(text, max_tokens=5)
        run(engine, client)
    assert n_cached(client) < 5


def test_a_request_may_want_nothing_of_it() -> None:
    engine = make_engine(FakeContext(), cache_ram=1)
    for text in (CHAT, TITLE, CHAT):
        client = Client(text, max_tokens=5, cache_prompt=False)
        run(engine, client)
    assert n_cached(client) == 0


def test_idle_slots_make_room_for_who_comes() -> None:
    for aside in (True, False):
        context = FakeContext(n_seqs=2)
        engine = make_engine(context, cache_ram=1, cache_idle_slots=aside)
        run(engine, Client(CHAT, max_tokens=5, slot=0))
        run(engine, Client(TITLE, max_tokens=5, slot=1))
        assert bool(context.cells[0]) is not aside
        client = Client(CHAT, max_tokens=5)
        run(engine, client)
        assert n_cached(client) == 39


def test_slots_with_cells_of_their_own_keep_them() -> None:
    context = FakeContext(n_seqs=2, exact=True)
    engine = make_engine(context, cache_ram=1)
    run(engine, Client(CHAT, max_tokens=5, slot=0))
    run(engine, Client(TITLE, max_tokens=5, slot=1))
    assert context.cells[0]


def test_adapters_do_not_share_what_they_computed() -> None:
    engine = make_engine(FakeContext(), cache_ram=1)
    run(engine, Client(CHAT, max_tokens=5, adapter="a"))
    for adapter, n in (("b", 0), ("a", 39), (None, 0), ("b", 39)):
        client = Client(CHAT, max_tokens=5, adapter=adapter)
        run(engine, client)
        assert n_cached(client) == n, adapter


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 2), max_size=4), st.integers(1, 20), st.booleans()), min_size=1, max_size=12
    ),
    st.integers(1, 3),
    st.booleans(),
)
def test_no_text_ever_changes(jobs: list[tuple[list[int], int, bool]], n_slots: int, exact: bool) -> None:
    """Prompts of a few building blocks, so that they have beginnings in common; in a cache that holds a few of them."""
    blocks = [CHAT[:20], TITLE[:18], CHAT[20:]]
    context = FakeContext(n_ctx=160 * (n_slots if exact else 1), n_seqs=n_slots, exact=exact)
    engine = make_engine(context, Prophet(0.8), cache_ram=1)
    assert engine.memory.cache
    engine.memory.cache._n_most = 8000
    for parts, n, alone in jobs:
        prompt = [1, *(token for part in parts for token in blocks[part])]
        clients = [Client(prompt, max_tokens=n)] + ([] if alone else [Client(prompt[:30], max_tokens=n)])
        run(engine, *clients)
        assert all(client.tokens == continuation(client.request.tokens, n) for client in clients)
        assert engine.memory.cache.n_bytes <= 8000


# -- real models


def settings(target: str, **engine: Any) -> Settings:
    context = ContextParams(n_ctx=1024, n_ubatch=32, n_batch=64, n_threads=1)
    return Settings(model=ModelParams(path=target), context=context, engine=EngineParams(**engine))


@pytest.mark.model
@pytest.mark.parametrize("exact", [True, False])
def test_what_is_brought_back_is_the_same_to_the_bit(target: str, exact: bool) -> None:
    """Log-probabilities after a prompt that was set aside, beside those of one that stayed in its slot."""
    chat, title = "The cat and the dog. " * 6, "Now something else entirely; " * 5
    rows = []
    with Engine.from_settings(settings(target, exact=exact, cache_ram=10)) as engine:
        for prompt in (chat, title, chat + " Then"):
            generation = engine.generate(prompt, max_tokens=12, temperature=0, logprobs=3)
            rows.append([piece.token for chunk in generation for piece in chunk.pieces])
            n_held = generation.finish.timings.cache_n if generation.finish else 0
    assert n_held >= 96
    with Engine.from_settings(settings(target, exact=exact)) as engine:
        generation = engine.generate(chat, max_tokens=12, temperature=0)
        generation.text()
        generation = engine.generate(chat + " Then", max_tokens=12, temperature=0, logprobs=3)
        assert [piece.token for chunk in generation for piece in chunk.pieces] == rows[-1]
