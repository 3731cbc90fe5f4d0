"""How long a child's step may take."""

from __future__ import annotations

from paceline.process.watch import LONGER, PATIENCE, Watch, patience


def test_only_a_step_that_does_not_end_is_late() -> None:
    watch = Watch(3)
    assert not any(watch.late(round) for round in [0] * 20 + [1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 5, 5, 7])
    lates = [watch.late(7) for _ in range(3 + 2 * LONGER + 1)]
    assert not any(lates[:-1])
    assert lates[-1] == len(lates)


def test_large_models_have_more_time() -> None:
    assert PATIENCE < patience(135_000_000, 2048) < PATIENCE + 10
    assert patience(70_000_000_000, 2048) > 40 * 60
