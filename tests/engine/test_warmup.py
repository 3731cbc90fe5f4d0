"""Measuring: within its time, whatever the machine's moods; changes told apart from sizes; again while nobody waits."""

from __future__ import annotations

import math
from time import perf_counter

import pytest

from paceline.engine import warmup
from paceline.engine.warmup import BETWEEN, SIZES, IdleMeasuring, Measurement, changes, typical, warm_up
from paceline.planner.costs import CostCurve
from tests.fakes import FakeContext


def test_it_measures_within_its_time_and_leaves_nothing_behind() -> None:
    context, curve = FakeContext(n_ctx=64), CostCurve()
    start = perf_counter()
    warm_up(context, curve, 0.05)
    assert perf_counter() - start < 30
    assert set(curve.sizes) <= {*SIZES, *BETWEEN}
    assert curve.predict(1) > 0
    assert context.cells == [[]]


@pytest.mark.parametrize("n_ctx", [2, 5])
def test_a_small_context_limits_the_sizes(n_ctx: int) -> None:
    context, curve = FakeContext(n_ctx=n_ctx), CostCurve()
    warm_up(context, curve, 0.05)
    assert max(curve.sizes) < n_ctx


def test_moods_and_single_slow_steps_do_not_count() -> None:
    true = {1: 1.0, 2: 1.3, 4: 1.7, 8: 2.4, 16: 4.0}
    rounds = [{n: [mood * s] * 3 for n, s in true.items()} for mood in (1, 1, 2, 1, 1)]
    rounds[1][4] = [5.0, 1.7, 1.7]
    found, spread = typical(rounds, 0)
    assert found == pytest.approx(true, rel=0.01)
    assert spread < 0.01


def test_measurements_that_disagree_have_a_large_spread() -> None:
    _, spread = typical([{1: [1.0, 3.0, 1.5], 2: [9.0, 2.0, 4.0], 4: [30.0, 4.0, 11.0]}], 0)
    assert spread > 0.3


def test_what_was_measured_once_is_no_reason_to_be_sure() -> None:
    """One round on a busy machine, of which a change of size seemed to be the better part."""
    busy = [{1: [0.09, 0.07, 0.04], 2: [0.16, 0.08, 0.08], 4: [0.30, 0.37, 0.12]}]
    found, spread = typical(busy, 2)
    assert found[1] == pytest.approx(0.04)
    curve = CostCurve()
    curve.learn(found, changes(busy), spread)
    assert not curve.is_calm


def test_what_a_change_of_size_adds_is_told_apart() -> None:
    gpu = [{n: [s + 1.1, s + 0.9, s] for n, s in {1: 1.0, 2: 1.6, 4: 1.8}.items()}]
    assert changes(gpu).by_size == {n: pytest.approx([1.1, 0.9]) for n in (1, 2, 4)}
    cpu = [{1: [1.0, 1.1, 1.0], 2: [1.3, 1.2, 1.4], 4: [1.8, 2.0, 1.7], 8: [2.9, 2.8, 3.0]}]
    assert changes(cpu).whole(8) == 0


def test_building_a_graph_anew_is_no_reason_to_keep_sizes() -> None:
    """The first step of a size takes an eighth of a plain one longer, the second does not: so it is on some CPUs."""
    cpu = [{n: [s + 0.13, s, s] for n, s in {1: 1.0, 2: 2.2, 4: 3.3, 8: 4.0}.items()}]
    assert changes(cpu).whole(1) == 0
    slow = [{n: [s + 0.6, s, s] for n, s in {1: 1.0, 2: 1.3, 4: 1.4, 8: 1.5}.items()}]
    assert changes(slow).whole(1) == pytest.approx(0.6)


