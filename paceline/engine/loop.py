"""An engine's turns on the worker: hands requests over, steps while there is work."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from paceline.engine.active import ActiveRequest
from paceline.engine.core import Core
from paceline.engine.request import failed
from paceline.engine.warmup import IdleMeasuring
from paceline.engine.worker import WORKER
from paceline.errors import EngineClosed, EngineFailed

log = logging.getLogger("paceline")
Result = TypeVar("Result")


class EngineLoop:
    """Everything that touches the core happens on the worker's thread; `submit` and `close` may come from any.

    `after_step` is called there when a step's events are out.
    """

    def __init__(
        self, core: Core, idle: IdleMeasuring | None = None, after_step: Callable[[], None] | None = None
    ) -> None:
        self.core = core
        self.idle = idle
        self._after_step = after_step or (lambda: None)
        self._arriving: deque[ActiveRequest] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self.failure: Exception | None = None
        WORKER.join(self._turn, self._fail)

    def submit(self, active: ActiveRequest) -> None:
        with self._lock:
            self._check_open()
            self._arriving.append(active)
        WORKER.wake()

    def call(self, work: Callable[[], Result]) -> Result:
        """Run this between two steps, where nothing else touches contexts, and return what it returns."""

        def when_open() -> Result:
            self._check_open()
            return work()

        return WORKER.call(when_open)

    def close(self) -> None:
        """Ends what is running. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        WORKER.call(self._end)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed("the engine is closed")
        if self.failure:
            raise EngineFailed(str(self.failure))

    def _end(self) -> None:
        WORKER.leave(self._turn)
        self._take_over()
        self.core.fail_all(EngineClosed("the engine was closed"))
        self._after_step()
        self.core.close()

    def _fail(self, error: BaseException) -> None:
        """There are no more turns: everybody who waits hears why, and so does whoever comes later."""
        with self._lock:
            self.failure = error if isinstance(error, Exception) else EngineFailed(repr(error))
            arrived = list(self._arriving)
            self._arriving.clear()
        for active in arrived:
            active.emit(failed(self.failure))
        self.core.fail_all(self.failure)
        self._after_step()

    def _turn(self) -> bool:
        """Take over arrived requests and compute one step, if there is one to compute; says whether there is more."""
        if self._closed:
            return False
        self._take_over()
        if not self.core.busy:
            self._after_step()
            return self._measure()
        try:
            self.core.step()
        except Exception as error:
            log.exception("a step failed; its requests are given up")
            self.core.fail_all(error)
        self._after_step()
        return self.core.busy or self.idle is not None

    def _measure(self) -> bool:
        """A little, while nobody waits; trouble with it touches nobody."""
        try:
            return self.idle is not None and self.idle.turn(self.core.n_finished)
        except Exception:
            log.exception("measuring failed; the costs stay as they are")
            self.idle = None
            return False

    def _take_over(self) -> None:
        with self._lock:
            arrived = list(self._arriving)
            self._arriving.clear()
        for active in arrived:
            try:
                self.core.submit(active)
            except Exception as error:
                active.emit(failed(error))
