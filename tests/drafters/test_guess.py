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
    for position in range(20):
        token, confidence = draw(row, noise, position)
        assert token == 49_152 // 3
        assert confidence > 0.99


def test_confidence_is_the_chance_that_one_who_sees_it_a_little_differently_draws_the_same() -> None:
    """Which is what a draft model and its target are to each other."""
    rng = np.random.default_rng(3)
    noise = Noise(seed=1, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
    expected, same = [], []
    for position in range(400):
        row = rng.normal(0, 2, 2000).astype(np.float32)
        row[:20] += rng.normal(6, 3, 20).astype(np.float32)
        other = row + rng.normal(0, 1.5, 2000).astype(np.float32)
        token, confidence = draw(row, noise, position)
        expected.append(confidence)
        same.append(draw(other, noise, position)[0] == token)
    low, high = np.quantile(expected, [0.33, 0.67])
    groups = [np.array(expected) < low, np.array(expected) > high]
    for group in groups:
        assert np.mean(np.array(same)[group]) == pytest.approx(np.mean(np.array(expected)[group]), abs=0.15)
    assert high - low > 0.2
