"""What is counted, and from when on."""

from __future__ import annotations

from paceline.engine.request import Timings
from paceline.process.base import Health, Status
from paceline.server.metrics import Metrics

IDLE = Status(n_steps=0, n_busy=0, seconds=0.0, n_waiting=0, slots=[], drafters=[], planned=None, why={})


def test_rates_are_those_since_the_last_scrape() -> None:
    metrics = Metrics()
    metrics.finished(Timings(prompt_n=30, prompt_ms=100.0, predicted_n=20, predicted_ms=500.0))
    assert b"llamacpp:predicted_tokens_seconds 40.0" in metrics.text(IDLE, Health())
    again = metrics.text(IDLE, Health())
    assert b"llamacpp:predicted_tokens_seconds 0.0" in again
    assert b"llamacpp:tokens_predicted_total 20.0" in again
    metrics.finished(Timings(prompt_n=30, prompt_ms=100.0, predicted_n=20, predicted_ms=1000.0))
    assert b"llamacpp:predicted_tokens_seconds 20.0" in metrics.text(IDLE, Health())
