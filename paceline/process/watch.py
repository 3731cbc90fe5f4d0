"""What ends a child process that computes no more: its front starts another, where waiting would help nobody."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
import traceback
from typing import NoReturn

from paceline.engine.worker import WORKER

TICK = 1.0  # seconds
PATIENCE = 120.0
SLOW = 1e11  # operations a second: a machine slower than that is not used for a model of this size
LONGER = 4  # than the longest so far
EXIT_CODE = 70


def patience(n_params: int, n_batch: int) -> float:
    """Seconds in which the largest batch must be over, on the slowest machine."""
    return PATIENCE + 2 * n_params * n_batch / SLOW


def end(why: str) -> NoReturn:
    print(why, file=sys.stderr, flush=True)
    os._exit(EXIT_CODE)


def on_death(error: BaseException) -> None:
    """The computing thread is gone; what was asked of it is asked of another process."""
    lines = "".join(traceback.format_exception(error))
    end(f"{lines}the computing thread ended: {type(error).__name__}: {error}")


class Watch:
    """Looks once a second. Counts its own ticks: while the whole process is stopped nobody is late."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._round = self._n_ticks = self._longest = 0

    def start(self) -> None:
        threading.Thread(target=self._run, name="paceline-watch", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(TICK)
            if late := self.late(WORKER.round):
                faulthandler.dump_traceback()
                end(f"nothing was computed for {late:.0f} s")
            if not WORKER.alive:
                end("the computing thread is gone")

    def late(self, round: int) -> float:
        """Seconds that a round has taken, where that is too long; 0 else."""
        if round != self._round or round % 2 == 0:
            self._longest = max(self._longest, self._n_ticks)
            self._round, self._n_ticks = round, 0
            return 0.0
        self._n_ticks += 1
        waited = self._n_ticks * TICK
        return waited if waited > self._seconds + LONGER * self._longest * TICK else 0.0
