"""The child process: one engine on a line to its front. `python -m paceline.process.child FD` is started by
`supervisor`, never by people."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import monotonic, sleep
from typing import Any

from paceline import garbage
from paceline.config import Settings
from paceline.config.granted import usable_cores
from paceline.engine.request import Emitted, Event, Request, Started, failed
from paceline.engine.worker import WORKER
from paceline.process.local import open_engine
from paceline.process.messages import (
    QUESTIONS,
    Call,
    Cancel,
    Close,
    Events,
    Line,
    Loading,
    Logged,
    Open,
    Raised,
    Ready,
    Refused,
    Returned,
    Submit,
    ToChild,
    child_line,
)
from paceline.process.watch import Watch, on_death, patience
from paceline.text.vocabulary import table_of

N_ANSWERING = 4
HOLD_MS = 20
"""Nobody sees it. Where every core computes, each message to the front takes its time from the computing."""

BREATH_S = 0.0045
"""For which a core is free after a first token: somebody has to carry it to the client, who waits for nothing else. It
may stand behind a thread that spins, for a slice of the scheduler's: up to 4 ms."""


class Outbox:
    """Events of a step, sent together when it is over; but a start at once, for the step may be the end of us, and the
    front has to know who was at work. More of a text may wait for the next step, up to `hold_s` after the last."""

    def __init__(self, line: Line[ToChild]) -> None:
        self._line = line
        self.hold_s = 0.0
        self._events: list[tuple[int, Event]] = []
        self._urgent = False
        self._sent = 0.0
        self._lock = threading.Lock()
        self._sending = threading.Lock()  # what was taken first is sent first

    def add(self, id: int, event: Event) -> None:
        with self._lock:
            self._events.append((id, event))
            self._urgent |= not isinstance(event, Emitted) or event.is_first
        if isinstance(event, Started):
            self.flush()

    def flush(self, *, now: bool = False) -> None:
        """Sends what cannot wait, and with it all the rest; or everything `now`."""
        with self._sending:
            events = self._taken(now)
            if events:
                with suppress(OSError):
                    self._line.send(Events(events))
        if self.hold_s and any(isinstance(event, Emitted) and event.is_first for _, event in events):
            sleep(BREATH_S)

    def _taken(self, now: bool) -> list[tuple[int, Event]]:
        time = monotonic()
        with self._lock:
            if not (now or self._urgent or time - self._sent >= self.hold_s):
                return []
            events, self._events, self._urgent, self._sent = self._events, [], False, time
        return events


def hold_s(settings: Settings, n_devices: int) -> float:
    """How long more of a text may be held back: not at all where something else than the processor computes."""
    if settings.engine.hold_ms is not None:
        return settings.engine.hold_ms / 1e3
    elsewhere = n_devices > 1 and settings.model.n_gpu_layers != 0
    return HOLD_MS / 1e3 if settings.context.threads >= usable_cores() and not elsewhere else 0.0


class LogLine(logging.Handler):
    """The log goes to the front, which knows where people want it."""

    def __init__(self, line: Line[ToChild]) -> None:
        super().__init__()
        self._line = line
        self.setFormatter(logging.Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self._line.send(Logged(record.name, record.levelno, self.format(record)))


class Child:
    """Takes messages one by one. Grammars are compiled, and questions answered, on threads of their own: neither keeps
    the next message waiting."""

    def __init__(self, line: Line[ToChild], opening: Open) -> None:
        self._line = line
        self._outbox = Outbox(line)
        self._compiling = ThreadPoolExecutor(1, "paceline-grammars")
        self._answering = ThreadPoolExecutor(N_ANSWERING, "paceline-questions")
        WORKER.on_death = on_death
        flush, again = self._outbox.flush, opening.again
        settings = opening.settings
        self.engine = open_engine(settings, self._progress, after_step=flush, hurried=again)
        self._outbox.hold_s = hold_s(settings, len(self.engine.info.devices))
        Watch(patience(self.engine.info.n_params, settings.context.n_batch)).start()
        vocabulary = None if again else table_of(self.engine.vocabulary)
        line.send(Ready(self.engine.info, vocabulary))

    def _progress(self, share: float) -> None:
        self._line.send(Loading(share))

    def take(self, message: Submit | Cancel | Call) -> None:
        match message:
            case Submit(request) if request.grammar:
                self._compiling.submit(self._submit, request)
            case Submit(request):
                self._submit(request)
            case Cancel(id):
                self.engine.cancel(id)
            case Call():
                self._answering.submit(self._answer, message)

    def _submit(self, request: Request) -> None:
        try:
            self.engine.submit(request, partial(self._outbox.add, request.id))
        except Exception as error:
            self._outbox.add(request.id, failed(error))
            self._outbox.flush()

    def _answer(self, call: Call) -> None:
        assert call.name in QUESTIONS, call.name
        method: Callable[..., Any] = getattr(self.engine, call.name)
        self._outbox.flush(now=True)  # it may be long before the next step
        try:
            answer: Returned | Raised = Returned(call.id, method(*call.args))
        except Exception as error:
            answer = Raised(call.id, type(error).__name__, str(error))
        with suppress(OSError):
            self._line.send(answer)


def serve(line: Line[ToChild]) -> None:
    """From the first message to the last, or until the front is gone."""
    messages = iter(line)
    opening = next(messages, None)
    if not isinstance(opening, Open):
        return
    logging.getLogger("paceline").addHandler(LogLine(line))
    for name, level in opening.log_levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        child = Child(line, opening)
    except Exception as error:
        line.send(Refused(type(error).__name__, str(error)))
        return
    garbage.settle()
    for message in messages:
        if isinstance(message, Close):
            break
        assert not isinstance(message, Open)
        child.take(message)
    child.engine.close()


def main() -> None:
    """The front hears Ctrl-C and SIGTERM and says when to end; it may need us to finish answers first."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        serve(child_line(socket.socket(fileno=int(sys.argv[1]))))
    sys.stderr.flush()
    os._exit(0)  # a grammar may still be compiling, and nobody waits for it


if __name__ == "__main__":
    main()
