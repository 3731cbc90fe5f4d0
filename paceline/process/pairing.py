"""Which files around can draft for a target, and what each would gain on this machine: headers first, then measured in
processes of their own (`pair_trial`), so that a file which is the end of one stops nothing. What the library offers as
`pair`; knows files and processes, not words for people."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from paceline import models
from paceline.config import Settings
from paceline.errors import ModelError
from paceline.process.candidates import Candidate, Fit, Look, files_in
from paceline.process.handle import QUIET, search_path
from paceline.process.heads import last_line
from paceline.process.pair_trial import Begun, Figures, Loaded, Message, Order, Prepared, Rejected, Tried
from paceline.process.probe import POOR

WORTH = 1.05  # times what look-ups alone gain: less is within the error of measuring
LOADING_S = 300.0  # for opening files, beside the seconds for measuring
RANKS = (Fit.HEAD, Fit.SAME, Fit.NEARLY, Fit.OTHER)
N_LINES = 40
SLOW = "given up after {:.0f} s"


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate, and what was measured of it; `why` it was not, where that went wrong."""

    candidate: Candidate
    figures: Figures | None = None
    why: str = ""

    @property
    def agrees(self) -> bool:
        """Whether it has anything to do with the target."""
        return self.figures is not None and self.figures.agreement >= POOR


@dataclass(slots=True)
class PairReport:
    """All files, the best first. `look_ups` is what drafting without any of them would gain."""

    target: Candidate
    look_ups: float = 1.0
    batch_ms: dict[int, float] = field(default_factory=dict)
    n_written: int = 0
    found: list[Found] = field(default_factory=list)

    @property
    def plain_ms(self) -> float:
        """What a token takes without drafts; 0 where nothing was measured."""
        return self.batch_ms.get(1, 0.0)

    def gain(self, found: Found) -> float:
        """Against drafting by look-ups alone."""
        return found.figures.speedup / self.look_ups if found.figures else 0.0

    def is_worth(self, found: Found) -> bool:
        """By its own merit, and beside look-ups, which cost no memory."""
        return found.figures is not None and min(self.gain(found), found.figures.alone) >= WORTH

    @property
    def best(self) -> Found | None:
        """The one to use, if one is worth using."""
        return self.found[0] if self.found and self.is_worth(self.found[0]) else None

    def rank(self) -> None:
        """What gains most; of those that gain nothing, what agrees most; then what could not be measured."""
        self.found.sort(key=lambda found: -found.candidate.n_bytes)
        self.found.sort(key=self._merit, reverse=True)

    def _merit(self, found: Found) -> tuple[bool, float, float]:
        if not found.figures:
            return False, 0.0, 0.0
        return True, self.gain(found) if self.is_worth(found) else 1.0, found.figures.agreement


@dataclass(frozen=True, slots=True)
class PairingStage:
    """How far it is: what is being done, and of how many things so many are done."""

    doing: str
    n_done: float
    n_all: int


OnStage = Callable[[PairingStage], None]


def look(settings: Settings, places: Sequence[str]) -> tuple[Candidate, list[Candidate]]:
    """The target, and every file in these places by what its header says; those to be measured in the order in which
    they promise most."""
    path = settings.model.path
    at = Look(path)
    target = Candidate(path, Fit.SAME, "", at.target.n_params, at.target.n_bytes)
    for place in places:
        if not Path(place).exists():
            raise ModelError(f"there is no folder or file {place}")
    places = places or (str(Path(path).resolve().parent), str(models.cache_folder()))
    found = [*at.own_heads(), *(at.at(file) for file in files_in(places, path))]
    return target, sorted(found, key=lambda c: (list(Fit).index(c.fit), c.n_bytes))


def pair(
    settings: Settings, places: Sequence[str] = (), seconds: float = 20.0, on_stage: OnStage | None = None
) -> PairReport:
    """Looks in the target's folder and ours where no place is named. `settings.draft`, where given, says how drafts are
    to be loaded. Ctrl-C ends the measuring, not the result, once something was measured."""
    tell = on_stage or (lambda stage: None)
    tell(PairingStage("reading headers", 0, 1))
    target, candidates = look(settings, places)
    tried = [candidate for candidate in candidates if candidate.fit in RANKS]
    report = PairReport(target)
    measuring = Measuring(settings, tried, seconds, report, tell)
    try:
        if tried:
            measuring.all()
    except KeyboardInterrupt:
        if not report.found:
            raise
    done = {found.candidate for found in report.found}
    why = {c: c.note if c.fit is Fit.NONE else "not measured" for c in candidates}
    report.found += [Found(candidate, why=why[candidate]) for candidate in candidates if candidate not in done]
    report.rank()
    return report


