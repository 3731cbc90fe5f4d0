"""The measuring itself: every method runs every job, all at once in one process, a step of one after a step of another.

A busy or throttled machine then slows all methods alike, however short its moods. A method's time is that of its own
steps. Speeds are tokens per second of generation, never whole times: outside --exact, texts may part at near-ties.
With several slots the speed is that of all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from time import perf_counter, sleep
from typing import Any, Protocol, TypeVar

from paceline import garbage
from paceline.bench.jobs import Job
from paceline.bench.methods import ORACLE, Method
from paceline.bench.oracle import Oracle
from paceline.config import SamplingParams, Settings
from paceline.engine.request import Timings
from paceline.errors import DecodeError, RequestError
from paceline.generation import Generation
from paceline.library import Engine, between_steps
from paceline.llama.shared import SharedModels

WARM_UP = "Count from one to twenty, then write a short poem about the sea."
N_WARM_UP = 24
N_REHEARSALS = 2
LOOK_S = 0.02
GROUPS = count()
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Sample:
    """One method's run of one job: the tokens and steps that fall within its seconds. `error` says why it has none.

    `planned_plain` and `planned_actual` are the planner's own account, where there is one: the seconds it thinks the
    job would have taken without speculation, and those of the steps it planned.
    """

    method: str
    category: str
    job: int
    repeat: int
    n_tokens: int = 0
    seconds: float = 0.0
    n_steps: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    planned_plain: float = 0.0
    planned_actual: float = 0.0
    texts: tuple[tuple[int, ...], ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure. `seconds` ends it early, after a whole job, once that much time is spent."""

    methods: tuple[Method, ...]
    jobs: tuple[Job, ...]
    n_tokens: int
    sampling: SamplingParams
    n_repeats: int = 1
    seconds: float = float("inf")

    def __len__(self) -> int:
        return len(self.methods) * len(self.jobs) * self.n_repeats

    def sampling_of(self, job: Job, repeat: int) -> SamplingParams:
        """The same for every method, another for every job and repeat."""
        return replace(self.sampling, ignore_eos=True, seed=self.sampling.seed + job.number + 10_007 * repeat)


@dataclass(frozen=True, slots=True)
class Measured:
    """What one prompt's generation came to."""

    tokens: tuple[int, ...]
    timings: Timings


@dataclass(frozen=True, slots=True)
class Account:
    """How long an engine has worked, and by its planner's account: without speculation, and with it."""

    seconds: float
    plain: float = 0.0
    actual: float = 0.0

    def __sub__(self, before: Account) -> Account:
        return Account(self.seconds - before.seconds, self.plain - before.plain, self.actual - before.actual)


Finish = Callable[[], tuple[list[Measured], Account]]  # waits for a started job: its answers, and the time they took


class Contender(Protocol):
    """One method, ready to run jobs: the seam a fake fits into."""

    def warm_up(self) -> None: ...
    def prepare(self, job: Job, n_tokens: int, sampling: SamplingParams) -> None: ...
    def start(self, job: Job, n_tokens: int, sampling: SamplingParams) -> Finish: ...
    @property
    def busy(self) -> bool: ...
    def close(self) -> None: ...


def run(plan: Plan, open_contender: Callable[[Method], Contender]) -> Generator[Sample, None, None]:
    """Samples as they come; its end, or `close`, closes the engines. Each repeat starts with fresh ones: drafters
    remember the answers they have seen."""
    deadline = perf_counter() + plan.seconds
    for repeat in range(plan.n_repeats):
        with ExitStack() as stack:
            contenders: dict[str, Contender] = {}
            for method in plan.methods:
                contenders[method.name] = contender = open_contender(method)
                stack.callback(contender.close)
                contender.warm_up()
            garbage.settle()
            for turn, job in enumerate(plan.jobs):
                yield from run_job(plan, contenders, job, repeat, turn)
                if perf_counter() > deadline:
                    return


def run_job(plan: Plan, contenders: Mapping[str, Contender], job: Job, repeat: int, turn: int) -> Iterator[Sample]:
    """Everybody gets ready, one after the other; then all run at once."""
    sampling = plan.sampling_of(job, repeat)
    order = [method.name for method in rotated(plan.methods, turn + repeat)]
    errors: dict[str, str] = {}

    def attempt(name: str, work: Callable[[], Item]) -> Item | None:
        try:
            return work()
        except (RequestError, DecodeError) as error:
            errors[name] = str(error)
            return None

    for name in order:
        attempt(name, partial(contenders[name].prepare, job, plan.n_tokens, sampling))
    able = [name for name in order if name not in errors]

    def start() -> dict[str, Finish | None]:
        return {name: attempt(name, partial(contenders[name].start, job, plan.n_tokens, sampling)) for name in able}

    running = between_steps(start)  # between two steps, so that nobody has computed one before all are ready
    while any(contenders[name].busy for name in able):
        sleep(LOOK_S)  # answers are read when all are written: reading one's would slow the other's steps
    for name in order:
        finish = running.get(name)
        done = attempt(name, finish) if finish else None
        yield (
            sample(name, job, repeat, *done)
            if done
            else Sample(name, job.category, job.number, repeat, error=errors[name])
        )


