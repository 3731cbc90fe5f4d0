"""What a draft model would write next, and how sure it is."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.drafters.base import Noise
from paceline.drafters.guess import draw, likeliest
from paceline.llama.lib import Floats


def row_of(n: int, peak: float, seed: int = 0) -> Floats:
    row = np.random.default_rng(seed).normal(0, 2, n).astype(np.float32)
    row[n // 3] = row.max() + peak
    return row


def softmax_of_largest(row: Floats, n: int) -> float:
    """The likeliest token's share among the n likeliest, slowly."""
    largest = np.sort(row.astype(np.float64))[-n:]
    return float(1 / np.exp(largest - largest[-1]).sum())


@pytest.mark.parametrize("n", [300, 16_385, 49_152, 151_936])
@pytest.mark.parametrize("peak", [0.5, 3.0, 8.0, 14.0])
def test_the_likeliest_token_and_its_share(n: int, peak: float) -> None:
    row = row_of(n, peak)
    before = row.copy()
    token, confidence = likeliest(row)
    exact = softmax_of_largest(row, n)
    assert token == n // 3
    assert (row == before).all()
    assert exact - 1e-6 <= confidence <= softmax_of_largest(row, 10)
    if exact > 0.8 or n in (300, 16_385):
        assert confidence == pytest.approx(exact, abs=0.1 if exact > 0.8 else 1e-5)


def test_a_sure_draft_stays_sure_with_noise() -> None:
    row = row_of(49_152, 14.0)
    noise = Noise(seed=1, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
    assert all(draw(row, noise, position) == (49_152 // 3, 1.0) for position in range(20))