class Measuring:
    """Candidates one after the other in a process that holds the target; in another one when that has died."""

    def __init__(
        self, settings: Settings, candidates: Sequence[Candidate], seconds: float, report: PairReport, tell: OnStage
    ) -> None:
        self._settings = settings
        self._left = deque(candidates)
        self._n_all = 1 + len(candidates)
        self._seconds = seconds
        self._report = report
        self._tell = tell
        self._prepared: Prepared | None = None
        self._who: Candidate | None = None

    def all(self) -> None:
        while self._left:
            self._who = None
            order = Order(self._settings, list(self._left), self._seconds, self._prepared)
            with MeasuringProcess(order, LOADING_S + 4 * self._seconds) as trial:
                for message in trial:
                    self._take(message)
                if self._left:
                    self._blame(trial.last_words())

    def _take(self, message: Message) -> None:
        report = self._report
        match message:
            case Loaded(share):
                doing = "loading {}" if share < 1 else "{} writes"
                self._stage(doing.format(report.target.name), share / 2)
            case Prepared():
                self._prepared = message
                report.look_ups = message.look_ups
                report.batch_ms = {n: 1e3 * seconds for n, seconds in message.seconds.items()}
                report.n_written = sum(len(text.answer) for text in message.texts)
            case Begun():
                self._who = self._left[0]
                self._stage(f"trying {self._who.name}", self._n_all - len(self._left))
            case Tried(_, figures):
                report.found.append(Found(self._left.popleft(), figures))
            case Rejected(_, why) if not self._prepared:
                raise ModelError(why)
            case Rejected(_, why):
                candidate = self._left.popleft()
                report.found.append(Found(candidate, why=why.removeprefix(f"{candidate.name} ")))

    def _stage(self, doing: str, n_done: float) -> None:
        self._tell(PairingStage(doing, n_done, self._n_all))

    def _blame(self, words: str) -> None:
        """The process has ended before its work: of the file it had begun with, or of the target."""
        if not self._prepared:
            raise ModelError(f"{self._report.target.name} cannot be measured: {words}")
        if self._who is not self._left[0]:
            raise ModelError(f"the measuring process ended: {words}")
        self._report.found.append(Found(self._left.popleft(), why=words))


class MeasuringProcess:
    """One measuring process. Iterating gives what it says, until it ends, or is silent for longer than `patience`."""

    def __init__(self, order: Order, patience: float) -> None:
        self._patience = patience
        self._gave_up = False
        self._last: deque[str] = deque(maxlen=N_LINES)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "paceline.process.pair_trial"],
            env=QUIET | os.environ | {"PYTHONPATH": search_path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._listening = threading.Thread(target=self._listen, name="paceline-pair-stderr", daemon=True)
        self._listening.start()
        assert self._process.stdin
        with suppress(BrokenPipeError), self._process.stdin as line:
            line.write(msgspec.msgpack.encode(order))

    def _listen(self) -> None:
        assert self._process.stderr
        for raw in self._process.stderr:
            self._last.append(raw.decode("utf-8", "replace"))

    def __iter__(self) -> Iterator[Message]:
        assert self._process.stdout
        decoder = msgspec.json.Decoder(Message)
        while True:
            timer = threading.Timer(self._patience, self._give_up)
            timer.start()
            try:
                line = self._process.stdout.readline()
            finally:
                timer.cancel()
            if not line.endswith(b"\n"):
                return
            yield decoder.decode(line)

    def _give_up(self) -> None:
        self._gave_up = True
        self._process.kill()

    def last_words(self) -> str:
        """Why it ended."""
        code = self._process.wait()
        self._listening.join(1)
        if self._gave_up:
            return SLOW.format(self._patience)
        said = last_line("".join(self._last))
        return f"libllama gave up on it ({signal.Signals(-code).name}): {said}" if code < 0 else said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """By force where something went wrong here; it has nothing to save."""
        self._process.kill()
        self._process.wait()
        self._listening.join(1)
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
