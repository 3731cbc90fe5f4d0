"""The one thread of this process that computes, for all engines in it.

libllama's OpenMP threads belong to the thread that calls it. A second caller brings threads of its own; there are more
of them than cores then, all stop waiting actively, and every step takes more than twice as long: 69 tokens per second
became 27 on two cores. So whatever computes, warm-up included, runs here. Knows nothing of engines.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")
Turn = Callable[[], bool]


class Worker:
    """Gives turns to those who joined, and runs single calls in between. Its thread lives while anybody needs it."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._calls: deque[Callable[[], None]] = deque()
        self._turns: list[Turn] = []
        self._thread: threading.Thread | None = None
        self._woken = False

    def join(self, turn: Turn) -> None:
        """From now on `turn` is called again and again: while it returns True, else after the next `wake`."""
        with self._wake:
            self._turns.append(turn)
            self._start()

    def leave(self, turn: Turn) -> None:
        with self._wake:
            self._turns.remove(turn)
            self._wake.notify()

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
            self._calls.append(run)
            self._start()
            self._wake.notify()
        return future.result()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="paceline-worker", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        busy = False
        while True:
            with self._wake:
                while not (busy or self._woken or self._calls) and self._turns:
                    self._wake.wait()
                if not (self._turns or self._calls):
                    self._thread = None
                    return
                calls, turns = list(self._calls), list(self._turns)
                self._calls.clear()
                self._woken = False
            for call in calls:
                call()
            busy = sum(turn() for turn in turns) > 0


WORKER = Worker()
