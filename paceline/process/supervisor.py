"""The engine in a child process, and what happens when that dies: another is started, and every request goes on where
it was. The front keeps what it takes for that: the request, and the tokens written so far."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any, Protocol

import msgspec

from paceline.config import Settings
from paceline.engine.request import Emitted, Event, Failed, Finished, Request, Resume, Started, Timings, failed
from paceline.errors import EngineClosed, EngineDied, PacelineError, WorkerAway, named
from paceline.process.asking import Asking
from paceline.process.base import Health, Info, OnEvent, OnProgress, Status
from paceline.process.handle import Handle
from paceline.process.messages import Call, Cancel, Events, Raised, Returned, Submit, ToChild, ToFront
from paceline.text.vocabulary import Vocabulary

log = logging.getLogger("paceline")

GUILTY = 3  # deaths without progress between them, after which a request is given up
SUSPECT = 2  # after which it runs alone, so that the innocent never get as far as the guilty
ACQUITTED = 1  # below which it runs with the others again
PROGRESS = 8  # tokens that make up for one death
KILLED = 1 / 32  # what being killed by somebody counts for: it is hardly a request's fault
N_STARTS = 8  # of which none succeeds, before requests are given up
N_REFUSALS = 3
AWAY = 120.0  # seconds for which requests wait for a machine that holds a part of the model
DELAYS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
CLOSING = 10.0  # seconds


class Pending(Protocol):
    """Something that the child was asked and has not finished."""

    guilt: float
    sent: bool

    @property
    def id(self) -> int: ...
    @property
    def at_work(self) -> bool:
        """Whether the child may have been busy with it when it died."""

    @property
    def wakes(self) -> bool:
        """Whether an engine that sleeps has to get up for it."""

    def message(self) -> ToChild:
        """What to tell a child that knows nothing of it."""

    def give_up(self, error: PacelineError) -> None:
        """Tell whoever waits."""


@dataclass(slots=True)
class Live:
    """A request at work or waiting."""

    request: Request
    on_event: OnEvent
    tokens: list[int] = field(default_factory=list)
    timings: Timings = field(default_factory=Timings)
    started: bool = False
    cancelled: bool = False
    guilt: float = 0.0
    sent: bool = False

    @property
    def id(self) -> int:
        return self.request.id

    @property
    def at_work(self) -> bool:
        return self.started or self.request.grammar is not None

    @property
    def wakes(self) -> bool:
        return True

    def message(self) -> ToChild:
        self.started = False
        if not self.tokens:
            return Submit(self.request)
        return Submit(msgspec.structs.replace(self.request, resume=Resume(self.tokens, self.timings)))

    def note(self, event: Event) -> None:
        """Note what it takes to go on after this."""
        if isinstance(event, Started):
            self.started = True
        elif isinstance(event, Emitted):
            self.tokens += [token.id for token in event.tokens]
            self.timings = event.timings
            self.guilt = max(0.0, self.guilt - len(event.tokens) / PROGRESS)

    def give_up(self, error: PacelineError) -> None:
        self.on_event(failed(error, self.timings))


@dataclass(slots=True)
class Question:
    """A call that somebody waits for."""

    id: int
    name: str
    args: tuple[Any, ...]
    future: Future[Any] = field(default_factory=Future)
    guilt: float = 0.0
    sent: bool = False
    at_work: bool = True

    @property
    def wakes(self) -> bool:
        return self.name != "status"

    def message(self) -> ToChild:
        return Call(self.id, self.name, self.args)

    def give_up(self, error: PacelineError) -> None:
        self.future.set_exception(error)


class ChildEngine(Asking):
    """Looks like an engine; is a child process and a thread that reads what it says."""

    def __init__(self, settings: Settings, on_progress: OnProgress | None = None) -> None:
        self._settings = settings
        self._pending: dict[int, Pending] = {}
        self._alone: Pending | None = None
        self._numbers = count(1)
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._n_restarts = 0
        self._reason = ""
        self._failing = ""
        self._waiting = ""  # for a machine that is away
        self._asleep: Status | None = None  # as it was when it fell asleep
        self._napping = False  # the child was let go on purpose
        self._woken = threading.Event()
        self._last_wanted = monotonic()
        self._handle: Handle | None = None
        self._starting = handle = Handle()
        try:
            ready = handle.open(settings, on_progress, again=False)
        except BaseException:
            handle.end()
            raise
        assert ready.vocabulary
        self.info: Info = ready.info
        self.vocabulary: Vocabulary = ready.vocabulary
        self._handle = handle
        self._thread = threading.Thread(target=self._run, args=(handle,), name="paceline-supervisor", daemon=True)
        self._thread.start()
        if settings.engine.sleep_idle_s is not None:
            nap = (settings.engine.sleep_idle_s,)
            threading.Thread(target=self._nap_when_idle, args=nap, name="paceline-nap", daemon=True).start()

    @property
    def health(self) -> Health:
        asleep = self._asleep is not None
        reason = self._failing or self._waiting or self._reason
        return Health(asleep or self._handle is not None, self._n_restarts, reason, asleep)

    @property
    def pid(self) -> int | None:
        """The child's."""
        handle = self._handle
        return handle.pid if handle else None

    # -- what is asked

    def submit(self, request: Request, on_event: OnEvent) -> None:
        """One that goes on where another engine had left it is known that far."""
        before = request.resume or Resume([], Timings())
        self._add(Live(request, on_event, before.tokens.copy(), before.timings))

    def cancel(self, id: int) -> None:
        with self._lock:
            live = self._pending.get(id)
            if isinstance(live, Live):
                live.cancelled = True
                if live.sent and self._handle:
                    self._handle.send(Cancel(id))

    def status(self) -> Status:
        if asleep := self._asleep:
            return asleep
        return msgspec.convert(self._ask("status"), Status)

    def _ask(self, name: str, *args: Any) -> Any:
        question = Question(-next(self._numbers), name, args)
        self._add(question)
        return question.future.result()

    def _add(self, pending: Pending) -> None:
        with self._lock:
            if self._closing.is_set():
                raise EngineClosed("the engine is closed")
            if self._failing:
                raise EngineDied(self._failing)
            self._pending[pending.id] = pending
            if pending.wakes:
                self._last_wanted, self._asleep = monotonic(), None
                self._woken.set()
            self._send_waiting()

    def _send_waiting(self) -> None:
        """Everything that the child was not told yet; while a suspect runs alone, that one only."""
        if self._handle is None:
            return
        for pending in [self._alone] if self._alone else list(self._pending.values()):
            if not pending.sent:
                pending.sent = True
                self._handle.send(pending.message())
                if isinstance(pending, Live) and pending.cancelled:
                    self._handle.send(Cancel(pending.id))

    # -- what is heard

    def _run(self, handle: Handle | None) -> None:
        while handle:
            self._listen(handle)
            reason = handle.end()
            with self._lock:
                self._handle = None
            if self._closing.is_set():
                break
            if self._napping:
                self._woken.wait()
            else:
                self._blame(reason, KILLED if handle.was_murdered else 1.0)
            handle = self._restart()
        self._give_up_all(EngineClosed("the engine was closed"))

    def _listen(self, handle: Handle) -> None:
        """Until the child is gone. One that cannot be understood has to go."""
        try:
            for message in handle.messages():
                self._hear(message)
        except Exception:
            log.exception("what the engine's process said could not be understood")
            handle.kill()

    def _hear(self, message: ToFront) -> None:
        match message:
            case Events(events):
                for id, event in events:
                    self._hear_event(id, event)
            case Returned(id, value):
                self._conclude(id, lambda future: future.set_result(value))
            case Raised(id, kind, text):
                self._conclude(id, lambda future: future.set_exception(named(kind, text)))
            case _:
                log.warning("the engine's process said %s out of turn", type(message).__name__)

    def _hear_event(self, id: int, event: Event) -> None:
        live = self._pending.get(id)
        if not isinstance(live, Live):
            return
        live.note(event)
        over = isinstance(event, Finished | Failed)
        if over:
            with self._lock:
                self._pending.pop(id, None)
        if live is self._alone and (over or live.guilt < ACQUITTED):
            self._release()
        live.on_event(event)

    def _conclude(self, id: int, conclude: Callable[[Future[Any]], None]) -> None:
        with self._lock:
            question = self._pending.pop(id, None)
        if isinstance(question, Question):
            if question is self._alone:
                self._release()
            conclude(question.future)

    # -- what happens when it dies

    def _blame(self, reason: str, weight: float) -> None:
        """Whoever was at work may be the cause. One that was so too often is given up; the others are not."""
        with self._lock:
            self._reason = reason
            log.error("the engine's process ended (%s); starting another", reason)
            for pending in list(self._pending.values()):
                pending.guilt += weight if pending.sent and pending.at_work else 0.0
                pending.sent = False
                if pending.guilt >= GUILTY:
                    del self._pending[pending.id]
                    pending.give_up(
                        EngineDied(f"the engine's process ended {GUILTY} times over this request; the last: {reason}")
                    )
            self._alone = self._next_suspect()

    def _release(self) -> None:
        """Who ran alone got further, so it was not the cause: the next suspect runs alone, or all together."""
        with self._lock:
            self._alone = self._next_suspect()
            self._send_waiting()

    def _next_suspect(self) -> Pending | None:
        return next((pending for pending in self._pending.values() if pending.guilt >= SUSPECT), None)

    def _restart(self) -> Handle | None:
        """Another child, however long it takes; None when nobody wants one any more."""
        n_deaths = n_refusals = n_away = 0
        begun = monotonic()
        while not self._closing.wait(DELAYS[min(n_deaths + n_refusals + n_away, len(DELAYS) - 1)]):
            self._n_restarts += not self._napping
            self._napping = False
            try:
                self._starting = handle = Handle()
                handle.open(self._settings, None, again=True)
                return self._take_over(handle)
            except (EngineDied, OSError) as error:
                n_deaths, why = n_deaths + 1, str(error)
            except WorkerAway as error:
                handle.end()
                n_away, why = n_away + 1, f"the engine waits to be started again: {error}"
                self._waiting = why
            except PacelineError as error:
                handle.end()
                n_refusals, why = n_refusals + 1, f"the engine cannot be started again: {error}"
            lost = n_away and monotonic() - begun > AWAY
            if lost or n_deaths >= N_STARTS or n_refusals >= N_REFUSALS:
                with self._lock:
                    self._failing = why
                self._give_up_all(EngineDied(why))
        return None

    def _take_over(self, handle: Handle) -> Handle:
        with self._lock:
            self._handle, self._failing, self._waiting = handle, "", ""
            if self._closing.is_set():  # since before it was there to be killed
                handle.kill()
            self._send_waiting()
        return handle

    # -- what happens when nobody asks for anything

    def _nap_when_idle(self, seconds: float) -> None:
        while not self._closing.wait(min(1.0, seconds / 4)):
            with self._lock:
                if any(pending.wakes for pending in self._pending.values()):
                    self._last_wanted = monotonic()
                idle = self._handle is not None and monotonic() - self._last_wanted >= seconds
            if idle:
                with suppress(PacelineError):
                    self._fall_asleep(self.status())

    def _fall_asleep(self, status: Status) -> None:
        """Let the child go, unless somebody came in the meantime. Who comes later wakes it: another is started."""
        with self._lock:
            handle = self._handle
            if self._pending or handle is None:
                return
            self._woken.clear()
            self._asleep, self._napping, self._handle = status, True, None
        log.info("nobody has asked for anything: the engine sleeps, its memory is free until the next request")
        handle.close(CLOSING)

    def _give_up_all(self, error: PacelineError) -> None:
        with self._lock:
            given_up, self._pending = list(self._pending.values()), {}
            self._alone = None
        for pending in given_up:
            pending.give_up(error)

    def close(self) -> None:
        with self._lock:
            self._closing.set()
            self._woken.set()
            handle = self._handle
        if handle:
            handle.close(CLOSING)
        else:
            self._starting.kill()
        if threading.current_thread() is not self._thread:
            self._thread.join()
