"""What the engine's process says at once, and what may wait for more."""

from __future__ import annotations

from typing import Any, cast

import pytest

from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.config.granted import usable_cores
from paceline.engine.request import Emitted, Event, Finished, Started, Timings, Token
from paceline.process import child
from paceline.process.child import HOLD_MS, Outbox, hold_s
from paceline.process.messages import Events


class Time:
    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(child, "monotonic", lambda: time.now)
    return time


def written(n: int) -> Emitted:
    return Emitted((Token(7, "target"),), Timings(predicted_n=n))


class Front:
    """Hears what is sent."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self.outbox = Outbox(cast(Any, self))
        self.outbox.hold_s = 0.02

    def send(self, message: Events) -> None:
        self.heard += [event for _, event in message.events]

    def hears(self, *events: Event) -> list[Event]:
        """When these happen in a step, and it ends."""
        self.heard.clear()
        for event in events:
            self.outbox.add(1, event)
        self.outbox.flush()
        return self.heard


def test_more_of_a_text_waits_for_the_next_step_and_nothing_else_does(clock: Time) -> None:
    front = Front()
    assert front.hears(Started(0), written(1)) == [Started(0), written(1)]
    clock.now += 0.011
    assert front.hears(written(2)) == []
    clock.now += 0.011
    assert front.hears(written(3)) == [written(2), written(3)]
    clock.now += 0.011
    assert front.hears(written(4)) == []
    assert front.hears(Finished("stop")) == [written(4), Finished("stop")]
    assert front.hears() == []


def test_nothing_waits_for_a_question_or_for_another_ones_first_token(clock: Time) -> None:
    front = Front()
    assert front.hears(written(1)) == [written(1)]
    assert front.hears(written(2)) == []
    front.outbox.flush(now=True)
    assert front.heard == [written(2)]
    assert front.hears(written(3)) == []
    assert front.hears(written(1)) == [written(3), written(1)]


def test_steps_that_take_longer_are_told_one_by_one(clock: Time) -> None:
    front = Front()
    for n in range(2, 6):
        clock.now += 0.03
        assert front.hears(written(n)) == [written(n)]


def test_it_waits_only_where_computing_takes_every_core() -> None:
    def settings(n_threads: int, hold_ms: int | None = None) -> Settings:
        engine = EngineParams(hold_ms=hold_ms)
        return Settings(model=ModelParams(path="x"), context=ContextParams(n_threads=n_threads), engine=engine)

    n_cores = usable_cores()
    assert hold_s(settings(n_cores), 1) == HOLD_MS / 1e3
    assert n_cores == 1 or hold_s(settings(n_cores - 1), 1) == 0.0
    assert hold_s(settings(n_cores), 2) == 0.0  # a GPU computes
    assert hold_s(settings(n_cores, 0), 1) == 0.0
    assert hold_s(settings(1, 50), 2) == 0.05
