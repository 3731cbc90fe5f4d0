"""The planner: tokens earn their place, cliffs are seen, zero is always a candidate."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.engine.costs import CostCurve
from paceline.engine.planner import Planner, cumulated
from paceline.library import worth_reading

CPU = CostCurve({1: 1.0, 2: 1.36, 3: 1.61, 4: 1.82, 5: 2.26, 6: 2.51, 8: 2.83, 12: 3.88, 16: 4.88, 32: 9.0})
GPU = CostCurve({1: 1.0, 2: 1.41, 4: 1.45, 8: 1.54, 16: 1.69, 32: 1.70, 64: 1.78})
QUICK_DRAFT = CostCurve({1: 0.04, 8: 0.06})


def test_hopeless_drafts_are_not_checked() -> None:
    for curve in (CPU, GPU):
        assert Planner(curve, QUICK_DRAFT).trim([[0.05, 0.05]]) == [0]
        assert Planner(curve, QUICK_DRAFT).trim([[]]) == [0]


def test_sure_drafts_are_checked_as_far_as_they_pay() -> None:
    assert Planner(CPU, QUICK_DRAFT).trim([[0.99] * 8])[0] >= 4
    assert Planner(GPU, QUICK_DRAFT).trim([[0.99] * 16]) == [16]


def test_a_cliff_is_jumped_or_left_alone() -> None:
    """On a GPU one likely token does not pay, a long draft of the same chances does."""
    planner = Planner(GPU, QUICK_DRAFT)
    assert planner.trim([[0.38]]) == [0]
    assert planner.trim([[0.6] * 12])[0] > 2


def test_the_better_slot_gets_the_tokens() -> None:
    planner = Planner(CPU, QUICK_DRAFT)
    planner.face(2)
    good, bad = planner.trim([[0.97] * 4, [0.2] * 4])
    assert good > 0
    assert bad == 0


def test_slots_share_a_jump_that_none_would_make_alone() -> None:
    planner = Planner(CostCurve({4: 1.0, 5: 1.35, 8: 1.45, 16: 2.9}), QUICK_DRAFT)
    planner.face(4)
    assert planner.best_length([0.8])[0] == 1
    assert planner.trim([[0.8], [0.8], [0.8], [0.8]]) == [1, 1, 1, 1]
    assert planner.trim([[0.8], [], [], []]) == [0, 0, 0, 0]


def test_a_long_draft_of_doubtful_beginning_is_checked_in_two_steps_where_tokens_are_dear() -> None:
    doubtful, sure = [0.75] * 2 + [0.98] * 30, [0.99] * 32
    assert Planner(CPU, QUICK_DRAFT).best_length(doubtful)[0] < 8
    assert Planner(CPU, QUICK_DRAFT).best_length(sure)[0] > 24
    assert Planner(GPU, QUICK_DRAFT).best_length(doubtful)[0] > 24


@given(st.lists(st.floats(0.02, 1.0), max_size=40))
def test_waiting_is_only_chosen_where_it_is_worth_more(chances: list[float]) -> None:
    planner = Planner(CPU, QUICK_DRAFT)
    reached = cumulated(chances)
    n_at_once, at_once = planner._peak(reached, planner._extras(len(reached)))
    n, worth = planner.best_length(chances)
    assert (n, worth) == (n_at_once, at_once) or (n < n_at_once and worth > at_once)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(0.02, 1.0), max_size=4), min_size=1, max_size=3), st.booleans())
def test_no_other_lengths_are_worth_more(chances: list[list[float]], exact: bool) -> None:
    planner = Planner(CPU, QUICK_DRAFT, least=2 * exact)
    planner.face(len(chances))

    def worth(lengths: tuple[int, ...]) -> float:
        tokens = sum(sum(cumulated(row)[:n]) for row, n in zip(chances, lengths, strict=True))
        costs = [planner.extra_seconds(n) for n in lengths] if exact else [planner.extra_seconds(sum(lengths))]
        return tokens - planner.rate * sum(costs)

    best = max(worth(lengths) for lengths in itertools.product(*(range(len(row) + 1) for row in chances)))
    assert worth(tuple(planner.trim(chances))) == pytest.approx(best, abs=1e-9)


def test_a_model_as_slow_as_the_target_can_never_pay() -> None:
    assert not Planner(CPU, CostCurve({1: 1.0})).can_ever_pay(16)
    assert not Planner(GPU, CostCurve({1: 1.0})).can_ever_pay(16)
    assert Planner(CPU, QUICK_DRAFT).can_ever_pay(16)


def test_drafting_stops_at_the_token_that_no_longer_pays() -> None:
    planner = Planner(CPU, QUICK_DRAFT)
    assert planner.pays_to_go_on(1.0, 0.8, 0, 16)
    assert not planner.pays_to_go_on(0.1, 0.8, 3, 16)
    over_the_cliff = Planner(GPU, QUICK_DRAFT)
    assert over_the_cliff.pays_to_go_on(0.5, 0.6, 4, 16)
    assert not over_the_cliff.pays_to_go_on(0.5, 0.3, 0, 16)


def test_the_speed_up_is_told_against_plain_steps() -> None:
    planner = Planner(CPU, QUICK_DRAFT)
    for _ in range(200):
        planner.observe(4, 3, 1.82, 0.18)
    assert planner.speedup == pytest.approx(1.5, rel=0.01)
    assert planner.gain == pytest.approx(1.5, rel=0.05)


def test_a_long_context_makes_draft_tokens_dearer() -> None:
    planner = Planner(CostCurve({1: 1.0, 2: 1.1, 4: 1.3}, attention=0.3), QUICK_DRAFT)
    short = planner.trim([[0.5] * 3])
    planner.face(1, 3000)
    assert planner.trim([[0.5] * 3]) < short


def test_a_draft_model_may_read_more_for_a_longer_answer_and_less_beside_others() -> None:
    planner = Planner(CostCurve({1: 1.0, 2: 1.1, 4: 1.3}), CostCurve({1: 0.1, 128: 0.2}))
    worth = worth_reading(planner)
    assert worth(10**6) == worth(256) > worth(64) >= 128
    alone = worth(256)
    planner.face(4)
    assert worth(256) < alone
