"""The one thread of this process that computes, for all engines in it.

libllama's OpenMP threads belong to the thread that calls it. A second caller brings threads of its own; there are more
of them than cores then, all stop waiting actively, and every step takes more than twice as long: 69 tokens per second
became 27 on two cores. So whatever computes, warm-up included, runs here. Knows nothing of engines.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from paceline.errors import EngineFailed

log = logging.getLogger("paceline")
Result = TypeVar("Result")
Turn = Callable[[], bool]
OnDeath = Callable[[BaseException], None]


class Worker:
    """Gives turns to those who joined, and runs single calls in between. Its thread lives while anybody needs it."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._calls: deque[tuple[Callable[[], None], OnDeath]] = deque()
        self._turns: dict[Turn, OnDeath] = {}
        self._thread: threading.Thread | None = None
        self._woken = False
        self.round = 0  # odd while something is computed
        self.on_death: OnDeath = lambda error: None

    def join(self, turn: Turn, on_death: OnDeath = lambda error: None) -> None:
        """From now on `turn` is called again and again: while it returns True, else after the next `wake`. `on_death`
        hears of an error after which there are no more turns."""
        with self._wake:
            self._turns[turn] = on_death
            self._start()

    def leave(self, turn: Turn) -> None:
        with self._wake:
            self._turns.pop(turn, None)
            self._wake.notify()

    @property
    def alive(self) -> bool:
        """Whether those who joined can expect turns."""
        with self._wake:
            return not self._turns or bool(self._thread and self._thread.is_alive())

    def wake(self) -> None:
        """Somebody has something to do."""
        with self._wake:
            self._woken = True
            self._wake.notify()

    def call(self, work: Callable[[], Result]) -> Result:
        """Run this between two turns, and return what it returns."""
        if threading.current_thread() is self._thread:
            return work()
        future: Future[Result] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        with self._wake:
            self._calls.append((run, future.set_exception))
            self._start()
            self._wake.notify()
        return future.result()

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="paceline-worker", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        """Whatever ends the thread before its time, nobody is left waiting for it."""
        try:
            self._run()
        except BaseException as error:
            self.on_death(error)
            log.exception("the computing thread ended")
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        with self._wake:
            bereaved = [*self._turns.values(), *(on_death for _, on_death in self._calls)]
            self._turns.clear()
            self._calls.clear()
            self._thread = None
            self.round += self.round % 2
        reason = EngineFailed(f"the computing thread ended: {type(error).__name__}: {error}")
        reason.__cause__ = error
        for on_death in bereaved:
            on_death(reason)

    def _run(self) -> None:
        busy = False
        while True:
            with self._wake:
                while not (busy or self._woken or self._calls) and self._turns:
                    self._wake.wait()
                if not (self._turns or self._calls):
                    self._thread = None
                    return
                n_calls, turns = len(self._calls), list(self._turns)
                self._woken = False
            self.round += 1
            for _ in range(n_calls):
                self._calls.popleft()[0]()
            busy = sum(turn() for turn in turns) > 0
            self.round += 1


WORKER = Worker()
