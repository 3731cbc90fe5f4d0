"""The engine's own thread: hands requests over, steps while there is work, sleeps otherwise."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from paceline.engine.engine import Engine
from paceline.engine.request import Failed, Request, Timings
from paceline.errors import EngineClosed, PacelineError

log = logging.getLogger("paceline")
Result = TypeVar("Result")


class EngineLoop:
    """Everything that touches the engine happens on this thread; `submit` and `close` may come from any."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._arriving: deque[Request] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="paceline-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Raises at once what can be told at once; the rest arrives as events."""
        self.engine.check(request)
        with self._wake:
            if self._closing:
                raise EngineClosed("the engine is closed")
            self.engine.check_room(len(self._arriving))
            self._arriving.append(request)
            self._wake.notify()

    def wake(self) -> None:
        """Somebody was cancelled: have a look even when idle."""
        with self._wake:
            self._wake.notify()

    def call(self, work: Callable[[], Result]) -> Result:
        """Run this between two steps, where nothing else touches contexts, and return what it returns."""
        future: Future[Result] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

        with self._wake:
            if self._closing:
                raise EngineClosed("the engine is closed")
            self._calls.append(run)
            self._wake.notify()
        return future.result()

    def close(self) -> None:
        """Ends what is running and joins the thread. Idempotent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while self._collect():
            try:
                self.engine.step()
            except Exception as error:
                log.exception("a step failed; its requests are given up")
                self.engine.fail_all(error)
        self.engine.fail_all(EngineClosed("the engine was closed"))
        self.engine.close()

    def _collect(self) -> bool:
        """Take over arrived requests; wait while there is nothing to do. False when it is time to end."""
        with self._wake:
            while not (self._closing or self._arriving or self._calls or self.engine.busy):
                self._wake.wait()
            arrived, calls = list(self._arriving), list(self._calls)
            self._arriving.clear()
            self._calls.clear()
            closing = self._closing
        for call in calls:
            call()
        for request in arrived:
            try:
                self.engine.submit(request)
            except PacelineError as error:
                request.on_event(Failed(error, Timings()))
        return not closing
