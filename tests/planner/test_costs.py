"""The cost curve: monotone, robust, follows a change, survives a restart."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from paceline.planner.change import ChangeCosts
from paceline.planner.costs import CostCurve

CPU = {1: 0.010, 2: 0.0136, 4: 0.019, 8: 0.033, 16: 0.055, 32: 0.107}


def test_it_knows_what_it_was_told_and_draws_lines_between() -> None:
    curve = CostCurve(CPU)
    assert abs(curve.predict(1) - 0.010) < 1e-9
    assert abs(curve.predict(3) - (0.0136 + 0.019) / 2) < 1e-9
    assert curve.predict(64) > curve.predict(32)
    assert curve.predict(0) == 0.0


@given(st.lists(st.tuples(st.integers(1, 80), st.floats(1e-5, 1.0)), max_size=200))
def test_it_never_falls(observed: list[tuple[int, float]]) -> None:
    curve = CostCurve(CPU)
    for n, seconds in observed:
        curve.observe(n, seconds)
    predicted = [curve.predict(n) for n in range(1, 120)]
    assert all(a <= b + 1e-12 for a, b in pairwise(predicted))
    assert all(value > 0 for value in predicted)


def test_one_odd_step_hardly_moves_it() -> None:
    curve = CostCurve(CPU)
    curve.observe(4, 3.0)
    assert curve.predict(4) < 1.1 * 0.019


def test_it_follows_a_machine_that_became_half_as_fast_and_back() -> None:
    curve, chance = CostCurve(CPU), random.Random(1)
    for factor in (2.0, 1.0):
        for _ in range(60):
            n = chance.choice([1, 2, 4, 8])
            curve.observe(n, CPU[n] * factor * chance.uniform(0.95, 1.1))
        for n in (1, 2, 4, 8, 16):
            assert 0.8 * factor < curve.predict(n) / CPU[n] < 1.25 * factor


def test_it_learns_from_steps_alone() -> None:
    curve = CostCurve()
    for _ in range(400):
        for n in (1, 2, 4, 8):
            curve.observe(n, CPU[n])
    for n in (1, 2, 4, 8):
        assert 0.85 < curve.predict(n) / CPU[n] < 1.15


def test_sizes_never_tried_keep_their_place_when_the_machine_wobbles() -> None:
    curve, chance = CostCurve(CPU), random.Random(3)
    for _ in range(3000):
        n = chance.choice([1, 1, 2, 4])
        curve.observe(n, CPU[n] * chance.choice([1.0, 1.0, 1.0, 1.7, 3.0]))
    assert 0.75 < (curve.predict(16) / curve.predict(1)) / (CPU[16] / CPU[1]) < 1.33


def test_a_new_measurement_sets_the_scale_and_meets_a_sure_shape_halfway() -> None:
    curve = kept(CostCurve(CPU))
    curve.learn({n: 3 * seconds for n, seconds in CPU.items() if n <= 16}, spread=0.02)
    assert abs(curve.predict(32) / CPU[32] - 3) < 0.01
    curve.learn({**{n: CPU[n] for n in (1, 4, 8, 16)}, 2: 4 * CPU[2]}, spread=0.02)
    assert 0.9 < curve.predict(1) / CPU[1] < 1.6
    assert curve.predict(8) / CPU[8] < 1.6


def test_one_size_measured_absurdly_does_not_flatten_the_rest() -> None:
    curve = CostCurve({**CPU, 1: 3.0})
    assert curve.predict(16) > 1.2 * curve.predict(8)


ABOUT = {"model": "m.gguf", "devices": ["a CPU"], "gpu_layers": -1}


def kept(curve: CostCurve) -> CostCurve:
    """As after a calm measurement."""
    curve.spread = 0.02
    return curve


def test_it_is_kept_between_runs_and_a_broken_file_is_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "curve.json"
    kept(CostCurve(CPU, change=ChangeCosts({1: (0.001, 0.002), 64: (0.003, 0.005)}))).save(path, ABOUT)
    again = CostCurve.load(path, ABOUT)
    assert abs(again.predict(4) - 0.019) < 1e-9
    assert again.change.by_size == {1: [0.001, 0.002], 64: [0.003, 0.005]}
    assert again.is_calm
    path.write_text(path.read_text().replace('"spread": 0.02', '"spread": 0.0'))
    assert not CostCurve.load(path, ABOUT).is_calm, "measured once"
    for broken in ("{not json", '{"1": "x", "2": -3}', '{"about": {}, "seconds": {"1": 1e-2}}'):
        path.write_text(broken)
        assert not CostCurve.load(path, ABOUT).known
    assert not CostCurve.load(tmp_path / "missing.json", ABOUT).known


def test_a_curve_of_another_machine_is_never_used(tmp_path: Path) -> None:
    path = tmp_path / "curve.json"
    kept(CostCurve(CPU)).save(path, ABOUT)
    assert not CostCurve.load(path, {**ABOUT, "devices": ["a GPU"]}).known
    assert not CostCurve.load(path, {**ABOUT, "gpu_layers": 0}).known


def test_a_doubtful_curve_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "curve.json"
    CostCurve(CPU).save(path, ABOUT)
    assert not path.exists()


def test_the_impossible_is_not_believed(tmp_path: Path) -> None:
    """Two tokens never cost 55 plain steps: a file that says so counts as none, a measurement as noise."""
    path = tmp_path / "curve.json"
    kept(CostCurve(CPU)).save(path, ABOUT)
    data = json.loads(path.read_text())
    data["seconds"]["2"] = 55 * data["seconds"]["1"]
    path.write_text(json.dumps(data))
    assert not CostCurve.load(path, ABOUT).known
    curve = CostCurve({1: 0.01, 2: 0.55, 4: 0.56, 8: 0.57})
    assert all(curve.predict(n) <= n * 0.01 + 1e-9 for n in range(1, 20))
    curve = CostCurve({1: 0.01, 2: 0.002, 4: 0.003})
    assert curve.predict(4) >= curve.predict(1)


def test_a_calm_measurement_takes_the_place_of_a_doubtful_one_and_not_the_other_way_round() -> None:
    curve = CostCurve({1: 0.01, 2: 0.02, 4: 0.04, 8: 0.08})
    curve.learn(CPU, ChangeCosts(), spread=0.03)
    assert abs(curve.predict(2) - CPU[2]) < 1e-9
    curve.learn({1: 0.03, 2: 0.06, 4: 0.12}, ChangeCosts({1: (0.01, 0.01)}), spread=0.6)
    assert abs(curve.predict(2) / curve.predict(1) - CPU[2] / CPU[1]) < 1e-9
    assert curve.price == 0


def test_it_knows_the_step_before() -> None:
    curve = CostCurve(CPU, change=ChangeCosts({1: (0.008, 0.004)}))
    curve.passed(1)
    assert curve.changing(1) == 0.004
    curve.passed(1)
    assert curve.changing(1) == 0
    assert curve.changing(4) == 0.008
    assert curve.price == 0.012
    curve.passed(4)
    assert curve.changing(1) == 0.008


def test_what_a_change_costs_is_learned_and_does_not_bend_the_shape() -> None:
    curve, chance = CostCurve(CPU, change=ChangeCosts({1: (0.006, 0.003)})), random.Random(4)
    for i in range(900):
        n = 4 if i % 9 == 0 else 1
        extra = 0.008 if n == 4 or i % 9 == 1 else 0.004 if i % 9 == 2 else 0.0
        curve.observe(n, CPU[n] * chance.uniform(0.97, 1.03) + extra)
    assert 0.0065 < curve.change.at(4, 0) < 0.0095
    assert 0.003 < curve.change.at(1, 1) < 0.005
    assert 0.95 < curve.predict(1) / CPU[1] < 1.05


def test_on_a_cpu_every_step_tells_the_shape() -> None:
    curve = CostCurve({**CPU, 4: 0.0215})
    for _ in range(60):
        curve.observe(1, CPU[1])
        curve.observe(4, CPU[4])
    assert curve.predict(4) / curve.predict(1) < 2.0


def test_what_context_costs_is_told_apart_from_the_machine_s_mood() -> None:
    curve, chance = CostCurve(CPU), random.Random(5)
    for _ in range(400):
        n, n_context, mood = chance.choice([1, 2, 3, 5]), chance.choice([100, 1500]), chance.uniform(0.95, 1.05)
        curve.observe(n, mood * (CostCurve(CPU).predict(n) + 0.3 * CPU[1] * n * n_context / 1000), n_context)
    for n in (1, 4, 8):
        for n_context in (0, 1000, 2000):
            true = CostCurve(CPU).predict(n) + 0.3 * CPU[1] * n * n_context / 1000
            assert 0.85 < curve.predict(n, n_context) / true < 1.15


def test_what_context_costs_is_kept_too(tmp_path: Path) -> None:
    path = tmp_path / "curve.json"
    kept(CostCurve(CPU, attention=0.7)).save(path, ABOUT)
    again = CostCurve.load(path, ABOUT)
    assert abs(again.predict(4, 1000) - (CPU[4] + 0.7 * 4 * CPU[1])) < 1e-9


def test_a_size_that_was_measured_wrongly_is_soon_set_right() -> None:
    """Half of its error goes with five steps, all within the bounds of what was measured."""
    curve = CostCurve({1: 1.0, 2: 1.3, 4: 1.9, 8: 2.8})
    for _ in range(5):
        for n, seconds in ((1, 1.0), (1, 1.0), (4, 1.7)):
            curve.observe(n, seconds)
    for _ in range(16):
        curve.observe(1, 1.0)
    assert curve.predict(4) / curve.predict(1) < 1.82
