"""A memory that cannot be cut where one likes, against a fake context: the same tokens whatever drafts, and nothing
wrong remembered."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.engine.memory import Memory
from paceline.engine.slot import Slot
from paceline.errors import NoNumbers
from tests.fakes import EOG, Client, Prophet, RecurrentContext, continuation, make_engine, run

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


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(prompts, st.integers(1, 60)), min_size=3, max_size=8),
    st.integers(2, 4),
    st.integers(101, 140),
    n_rollbacks,
)
def test_everyone_is_served_where_memory_holds_some_at_a_time(
    jobs: list[tuple[list[int], int]], n_slots: int, n_ctx: int, n_rollback: int
) -> None:
    """A step has several batches, and a request that pauses in one of them is not computed in the next."""
    prophet = Prophet(0.8)
    clients = [Client(prompt, max_tokens=n) for prompt, n in jobs]
    run(make_engine(RecurrentContext(n_rollback, n_ctx=n_ctx, n_seqs=n_slots), prophet), *clients)
    for client, (prompt, n) in zip(clients, jobs, strict=True):
        assert client.tokens == continuation(prompt, n)
    assert not prophet.live


def test_logits_that_are_no_numbers_fail_their_request_and_no_other() -> None:
    context = RecurrentContext(4, n_ctx=256, n_seqs=4)
    context.broken = EOG
    good = [Client([i, i + 1], max_tokens=30) for i in range(3)]
    bad = Client([5, EOG, 6], max_tokens=30)
    run(make_engine(context, Prophet(1.0)), bad, *good)
    assert isinstance(bad.error, NoNumbers)
    for client in good:
        assert client.tokens == continuation(client.request.tokens, 30)


@pytest.mark.parametrize("can_shift", [True, False])
@pytest.mark.parametrize("n_rollback", [0, 4])
def test_a_text_goes_on_when_its_slot_is_full(n_rollback: int, can_shift: bool) -> None:
    left = []
    for prophets in ([Prophet(0.7)], [Prophet(0.0)], []):
        context = RecurrentContext(n_rollback, n_ctx=64)
        context.can_shift = can_shift
        client = Client(PROMPT, max_tokens=300)
        engine = make_engine(context, *prophets, context_shift=True)
        run(engine, client)
        assert client.tokens == continuation(PROMPT, 300)
        left.append(engine.slots[0].tokens)
    assert left[0] == left[1] == left[2], "the same tokens were dropped, whatever is to be computed again"


def test_short_drafts_need_no_checkpoint_and_right_ones_no_return() -> None:
    short, right = RecurrentContext(64), RecurrentContext(0)
    for context, p in ((short, 0.5), (right, 1.0)):
        client = Client(PROMPT, max_tokens=60)
        run(make_engine(context, Prophet(p)), client)
        assert client.tokens == continuation(PROMPT, 60)
    assert short.n_marks == 0
    assert right.n_marks > 0
    assert right.n_returns <= 1, "the last draft may be longer than the text"


@pytest.mark.parametrize("n_rollback", [0, 3, 64])
def test_neighbours_do_not_keep_a_draft_from_being_taken_back(n_rollback: int) -> None:
    context = RecurrentContext(n_rollback, n_ctx=512, n_seqs=3)
    clients = [Client([i, i + 1], max_tokens=50) for i in range(3)]
    run(make_engine(context, Prophet(0.6)), *clients)
    assert [client.tokens for client in clients] == [continuation([i, i + 1], 50) for i in range(3)]
    assert context.n_emptied == 0


def test_a_step_after_a_return_computes_again_and_drafts_nothing() -> None:
    context = RecurrentContext(0)
    client = Client(PROMPT, max_tokens=40)
    run(make_engine(context, Prophet(0.0)), client)
    sizes = [len(batch) for batch in context.batches[1:]]
    assert context.n_returns > 5
    assert all(after == 2 for before, after in pairwise(sizes) if before > 2)


def marked() -> tuple[RecurrentContext, Slot, Memory]:
    """A slot with twenty tokens, and a checkpoint after ten."""
    context = RecurrentContext(0)
    slot = Slot(0, tokens=list(range(20)), n_computed=20, n_reusable=20)
    memory = Memory(context, [slot], shared=True, border=1, similarity=0.1)
    context.cells[0] = list(range(10))
    memory.checkpoints.take(0, 10, n_drafted=5)
    context.cells[0] = list(range(20))
    return context, slot, memory


def test_a_checkpoint_is_of_no_use_once_the_text_before_it_has_changed() -> None:
    context, slot, memory = marked()
    memory.shift(slot, 4, 8)
    assert slot.tokens == context.cells[0] == [0, 1, 2, 3, *range(8, 20)]
    memory.take(slot, [*slot.tokens[:12], 99, 98])
    assert (slot.n_computed, context.cells[0]) == (0, [])


def test_tokens_that_are_to_be_computed_again_are_not_dropped_from_memory() -> None:
    context, slot, memory = marked()
    memory.keep(slot, 15)
    assert (slot.n_computed, context.cells[0]) == (10, list(range(10)))
    memory.shift(slot, 2, 12)
    assert slot.tokens == [0, 1, *range(12, 20)]
    assert slot.tokens[: slot.n_computed] == context.cells[0]


def test_a_checkpoint_serves_a_prompt_that_begins_alike_and_no_other() -> None:
    context, slot, memory = marked()
    memory.take(slot, [*range(15), 99, 98])
    assert (slot.n_computed, context.cells[0]) == (10, list(range(10)))
    memory.take(slot, [*range(5), 99])
    assert (slot.n_computed, context.cells[0]) == (0, [])
    slot.tokens, slot.n_computed, slot.n_reusable = list(range(30, 50)), 20, 20
    context.cells[0] = list(range(30, 50))
    memory.take(slot, [*range(30, 45), 99])
    assert (slot.n_computed, context.cells[0]) == (0, []), "the checkpoint was of another text"
