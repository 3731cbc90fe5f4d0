"""The attack in short; `python -m benchmarks.attack --hours 2` is the long form."""

from __future__ import annotations

import random

import pytest

from benchmarks.attack import BAD, PARTS, attacked, damaged

pytestmark = pytest.mark.model


def test_nothing_done_to_the_server_ends_it_or_makes_it_answer_wrongly() -> None:
    found = attacked([part for part in PARTS if part != "kills"], seconds=18, seed=1)
    assert [(part, what) for part, counts in found.items() for what in BAD if counts[what]] == []
    assert found["slots"]["refused"] > 20
    assert found["disk"]["refused"] > 2
    assert found["bodies"]["status 400"] > 20
    assert all(counts["right answer"] for part, counts in found.items() if part not in ("models", "bodies"))


def test_damage_is_damage() -> None:
    chance, data = random.Random(1), random.Random(2).randbytes(1000)
    assert sum(damaged(data, chance, 500) != data for _ in range(200)) > 190
