"""An engine that nobody asks: its process ends, and comes back with the next request."""

from __future__ import annotations

import time

import pytest

from paceline import Engine
from paceline.config import EngineParams
from paceline.errors import ConfigError
from tests.server.live import settings

pytestmark = pytest.mark.model


def wait_for(engine: Engine, *, asleep: bool) -> None:
    until = time.monotonic() + 60
    while engine.health.asleep != asleep:
        assert time.monotonic() < until, f"it is{' not' if asleep else ''} asleep"
        time.sleep(0.05)


def test_an_idle_engine_sleeps_and_wakes_as_it_was(target: str) -> None:
    with Engine.from_settings(settings(target, sleep_idle_s=2), process=True) as engine:
        before = engine.generate("on and on", max_tokens=12, temperature=0).text()
        status = engine.status()
        wait_for(engine, asleep=True)
        assert engine.health.ready
        assert engine.status().slots == status.slots, "read off when it fell asleep"
        assert engine.health.asleep, "a look does not wake it"
        assert engine.generate("on and on", max_tokens=12, temperature=0).text() == before
        assert not engine.health.asleep
        assert engine.health.n_restarts == 0, "nothing has died"
        wait_for(engine, asleep=True)
        assert engine.tokenize("on and on")
        assert not engine.health.asleep


def test_one_that_sleeps_can_be_closed(target: str) -> None:
    with Engine.from_settings(settings(target, sleep_idle_s=2), process=True) as engine:
        wait_for(engine, asleep=True)


@pytest.mark.parametrize("seconds", [0, -2])
def test_a_time_that_means_nothing(seconds: int) -> None:
    with pytest.raises(ConfigError, match="1 or more"):
        EngineParams(sleep_idle_s=seconds)
