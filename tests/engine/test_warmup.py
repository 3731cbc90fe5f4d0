"""Measuring before the first request: within its time, the quickest of each size."""

from __future__ import annotations

from time import perf_counter

import pytest

from paceline.engine.costs import CostCurve
from paceline.engine.warmup import SIZES, warm_up
from tests.fakes import FakeContext


def test_it_measures_within_its_time_and_leaves_nothing_behind() -> None:
    context, curve = FakeContext(n_ctx=64), CostCurve()
    start = perf_counter()
    warm_up(context, curve, 0.05)
    assert perf_counter() - start < 1
    assert set(curve.sizes) <= set(SIZES)
    assert curve.predict(1) > 0


@pytest.mark.parametrize("n_ctx", [2, 5])
def test_a_small_context_limits_the_sizes(n_ctx: int) -> None:
    context, curve = FakeContext(n_ctx=n_ctx), CostCurve()
    warm_up(context, curve, 0.05)
    assert max(curve.sizes) < n_ctx
