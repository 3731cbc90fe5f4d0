"""A request inside the engine: the data that came in, and what only this process has of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.engine.constrained import GrammarState
from paceline.engine.request import Event, Request

if TYPE_CHECKING:
    from paceline.engine.slot import Slot

StopCheck = Callable[[int], bool]


@dataclass(slots=True)
class ActiveRequest:
    """`emit` is called on the engine's thread and must not block.

    `stop` sees each token of the answer once, in order, and answers whether to end after it. `over` is set when another
    request of the same group is done. `paused` is what its slot held when there was no room for it any more.
    A `suspect` may have spoilt the shared memory, and runs alone.
    """

    request: Request
    emit: Callable[[Event], None]
    stop: StopCheck | None = None
    grammar: GrammarState | None = None
    cancelled: bool = False
    over: bool = False
    paused: Slot | None = None
    suspect: bool = False