def test_sizes_in_between_are_measured_where_sizes_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five tokens cost as much as eight: straight lines between four and eight would not tell."""
    now = [0.0]
    monkeypatch.setattr(warmup, "perf_counter", lambda: now[0])
    true = {1: 0.005, 2: 0.01, 3: 0.0145, 4: 0.016, 5: 0.02, 6: 0.02, 8: 0.02, 12: 0.025, 16: 0.026, 32: 0.044}
    context, curve = Clocked(now, true), CostCurve()
    warm_up(context, curve, 0.75)
    assert {n: curve.predict(n) for n in true} == pytest.approx(true)
    gpu, keeping = Rebuilding(now, dict.fromkeys([*CPU, *BETWEEN], 0.001)), CostCurve()
    warm_up(gpu, keeping, 0.75)
    assert not {*keeping.sizes} & {*BETWEEN}


class Clocked(FakeContext):
    """Takes its time by the fake clock."""

    def __init__(self, now: list[float], seconds: dict[int, float]) -> None:
        super().__init__(n_ctx=64)
        self.now = now
        self.seconds = seconds

    def _check(self, entries: list[tuple[int, int]]) -> None:
        self.now[0] += CostCurve(self.seconds).predict(len(entries))


def test_a_slow_model_is_not_measured_at_sizes_that_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now, curve = [0.0], CostCurve()
    monkeypatch.setattr(warmup, "perf_counter", lambda: now[0])
    warm_up(Clocked(now, {n: 0.01 * n for n in SIZES}), curve, 0.05)
    assert now[0] < 0.4
    assert 1 in curve.sizes
    assert max(curve.sizes) < 8


def test_a_bad_curve_heals_while_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine was busy at the start: two tokens seemed to cost 55 plain steps."""
    now = [0.0]
    monkeypatch.setattr(warmup, "perf_counter", lambda: now[0])
    true = {1: 0.010, 2: 0.0136, 4: 0.019, 8: 0.033, 16: 0.055, 32: 0.107}
    context, curve = Clocked(now, true), CostCurve({1: 0.01, 2: 0.55, 4: 0.6, 8: 0.7, 16: 0.8, 32: 1.0})
    context.cells[0] = [7] * 10
    idle = IdleMeasuring([(Measurement(context, curve), lambda: (0, 10))])
    assert not idle.turn(0)
    for n_finished in range(1, 20):
        while idle.turn(n_finished):
            pass
    assert curve.is_calm
    assert {n: curve.predict(n) for n in true} == pytest.approx(true, rel=0.05)
    assert context.cells[0] == [7] * 10


class Rebuilding(Clocked):
    """Two steps of another size take longer, as where a graph is built and captured anew."""

    n_last, n_alike = 0, 0

    def _check(self, entries: list[tuple[int, int]]) -> None:
        n = len(entries)
        self.n_alike = self.n_alike + 1 if n == self.n_last else 0
        self.n_last = n
        super()._check(entries)
        self.now[0] += (0.003, 0.002, 0.0)[min(2, self.n_alike)]


CPU = {1: 0.010, 2: 0.0136, 4: 0.019, 8: 0.033, 16: 0.055, 32: 0.107, 64: 0.2}


@pytest.mark.parametrize(("kind", "expected"), [(Clocked, [1, 2, 4, 8, 16]), (Rebuilding, [1, 5])])
def test_it_is_measured_again_ever_more_seldom_and_where_size_matters_only_until_it_is_calm(
    kind: type[Clocked], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, curve = [0.0], CostCurve()
    monkeypatch.setattr(warmup, "perf_counter", lambda: now[0])
    context = kind(now, CPU if kind is Clocked else dict.fromkeys(CPU, 0.001))
    idle = IdleMeasuring([(Measurement(context, curve), lambda: (0, 0))])
    measured = []
    for n_finished in range(1, 17):
        if n_finished == 5 and kind is Rebuilding:
            curve.spread = math.inf
        n_before = len(context.batches)
        while idle.turn(n_finished):
            pass
        if len(context.batches) > n_before:
            measured.append(n_finished)
    assert curve.is_calm
    assert measured == expected


def test_the_way_back_to_plain_steps_is_measured_after_plain_steps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(warmup, "perf_counter", lambda: now[0])
    true = {1: 0.001, 2: 0.0016, 4: 0.0018, 8: 0.0019, 16: 0.002, 32: 0.0027, 64: 0.003}
    context, curve = Rebuilding(now, true), CostCurve()
    warm_up(context, curve, 1.0)
    for _ in range(3):
        context.now[0] += 0.001
        curve.passed(1)
    context.n_last, context.n_alike, curve.spread = 1, 9, math.inf
    idle = IdleMeasuring([(Measurement(context, curve), lambda: (0, 0))])
    while idle.turn(1):
        pass
    assert curve.change.by_size[1] == pytest.approx([0.003, 0.002])
    assert curve.price == pytest.approx(0.005)
