"""The engine against a fake context: same tokens whatever drafts, and trouble stays local."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from paceline.config import SamplingParams, SpeculativeParams
from paceline.drafters.base import Draft, DraftRequest
from paceline.engine.request import Finished, Progressed, Resume, Started, Timings
from paceline.errors import ContextFull, DecodeError, EngineFailed, NoNumbers, PromptError, RequestError
from paceline.planner.fixed import FixedPolicy
from tests.fakes import EOG, N_VOCAB, Client, FakeContext, Prophet, continuation, make_engine, run

prompts = st.lists(st.integers(0, 40), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(prompts, min_size=1, max_size=6),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    st.booleans(),
    st.integers(0, 99),
)
def test_same_tokens_whatever_drafts(texts: list[list[int]], n_slots: int, p: float, exact: bool, seed: int) -> None:
    context = FakeContext(n_ctx=128 * n_slots, n_seqs=n_slots, exact=exact)
    prophet = Prophet(p, seed)
    engine = make_engine(context, prophet)
    clients = [Client(text, max_tokens=30) for text in texts]
    run(engine, *clients)
    for client, text in zip(clients, texts, strict=True):
        assert client.tokens == continuation(text, 30)
        assert client.reason == "length"
    assert not prophet.live


def test_right_drafts_take_fewer_steps_and_are_named() -> None:
    engine = make_engine(FakeContext(), Prophet(1.0))
    client = Client([1, 2, 3], max_tokens=40)
    run(engine, client)
    assert engine.n_steps < 30
    assert client.sources.count("prophet") == engine.drafting.stats["prophet"].n_accepted_tokens > 10
    last = client.events[-1]
    assert isinstance(last, Finished)
    assert last.timings.draft_n_accepted == client.sources.count("prophet")


def test_long_prompts_are_cut_into_chunks_beside_running_slots() -> None:
    context = FakeContext(n_ctx=512, n_seqs=2)
    engine = make_engine(context)
    first, second = Client([1, 2], max_tokens=60), Client(list(range(40)) * 5, max_tokens=5)
    run(engine, first, second)
    assert second.tokens == continuation(list(range(40)) * 5, 5)
    mixed = [batch for batch in context.batches if {seq for seq, _ in batch} == {0, 1}]
    assert len(mixed) > 5
    assert max(len(batch) for batch in context.batches) <= context.n_batch


def test_a_prefix_is_not_computed_twice() -> None:
    context = FakeContext(n_seqs=2)
    engine = make_engine(context)
    prompt = list(range(30))
    first = Client(prompt, max_tokens=5)
    run(engine, first)
    context.batches.clear()
    follow_up = Client([*prompt, *first.tokens, 7, 8], max_tokens=3)
    run(engine, follow_up)
    assert sum(len(batch) for batch in context.batches) < 8
    assert follow_up.tokens == continuation([*prompt, *first.tokens, 7, 8], 3)
    last = follow_up.events[-1]
    assert isinstance(last, Finished)
    assert last.timings.cache_n >= len(prompt)


def test_exact_mode_reuses_whole_micro_batches_only() -> None:
    context = FakeContext(n_ubatch=16, exact=True)
    engine = make_engine(context)
    run(engine, Client(list(range(40)), max_tokens=5))
    again = Client(list(range(40)), max_tokens=5)
    run(engine, again)
    last = again.events[-1]
    assert isinstance(last, Finished)
    assert last.timings.cache_n == 32


@pytest.mark.parametrize("exact", [False, True])
def test_a_generation_fills_the_context_exactly(exact: bool) -> None:
    engine = make_engine(FakeContext(n_ctx=64, exact=exact), Prophet(0.9))
    client = Client([1, 2, 3], max_tokens=None)
    run(engine, client)
    assert client.reason == "length"
    assert client.tokens == continuation([1, 2, 3], 61)


def test_end_of_generation_stops_inside_a_draft() -> None:
    context = FakeContext()
    context.ends_after = 12
    engine = make_engine(context, Prophet(1.0))
    client = Client([1, 2, 3], max_tokens=100)
    run(engine, client)
    assert client.reason == "stop"
    assert client.tokens[-1] == EOG
    assert client.tokens.count(EOG) == 1


def test_a_stop_check_ends_after_its_token() -> None:
    expected = continuation([1, 2, 3], 30)
    seen: list[int] = []

    def stop(token: int) -> bool:
        seen.append(token)
        return len(seen) == 9

    client = Client([1, 2, 3], max_tokens=30, stop=stop)
    run(make_engine(FakeContext(), Prophet(1.0)), client)
    assert client.tokens == seen == expected[:9]
    assert client.reason == "stop"


def test_a_request_cancelled_during_a_step_frees_its_slot_and_nobody_else_notices() -> None:
    class Cancelling(FakeContext):
        def decode(self, batch):  # type: ignore[no-untyped-def]
            rows = super().decode(batch)
            if len(victim.tokens) >= 5:
                victim.cancel()
            return rows

    context = Cancelling(n_seqs=2)
    engine = make_engine(context, Prophet(0.5))
    victim, other = Client([1, 2], max_tokens=200), Client([3, 4], max_tokens=50)
    run(engine, victim, other)
    assert victim.reason == "cancelled"
    assert 5 <= len(victim.tokens) < 50
    assert victim.tokens == continuation([1, 2], len(victim.tokens))
    assert other.tokens == continuation([3, 4], 50)


def test_a_waiting_request_can_be_cancelled() -> None:
    engine = make_engine(FakeContext())
    first, second = Client([1], max_tokens=50), Client([2], max_tokens=50)
    engine.submit(first.active)
    engine.submit(second.active)
    engine.step()
    second.cancel()
    engine.step()
    assert second.reason == "cancelled"
    assert not second.tokens


def test_a_failing_drafter_is_switched_off_and_the_text_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Prophet):
        def draft(self, requests: object) -> list[Draft]:
            raise RuntimeError("out of luck")

    engine = make_engine(FakeContext(), Broken(1.0))
    client = Client([1, 2, 3])
    run(engine, client)
    assert client.tokens == continuation([1, 2, 3], 20)
    assert len([r for r in caplog.records if "switched off" in r.message]) == 1
    assert not engine.drafting.drafters


def test_limits_of_the_request_bound_the_drafts() -> None:
    class Eager(Prophet):
        def _draft(self, ask: DraftRequest) -> Draft:
            tokens = continuation(ask.tokens, ask.n_max)
            return Draft(tokens, self.name, [1.0] * len(tokens))

    eager = Eager(1.0)
    run(make_engine(FakeContext(), eager), Client([1], speculative=SpeculativeParams(n_max=3)))
    assert {n for n, _ in eager.accepted} <= {1, 2, 3}
    assert (3, 3) in eager.accepted

    short = Eager(1.0)
    run(make_engine(FakeContext(), short), Client([1], speculative=SpeculativeParams(n_max=3, n_min=3)))
    assert {n for n, _ in short.accepted} == {3}

    none = Eager(1.0)
    run(make_engine(FakeContext(), none), Client([1], speculative=SpeculativeParams(types=())))
    assert not none.accepted


def test_a_full_shared_cache_forgets_idle_prefixes_then_lets_the_newest_wait() -> None:
    context = FakeContext(n_ctx=100, n_seqs=3)
    engine = make_engine(context, Prophet(0.9))
    run(engine, Client(list(range(40)), max_tokens=2))
    old, new = Client(list(range(10)), max_tokens=50), Client(list(range(5, 45)), max_tokens=50)
    run(engine, old, new)
    assert old.tokens == continuation(list(range(10)), 50)
    assert new.tokens == continuation(list(range(5, 45)), 50)
    done = new.events[-1]
    assert isinstance(done, Finished)
    assert (done.timings.predicted_n, done.timings.prompt_n) == (50, 40)
    assert sum(isinstance(event, Started) for event in new.all_events) == 2
    assert done.timings.draft_n_accepted == new.sources.count("prophet")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(prompts, st.integers(1, 60)), min_size=2, max_size=9),
    st.integers(2, 4),
    st.integers(101, 160),
    st.sampled_from([0.0, 0.9]),
)
def test_everyone_is_served_where_memory_holds_some_at_a_time(
    jobs: list[tuple[list[int], int]], n_slots: int, n_ctx: int, p: float
) -> None:
    heard: list[int] = []

    def stop(token: int) -> bool:
        heard.append(token)
        return False

    prophet = Prophet(p)
    clients = [Client(prompt, max_tokens=n, stop=stop) for prompt, n in jobs]
    run(make_engine(FakeContext(n_ctx=n_ctx, n_seqs=n_slots), prophet), *clients)
    for client, (prompt, n) in zip(clients, jobs, strict=True):
        assert client.tokens == continuation(prompt, n)
        assert client.reason == "length"
    assert len(heard) == sum(n for _, n in jobs)
    assert not prophet.live


def test_a_request_that_waits_for_memory_can_be_cancelled_and_is_not_overtaken() -> None:
    engine = make_engine(FakeContext(n_ctx=100, n_seqs=3))
    old, new, later = Client(list(range(40)), 55), Client(list(range(30)), 60), Client([1], 1)
    for client in (old, new):
        engine.submit(client.active)
    while not new.active.paused:
        engine.step()
    engine.submit(later.active)
    engine.step()
    assert not later.all_events
    n = len(new.tokens)
    new.cancel()
    run(engine)
    assert new.reason == "cancelled"
    assert new.tokens == continuation(list(range(30)), n)
    assert old.tokens == continuation(list(range(40)), 55)
    assert later.reason == "length"


def test_a_batch_that_cannot_be_computed_fails_its_requests_and_no_later_ones() -> None:
    context = FakeContext()
    engine = make_engine(context)
    context.fail_next = True
    unlucky, lucky = Client([1, 2]), Client([3, 4])
    run(engine, unlucky, lucky)
    assert isinstance(unlucky.error, DecodeError)
    assert lucky.tokens == continuation([3, 4], 20)


class Odd:
    """A grammar that allows two tokens, or breaks."""

    def __init__(self, *allowed: int) -> None:
        self.allowed = allowed

    def forced(self) -> list[int]:
        return []

    def n_valid(self, tokens: Sequence[int]) -> int:
        return 0

    def mask(self) -> npt.NDArray[np.bool_]:
        assert self.allowed, "a bug"
        return np.isin(np.arange(N_VOCAB), self.allowed)

    def allows(self, token: int) -> bool:
        return token in self.allowed

    def consume(self, token: int) -> None:
        assert token in self.allowed


@pytest.mark.parametrize(("grammar", "error"), [(Odd(3, 4), RequestError), (Odd(), EngineFailed)])
def test_what_goes_wrong_in_a_draw_ends_one_request_alone(
    grammar: Odd, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine(FakeContext(n_seqs=3), Prophet(0.8))
    good, bad, waiting = Client([1, 2]), Client([3, 4]), Client([5])
    no_digits = SamplingParams(temperature=0, logit_bias={3: -math.inf, 4: -math.inf})
    bad.active.request = replace(bad.request, sampling=no_digits)
    bad.active.grammar = grammar
    run(engine, good, bad, waiting)
    assert type(bad.error) is error
    assert error is EngineFailed or "the grammar and the logit bias leave no token" in str(bad.error)
    assert ("a bug" in caplog.text) == (error is EngineFailed)
    assert good.tokens == continuation([1, 2], 20)
    assert waiting.tokens == continuation([5], 20)


@pytest.mark.parametrize("n_slots", [1, 3])
@pytest.mark.parametrize("drafters", [[], [Prophet(1.0)]], ids=["plain", "drafted"])
def test_logits_that_are_no_numbers_fail_their_request_and_spoil_no_other(
    n_slots: int, drafters: list[Prophet]
) -> None:
    """In the shared memory they reach everybody's logits, in the same step and for as long as the cells are there."""
    context = FakeContext(n_seqs=n_slots)
    engine = make_engine(context, *drafters)
    texts = [[1, 2], [4, 5], [6]]
    good, bad = [Client(text, max_tokens=20) for text in texts], Client([44, EOG, 45])
    context.broken = EOG
    run(engine, good[0], bad, good[1], good[2])
    assert isinstance(bad.error, NoNumbers)
    assert bad.tokens == []
    for client, text in zip(good, texts, strict=True):
        assert client.tokens == continuation(text, 20)
        assert client.reason == "length"


