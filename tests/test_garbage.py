"""What a program has when it starts to work is not looked through again; what comes later is."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from paceline import garbage


class Ring:
    """Refers to itself, as only the collector can undo."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_there_is_left_alone_and_what_comes_is_collected() -> None:
    ring = Ring()
    old = weakref.ref(ring)
    garbage.settle()
    assert gc.get_freeze_count() > 1000
    del ring
    new = weakref.ref(Ring())
    gc.collect()
    assert old() is not None and new() is None


def test_settling_again_takes_away_what_has_become_garbage() -> None:
    ring = Ring()
    old = weakref.ref(ring)
    garbage.settle()
    del ring
    garbage.settle()
    assert old() is None