def rotated(items: Sequence[Item], turn: int) -> list[Item]:
    """Nobody is always first."""
    n = turn % len(items)
    return [*items[n:], *items[:n]]


def sample(method: str, job: Job, repeat: int, answers: Sequence[Measured], took: Account) -> Sample:
    """The clock starts at a first token, so first tokens do not count."""
    timings = [answer.timings for answer in answers]
    return Sample(
        method,
        job.category,
        job.number,
        repeat,
        n_tokens=sum(t.predicted_n - 1 for t in timings),
        seconds=took.seconds,
        n_steps=sum(t.n_steps for t in timings),
        n_drafted=sum(t.draft_n for t in timings),
        n_accepted=sum(t.draft_n_accepted for t in timings),
        planned_plain=took.plain,
        planned_actual=took.actual,
        texts=tuple(answer.tokens for answer in answers),
    )


def opener(base: Settings, models: SharedModels) -> Callable[[Method], Contender]:
    """Engines for methods, all on the same models and on the same settings otherwise."""

    def open_contender(method: Method) -> Contender:
        settings = method.settings(base)
        if method.name != ORACLE:
            return Runner(Engine.from_settings(settings, models=models))
        oracle = Oracle()
        return OracleRunner(Engine.from_settings(settings, drafters=[oracle], models=models), oracle)

    return open_contender


class Runner:
    """An engine with the settings of one method."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def warm_up(self) -> None:
        prompt = tuple(self.engine.tokenize(WARM_UP))
        self.together([prompt] * self.engine.n_slots, N_WARM_UP, SamplingParams(temperature=0, ignore_eos=True))

    def prepare(self, job: Job, n_tokens: int, sampling: SamplingParams) -> None:
        """Read the prompts, so that all slots start together."""
        self.together(job.prompts, 1, sampling)

    def start(self, job: Job, n_tokens: int, sampling: SamplingParams) -> Finish:
        """The first answer to be done ends them all: speeds are compared while every slot is busy, as on a server with
        much to do. Otherwise a method would be judged by how long its slowest answer runs alone."""
        before = self.clock()
        group = next(GROUPS) if len(job.prompts) > 1 else None
        started = [self.engine.generate(p, max_tokens=n_tokens, sampling=sampling, group=group) for p in job.prompts]

        def finish() -> tuple[list[Measured], Account]:
            took = self.clock() - before
            return [answer_of(generation) for generation in started], took

        return finish

    @property
    def busy(self) -> bool:
        status = self.engine.status()
        return status.n_waiting > 0 or any(slot.request is not None for slot in status.slots)

    def clock(self) -> Account:
        """Read between two steps: answers are complete a moment before the step that wrote their end."""
        status = self.engine.status()
        return Account(status.seconds, *(status.planned or ()))

    def together(
        self, prompts: Sequence[tuple[int, ...]], n_tokens: int, sampling: SamplingParams, **options: Any
    ) -> list[Measured]:
        started = [self.engine.generate(p, max_tokens=n_tokens, sampling=sampling, **options) for p in prompts]
        return [answer_of(generation) for generation in started]

    def close(self) -> None:
        self.engine.close()


class OracleRunner(Runner):
    """Runs every job without drafts first, to tell the oracle.

    Batches of another size may decide near-ties another way. Where they can, it rehearses: what comes out with the
    oracle's drafts is what it has to know as well.
    """

    def __init__(self, engine: Engine, oracle: Oracle) -> None:
        super().__init__(engine)
        self.oracle = oracle

    def prepare(self, job: Job, n_tokens: int, sampling: SamplingParams) -> None:
        self.oracle.forget()
        known = self.study(job, n_tokens, sampling, speculative={"types": ()})
        for _ in range(0 if self.engine.settings.engine.exact else N_REHEARSALS):
            before, known = known, self.study(job, n_tokens, sampling)
            if known == before:
                break

    def study(self, job: Job, n_tokens: int, sampling: SamplingParams, **options: Any) -> list[tuple[int, ...]]:
        answers = [answer.tokens for answer in self.together(job.prompts, n_tokens, sampling, **options)]
        for prompt, answer in zip(job.prompts, answers, strict=True):
            self.oracle.learn(prompt, answer)
        return answers


def answer_of(generation: Generation) -> Measured:
    tokens = tuple(piece.token.id for chunk in generation for piece in chunk.pieces)
    assert generation.finish
    return Measured(tokens, generation.finish.timings)