def test_what_cannot_be_served_is_refused_with_numbers() -> None:
    engine = make_engine(FakeContext(n_ctx=64))
    with pytest.raises(ContextFull, match=r"64 tokens.*holds 64"):
        engine.submit(Client([1] * 64).active)
    with pytest.raises(PromptError, match="empty"):
        engine.submit(Client([]).active)
    with pytest.raises(PromptError, match="outside the vocabulary"):
        engine.submit(Client([1, 999]).active)


def test_no_tokens_wanted_gives_none() -> None:
    client = Client([1, 2], max_tokens=0)
    run(make_engine(FakeContext()), client)
    assert client.tokens == []
    assert client.reason == "length"


@pytest.mark.parametrize("exact", [False, True])
def test_a_prompt_can_be_read_for_later(exact: bool) -> None:
    prompt = [i % 40 for i in range(70)]
    context = FakeContext(exact=exact)
    engine = make_engine(context)
    run(engine, Client(prompt, max_tokens=0))
    context.batches.clear()
    client = Client([*prompt, 3, 4], max_tokens=5)
    run(engine, client)
    assert client.tokens == continuation([*prompt, 3, 4], 5)
    last = client.events[-1]
    assert isinstance(last, Finished)
    assert last.timings.cache_n >= (64 if exact else 70)


