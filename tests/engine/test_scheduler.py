"""How many prompt tokens join a step of running answers."""

from __future__ import annotations

import pytest

from paceline.engine.scheduler import LEAST_CHUNK, STRETCH, PromptShare, Scheduler, Work, by_length
from paceline.engine.slot import Slot
from tests.fakes import Client


def settle(pace: PromptShare, per_step: float, per_token: float, n_steps: int = 200) -> int:
    for _ in range(20):
        pace.observe(0, per_step)
    for _ in range(n_steps):
        n = pace.n_prompt
        pace.observe(n, per_step + per_token * n)
    return pace.n_prompt


@pytest.mark.parametrize("per_token", [0.1, 0.02, 0.5])
def test_prompt_tokens_stretch_a_step_as_far_as_allowed(per_token: float) -> None:
    n = settle(PromptShare(512), per_step=1.0, per_token=per_token)
    assert n == pytest.approx((STRETCH - 1) / per_token, abs=1.5) or n == LEAST_CHUNK


def test_where_they_cost_nothing_a_whole_batch_joins() -> None:
    assert settle(PromptShare(512), per_step=1.0, per_token=1e-6) == 512


def test_where_they_cost_too_much_a_few_still_do() -> None:
    assert settle(PromptShare(512), per_step=1.0, per_token=10.0) == LEAST_CHUNK


def test_a_small_rest_of_a_prompt_teaches_nothing() -> None:
    pace = PromptShare(512)
    n = settle(pace, per_step=1.0, per_token=0.1)
    for _ in range(100):
        pace.observe(1, 1.1)
    assert pace.n_prompt == pytest.approx(n, abs=1)


def test_where_any_prompt_token_makes_a_step_slow_many_join() -> None:
    """A GPU's graph is built anew: 16 tokens take seven plain steps, and so do 500."""
    pace = PromptShare(512)
    for _ in range(20):
        pace.observe(0, 1.0)
    for _ in range(40):
        pace.observe(pace.n_prompt, 7.0 + 0.002 * pace.n_prompt)
    assert pace.n_prompt == 512


def test_batches_of_states_are_even_and_fit_a_micro_batch() -> None:
    works = [Work(Slot(seq), [0] * n, 1) for seq, n in enumerate([1, 5, 1, 9, 5, 5, 1, 40])]
    batches = by_length(works, n_ubatch=12)
    assert sorted(work.slot.seq for batch in batches for work in batch) == list(range(8))
    assert [[len(work.tokens) for work in batch] for batch in batches] == [[1, 1, 1], [5, 5], [5], [9], [40]]


def test_answers_wait_where_computing_again_fills_the_batch() -> None:
    slots = [
        Slot(seq, tokens=[1] * 9, n_computed=8 - n, n_again=n, n_prompt=2, active=Client([1, 1]).active)
        for seq, n in enumerate([5, 6, 0])
    ]
    assert all(slot.generating for slot in slots)
    scheduler = Scheduler(n_batch=12, n_ubatch=12)
    assert [len(work.tokens) for batch in scheduler.lay_out(slots) for work in batch] == [6]
    assert scheduler.draft_room(3, 11) == 0
