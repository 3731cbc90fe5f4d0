"""A memory that cannot be cut where one likes, against a fake context: the same tokens whatever drafts, and nothing
wrong remembered."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.engine.memory import Memory
from paceline.engine.slot import Slot
from tests.fakes import Client, Prophet, RecurrentContext, continuation, make_engine, run

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8]


prompts = st.lists(st.integers(0, 3), min_size=1, max_size=30)
n_rollbacks = st.sampled_from([0, 1, 3, 8])


@settings(max_examples=60, deadline=None)
@given(st.lists(prompts, min_size=1, max_size=6), st.integers(1, 4), n_rollbacks, st.sampled_from([0.0, 0.5, 0.9]))
def test_same_tokens_whatever_drafts(texts: list[list[int]], n_slots: int, n_rollback: int, p: float) -> None:
    context = RecurrentContext(n_rollback, n_ctx=128 * n_slots, n_batch=24, n_seqs=n_slots)
    clients = [Client(text, max_tokens=30) for text in texts]
    run(make_engine(context, Prophet(p)), *clients)
    for client, text in zip(clients, texts, strict=True):
        assert client.tokens == continuation(text, 30)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(prompts, st.integers(0, 12), st.booleans()), min_size=2, max_size=12),
    st.integers(1, 3),
    n_rollbacks,
)
def test_nothing_wrong_is_remembered(
    arrivals: list[tuple[list[int], int, bool]], n_slots: int, n_rollback: int
) -> None:
    """Requests come while others run, some are cancelled soon, and prompts begin alike or go on from an answer."""
    context = RecurrentContext(n_rollback, n_ctx=96 * n_slots, n_seqs=n_slots)
    engine = make_engine(context, Prophet(0.6), cache_ram=1)
    clients: list[Client] = []
    for prompt, n_steps, cancelled in arrivals:
        before = clients[-1].request.tokens + clients[-1].tokens if clients and n_steps % 2 else []
        client = Client([*before, *prompt][:50], max_tokens=25)
        clients.append(client)
        engine.submit(client.active)
        for _ in range(n_steps):
            engine.step()
        if cancelled:
            client.cancel()
    run(engine)
    for client in clients:
        assert client.reason in ("length", "cancelled")
        assert client.tokens == continuation(client.request.tokens, 25)[: len(client.tokens)]


@pytest.mark.parametrize("can_shift", [True, False])
@pytest.mark.parametrize("n_rollback", [0, 4])
def test_a_text_goes_on_when_its_slot_is_full(n_rollback: int, can_shift: bool) -> None:
    context = RecurrentContext(n_rollback, n_ctx=128, n_seqs=2)
    context.can_shift = can_shift
    clients = [Client(PROMPT, max_tokens=300), Client(PROMPT[3:], max_tokens=150)]
    run(make_engine(context, Prophet(0.7), context_shift=True), *clients)
    for client, n in zip(clients, (300, 150), strict=True):
        assert client.tokens == continuation(client.request.tokens, n)


def test_short_drafts_need_no_checkpoint_and_right_ones_no_return() -> None:
    short, right = RecurrentContext(64), RecurrentContext(0)
    for context, p in ((short, 0.5), (right, 1.0)):
        client = Client(PROMPT, max_tokens=60)
        run(make_engine(context, Prophet(p)), client)
        assert client.tokens == continuation(PROMPT, 60)
    assert short.n_marks == 0
    assert right.n_marks > 0
    assert right.n_returns <= 1, "the last draft may be longer than the text"


def test_a_step_after_a_return_computes_again_and_drafts_nothing() -> None:
    context = RecurrentContext(0)
    client = Client(PROMPT, max_tokens=40)
    run(make_engine(context, Prophet(0.0)), client)
    sizes = [len(batch) for batch in context.batches[1:]]
    assert context.n_returns > 5
    assert all(after == 2 for before, after in pairwise(sizes) if before > 2)


def test_a_checkpoint_serves_a_prompt_that_begins_alike_and_no_other() -> None:
    context = RecurrentContext(0)
    slot = Slot(0, tokens=list(range(20)), n_computed=10, n_reusable=10)
    memory = Memory(context, [slot], shared=True, border=1, similarity=0.1)
    context.cells[0] = list(range(10))
    memory.checkpoints.take(0, 10, n_drafted=5)
    context.cells[0] = list(range(20))
    slot.n_computed = slot.n_reusable = 20
    memory.take(slot, [*range(15), 99, 98])
    assert (slot.n_computed, context.cells[0]) == (10, list(range(10)))
    memory.take(slot, [*range(5), 99])
    assert (slot.n_computed, context.cells[0]) == (0, [])
    slot.tokens, slot.n_computed, slot.n_reusable = list(range(30, 50)), 20, 20
    context.cells[0] = list(range(30, 50))
    memory.take(slot, [*range(30, 45), 99])
    assert (slot.n_computed, context.cells[0]) == (0, []), "the checkpoint was of another text"