def test_how_far_a_prompt_is_read_is_told_who_asks() -> None:
    prompt = [i % 40 for i in range(100)]
    client, other = Client(prompt, max_tokens=3), Client(prompt, max_tokens=3)
    client.active.request = replace(client.active.request, progress=True)
    run(make_engine(FakeContext(n_ctx=512, n_seqs=2)), client, other)
    told = [event.timings for event in client.events if isinstance(event, Progressed)]
    assert told[0] == Timings()
    assert [timings.prompt_n for timings in told] == sorted({timings.prompt_n for timings in told})
    assert told[-1].prompt_n == 100
    assert not any(isinstance(event, Progressed) for event in other.events)


def test_a_slot_is_chosen_for_its_prefix_unless_nobody_is_to_look() -> None:
    for similarity, cached in ((0.1, True), (0.9, False), (0.0, False)):
        engine = make_engine(FakeContext(n_seqs=2), similarity=similarity)
        first, second = Client(list(range(20)), max_tokens=1), Client([*range(10), *range(30, 40)], max_tokens=1)
        run(engine, first)
        run(engine, second)
        last = second.events[-1]
        assert isinstance(last, Finished)
        assert (last.timings.cache_n > 0) == cached


class Padding(FixedPolicy):
    """Wants batches of at least eight tokens."""

    def size(self, n_tokens: int) -> int:
        return max(8, n_tokens)


