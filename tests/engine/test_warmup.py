"""Measuring before the first request: within its time, whatever the machine's moods."""

from __future__ import annotations

from time import perf_counter, sleep

import pytest

from paceline.engine.costs import CostCurve
from paceline.engine.warmup import SELDOM, SIZES, typical, warm_up
from paceline.llama.context import Batch
from paceline.llama.lib import Floats
from tests.fakes import FakeContext


def test_it_measures_within_its_time_and_leaves_nothing_behind() -> None:
    context, curve = FakeContext(n_ctx=64), CostCurve()
    start = perf_counter()
    warm_up(context, curve, 0.05)
    assert perf_counter() - start < 1
    assert set(curve.sizes) <= {*SIZES, *SELDOM}
    assert curve.predict(1) > 0


@pytest.mark.parametrize("n_ctx", [2, 5])
def test_a_small_context_limits_the_sizes(n_ctx: int) -> None:
    context, curve = FakeContext(n_ctx=n_ctx), CostCurve()
    warm_up(context, curve, 0.05)
    assert max(curve.sizes) < n_ctx


def test_moods_and_single_slow_steps_do_not_count() -> None:
    true = {1: 1.0, 2: 1.3, 4: 1.7, 6: 2.3, 8: 2.4, 16: 4.0}
    rounds = [{n: mood * true[n] for n in true if n in SIZES or i % 3 == 0} for i, mood in enumerate((1, 1, 2, 1, 1))]
    rounds[1][4] *= 3
    found = typical(rounds, SIZES)
    assert found[1] == pytest.approx(1.0, rel=0.2)
    assert {n: s / found[1] for n, s in found.items()} == pytest.approx(true, rel=0.01)


def test_a_slow_model_is_not_measured_at_sizes_that_take_too_long() -> None:
    class Slow(FakeContext):
        def decode(self, batch: Batch) -> Floats:
            sleep(0.01 * batch.n_tokens)
            return super().decode(batch)

    curve, start = CostCurve(), perf_counter()
    warm_up(Slow(n_ctx=64), curve, 0.05)
    assert perf_counter() - start < 0.3
    assert 1 in curve.sizes
    assert max(curve.sizes) < 8
