"""The planner: tokens earn their place, cliffs are seen, changes of size are paid for, zero is always a candidate."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.planner.change import ChangeCosts
from paceline.planner.costs import CostCurve
from paceline.planner.planner import Planner, cumulated
from paceline.process.parts import worth_reading

CPU = {1: 1.0, 2: 1.36, 3: 1.61, 4: 1.82, 5: 2.26, 6: 2.51, 8: 2.83, 12: 3.88, 16: 4.88, 32: 9.0}
GPU = {1: 1.0, 2: 1.41, 4: 1.45, 8: 1.54, 16: 1.69, 32: 1.70, 64: 1.78}
QUICK = 0.04  # a draft token


def planner(curve: dict[int, float], change: tuple[float, float] = (0.0, 0.0), least: int = 0) -> Planner:
    costs = CostCurve(curve, change=ChangeCosts({1: change}))
    for _ in range(3):
        costs.passed(1)
    return proven(Planner(costs, least=least))


def proven(planner: Planner) -> Planner:
    """After drafts have gained enough for bold ones."""
    planner.purse.book(1e9, 0.0, planner.plain_seconds)
    planner.begin_step(1)
    return planner


def test_hopeless_drafts_are_not_checked() -> None:
    for curve in (CPU, GPU):
        assert planner(curve).trim([[0.05, 0.05]]) == [0]
        assert planner(curve).trim([[]]) == [0]


def test_sure_drafts_are_checked_as_far_as_they_pay() -> None:
    assert planner(CPU).trim([[0.99] * 8])[0] >= 4
    assert planner(GPU).trim([[0.99] * 16]) == [16]


def test_a_cliff_is_jumped_or_left_alone() -> None:
    """On a GPU one likely token does not pay, a long draft of the same chances does."""
    assert planner(GPU).trim([[0.38]]) == [0]
    assert planner(GPU).trim([[0.6] * 12])[0] > 2


def test_the_better_slot_gets_the_tokens() -> None:
    two = planner(CPU)
    two.begin_step(2)
    good, bad = two.trim([[0.97] * 4, [0.2] * 4])
    assert good > 0
    assert bad == 0


def test_slots_share_a_jump_that_none_would_make_alone() -> None:
    four = planner({4: 1.0, 5: 1.35, 8: 1.45, 16: 2.9})
    four.begin_step(4)
    assert four.best_length([0.8])[0] == 1
    assert four.trim([[0.8], [0.8], [0.8], [0.8]]) == [1, 1, 1, 1]
    assert four.trim([[0.8], [], [], []]) == [0, 0, 0, 0]


def test_a_long_draft_of_doubtful_beginning_is_checked_in_two_steps_where_tokens_are_dear() -> None:
    doubtful, sure = [0.75] * 2 + [0.98] * 30, [0.99] * 32
    assert planner(CPU).best_length(doubtful)[0] < 8
    assert planner(CPU).best_length(sure)[0] > 24
    assert planner(GPU).best_length(doubtful)[0] > 24


@given(st.lists(st.floats(0.02, 1.0), max_size=40))
def test_waiting_is_only_chosen_where_it_is_worth_more(p_accept: list[float]) -> None:
    one = planner(CPU)
    reached = cumulated(p_accept)
    n_at_once, at_once = one._peak(reached, one.extras(len(reached)))
    n, gain = one.best_length(p_accept)
    assert (n, gain) == (n_at_once, at_once) or (n < n_at_once and gain > at_once)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(0.02, 1.0), max_size=4), min_size=1, max_size=3), st.sampled_from([0, 2, 4]))
def test_no_other_lengths_are_worth_more(p_accept: list[list[float]], least: int) -> None:
    some = planner(CPU, least=least)
    some.begin_step(len(p_accept))

    def gain(lengths: tuple[int, ...]) -> float:
        tokens = sum(sum(cumulated(row)[:n]) for row, n in zip(p_accept, lengths, strict=True))
        costs = [some.extras(n)[n] for n in lengths] if least else [some.extras(sum(lengths))[sum(lengths)]]
        return tokens - some.rate * sum(costs)

    best = max(gain(lengths) for lengths in itertools.product(*(range(len(row) + 1) for row in p_accept)))
    assert gain(tuple(some.trim(p_accept))) == pytest.approx(best, abs=1e-9)


def test_in_a_batch_of_one_fixed_size_every_token_is_free() -> None:
    assert planner(CPU, least=16).trim([[0.1, 0.5]]) == [2]


def test_a_model_as_slow_as_the_target_can_never_pay() -> None:
    assert not planner(CPU).can_ever_pay(16, 1.0)
    assert not planner(GPU).can_ever_pay(16, 1.0)
    assert planner(CPU).can_ever_pay(16, QUICK)


def test_drafting_stops_at_the_token_that_no_longer_pays() -> None:
    assert planner(CPU).pays_to_continue(1.0, 0.8, 0, 16, QUICK)
    assert not planner(CPU).pays_to_continue(0.1, 0.8, 3, 16, QUICK)
    assert planner(GPU).pays_to_continue(0.5, 0.6, 4, 16, QUICK)
    assert not planner(GPU).pays_to_continue(0.5, 0.3, 0, 16, QUICK)


def test_the_speed_up_is_told_against_plain_steps() -> None:
    one = planner(CPU)
    for _ in range(200):
        one.observe_step(4, 3, 3, 1.82, 0.18)
    assert one.speedup == pytest.approx(1.5, rel=0.01)
    assert one.gain == pytest.approx(1.5, rel=0.05)


def test_where_nothing_was_drafted_the_speed_up_is_one_however_slow_the_steps() -> None:
    one = planner(CPU)
    for _ in range(50):
        one.observe_step(1, 1, 0, 1.8, 0.0)
    assert one.speedup == 1.0


def test_what_taking_back_costs_is_charged_to_drafts_that_need_it() -> None:
    one = proven(Planner(CostCurve(CPU), n_rollback=3))
    doubtful, long = [0.8] * 3, [0.8] * 12
    one.begin_step(1)
    before, unbounded = one.trim([doubtful])[0], one.trim([[0.98] * 12])[0]
    assert before > 0
    assert unbounded > 3
    for _ in range(50):
        one.took_back(5.0, n_again=2)
    one.begin_step(1)
    assert one.trim([doubtful]) == [before], "three tokens are taken back for nothing"
    assert one.trim([long])[0] <= 3
    assert one.trim([[0.98] * 12])[0] <= 3
    for _ in range(50):
        one.took_back(0.0, n_again=0)
    one.begin_step(1)
    assert one.trim([[0.98] * 12]) == [unbounded]


def test_what_several_slots_lose_is_not_held_against_one() -> None:
    one = Planner(CostCurve(CPU))
    one.begin_step(1)
    before = one.trim([[0.99]])
    one.begin_step(4)
    for _ in range(20):
        one.observe_step(8, 4, 4, 3 * CPU[8], 0.0)
    one.begin_step(1)
    assert one.trim([[0.99]]) == before == [1]


def test_a_draft_that_is_computed_apart_pays_for_a_batch_of_its_own() -> None:
    together, apart = proven(Planner(CostCurve(GPU))), proven(Planner(CostCurve(GPU), n_rollback=16))
    for each in (together, apart):
        each.begin_step(4)
    assert together.trim([[0.6, 0.5], [], [], []])[0] > 0
    assert apart.trim([[0.6, 0.5], [], [], []]) == [0, 0, 0, 0]
    assert apart.trim([[0.98] * 12, [], [], []])[0] > 8
    apart.begin_step(1)
    assert apart.extras(4) == pytest.approx(planner(GPU).extras(4))


def test_a_long_context_makes_draft_tokens_dearer() -> None:
    far = proven(Planner(CostCurve({1: 1.0, 2: 1.1, 4: 1.3}, attention=0.3)))
    short = far.trim([[0.5] * 3])
    far.begin_step(1, 3000)
    assert far.trim([[0.5] * 3]) < short


def test_a_draft_model_may_read_more_for_a_longer_answer_and_less_beside_others() -> None:
    target = planner({1: 1.0, 2: 1.1, 4: 1.3})
    worth = worth_reading(target, CostCurve({1: 0.1, 128: 0.2}))
    assert worth(0, 10**6) == worth(0, 256) > worth(0, 64) >= 128
    alone = worth(0, 256)
    target.begin_step(4)
    assert worth(0, 256) < alone


def test_handing_out_rows_takes_a_hundredth_of_a_prompt_at_most() -> None:
    target = planner({1: 1.0, 2: 1.1, 128: 12.8})  # a tenth of a second for each token of a prompt
    worth = worth_reading(target, CostCurve({1: 1e-6, 128: 1e-6}), row_seconds=0.01)
    assert 190 <= worth(2000, 10**6) <= 200
    assert worth(1000, 10**6) == worth(2000, 10**6) // 2
    assert worth(10, 10**6) == 64


def test_the_gain_of_a_model_is_foretold_from_how_it_did_on_a_text() -> None:
    one = planner(CPU)
    good, fair = one.prospect([(0.9, True)] * 30, QUICK), one.prospect([(0.9, True)] * 5 + [(0.2, False)], QUICK)
    assert good > fair > 0.0 > one.prospect([(0.9, False)] * 30, QUICK)
    assert one.prospect([(0.02, False)] * 30, 0.0) == 0.0
    assert one.prospect([(0.9, True)] * 30, 5 * QUICK) < good - 4 * QUICK
    assert one.prospect([(0.9, True)] * 30, QUICK, beside=0.1) == pytest.approx(good - 0.1 * one.rate)
    assert one.prospect([(0.9, True)] * 30, QUICK, dearer=2.0) < good


# -- sizes, where changing them costs time


def test_a_lone_draft_pays_for_the_way_there_and_back() -> None:
    """Worth checking where changing is free, not where it slows the plain steps after it down."""
    lone = [0.8] * 4
    assert planner(GPU).trim([lone])[0] > 0
    dear = planner(GPU, (1.0, 1.0))
    for _ in range(20):
        dear.begin_step(1)
        dear.learn_sizes([], 0.0)
    dear.begin_step(1)
    assert dear.trim([lone]) == [0]
    assert dear.trim([[0.99] * 16])[0] >= 15


def test_a_size_that_keeps_paying_is_kept_and_short_drafts_are_padded_to_it() -> None:
    one = planner(GPU, (1.0, 1.0))
    for _ in range(30):
        one.begin_step(1)
        one.learn_sizes([[0.9] * 7], 0.0)
        n = one.trim([[0.9] * 7])[0]
        size = one.size(1 + n)
        one.observe_step(size, 6, n, GPU[size], 0.0)
    assert size == 8
    one.begin_step(1)
    assert one.size(3) == 8
    assert not one.is_plain


def test_it_goes_back_to_plain_steps_when_nothing_can_be_drafted_any_more() -> None:
    one = planner(GPU, (1.0, 1.0))
    one.target.passed(8)
    sizes = []
    for _ in range(40):
        one.begin_step(1)
        one.learn_sizes([], 0.0)
        sizes.append(one.size(1))
        one.observe_step(sizes[-1], 1, 0, GPU[sizes[-1]], 0.0)
    assert sizes[-1] == 1
    assert sum(a != b for a, b in itertools.pairwise(sizes)) <= 1


def test_the_odd_size_of_a_prompt_s_last_piece_is_not_padded_to() -> None:
    one = planner(GPU, (1.0, 1.0))
    one.target.passed(37)
    one.target.passed(37)
    one.begin_step(1)
    assert one.size(1) == 1
    assert one.size(3) == 4


def test_on_a_cpu_nothing_is_padded() -> None:
    one = planner(CPU)
    one.target.passed(8)
    one.begin_step(1)
    assert [one.size(n) for n in (1, 3, 5, 11)] == [1, 3, 5, 11]