@pytest.mark.parametrize("n_ctx", [256, 64])
def test_padding_changes_nothing_and_leaves_nothing_behind(n_ctx: int) -> None:
    """Also where there is no room for it at the end of the context."""
    context = FakeContext(n_ctx=n_ctx, n_seqs=2)
    engine = make_engine(context, Prophet(0.5))
    engine.drafting.policy = Padding()
    clients = [Client([1, 2, 3], max_tokens=20), Client([4, 5], max_tokens=None if n_ctx == 64 else 30)]
    run(engine, *clients)
    assert clients[0].tokens == continuation([1, 2, 3], 20)
    assert clients[1].tokens == continuation([4, 5], len(clients[1].tokens))
    assert any(len(batch) == 8 for batch in context.batches)
    assert all(cells == slot.tokens[: slot.n_computed] for cells, slot in zip(context.cells, engine.slots, strict=True))


# -- going on after another engine


@settings(max_examples=60, deadline=None)
@given(prompts, st.integers(1, 30), st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), st.integers(0, 99))
def test_a_request_goes_on_where_another_engine_left_it(
    prompt: list[int], n_known: int, p: float, exact: bool, seed: int
) -> None:
    """Nothing is emitted twice, and the clock and the limit of the first engine count."""
    known = continuation(prompt, n_known)
    before = Timings(
        prompt_n=len(prompt), prompt_ms=5.0, predicted_n=n_known, predicted_ms=70.0, n_steps=9, queue_ms=3.0
    )
    beside = Client([1, 2, 3], max_tokens=25)
    client = Client(prompt, max_tokens=30, resume=Resume(known, before))
    run(make_engine(FakeContext(n_ctx=256, n_seqs=2, exact=exact), Prophet(p, seed)), beside, client)
    assert known + client.tokens == continuation(prompt, 30)
    assert client.reason == "length"
    assert beside.tokens == continuation([1, 2, 3], 25)
    last = client.events[-1]
    assert isinstance(last, Finished)
    assert last.timings.predicted_n == 30
    assert (last.timings.prompt_ms, last.timings.queue_ms) == pytest.approx((5.0, 3.0))
    assert last.timings.n_steps == 9 if n_known == 30 else last.timings.n_steps > 9


def test_a_request_whose_end_was_not_heard_ends_again() -> None:
    """The other engine died between the last token and the word that it was the last."""
    known = continuation([1, 2, 3], 9)
    seen: list[int] = []

    def ninth(token: int) -> bool:
        seen.append(token)
        return len(seen) == 9

    by_limit = Client([1, 2, 3], max_tokens=9, resume=Resume(known, Timings(predicted_n=9)))
    by_stop = Client([1, 2, 3], max_tokens=30, stop=ninth, resume=Resume(known, Timings(predicted_n=9)))
    run(make_engine(FakeContext(n_seqs=2), Prophet(1.0)), by_limit, by_stop)
    assert by_limit.tokens == by_stop.tokens == []
    assert (by_limit.reason, by_stop.reason) == ("length", "stop")


def test_a_group_ends_with_the_first_that_is_done() -> None:
    quick, slow, other = Client([1], max_tokens=10, group=7), Client([2], max_tokens=90, group=7), Client([3], 40)
    run(make_engine(FakeContext(n_ctx=512, n_seqs=3)), quick, slow, other)
    assert len(quick.tokens) == 10
    assert 9 <= len(slow.tokens) <= 12
    assert slow.reason == "stop"
    assert len(other.tokens) == 40
