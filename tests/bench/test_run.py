"""The order of measuring and what is counted, with engines that only write down who was called."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from paceline.bench.jobs import Job
from paceline.bench.methods import Method, parse_all
from paceline.bench.run import Account, Contender, Finish, Measured, Plan, Sample, run
from paceline.config import SamplingParams
from paceline.engine.request import Timings
from paceline.errors import ContextFull

SAMPLING = SamplingParams(temperature=0.5, seed=7)


class Book:
    """All that happened, in order."""

    def __init__(self, fails: Iterable[tuple[str, int]] = ()) -> None:
        self.events: list[str] = []
        self.samplings: dict[tuple[str, int], list[SamplingParams]] = {}
        self.fails = set(fails)

    def open(self, method: Method) -> Contender:
        self.events.append(f"open {method.name}")
        return FakeContender(method.name, self)


class FakeContender:
    def __init__(self, name: str, book: Book) -> None:
        self.name = name
        self.book = book

    def warm_up(self) -> None:
        self.book.events.append(f"warm {self.name}")

    def prepare(self, job: Job, n_tokens: int, sampling: SamplingParams) -> None:
        self.book.events.append(f"read {self.name}{job.number}")

    def start(self, job: Job, n_tokens: int, sampling: SamplingParams) -> Finish:
        self.book.events.append(f"{self.name}{job.number}")
        self.book.samplings.setdefault((self.name, job.number), []).append(sampling)

        def finish() -> tuple[list[Measured], Account]:
            self.book.events.append(f"end {self.name}{job.number}")
            if (self.name, job.number) in self.book.fails:
                raise ContextFull("too long")
            timings = Timings(predicted_n=n_tokens, predicted_ms=500.0, n_steps=5, draft_n=8, draft_n_accepted=6)
            return [Measured((1, 2, 3), timings) for _ in job.prompts], Account(2.0, plain=3.0, actual=1.5)

        return finish

    @property
    def busy(self) -> bool:
        return False

    def close(self) -> None:
        self.book.events.append(f"close {self.name}")


def plan(n_jobs: int = 3, n_repeats: int = 1, n_slots: int = 1, seconds: float = 60.0) -> Plan:
    jobs = tuple(Job(i, "qa", ((1, 2),) * n_slots) for i in range(n_jobs))
    methods = parse_all(["none", "auto", "suffix"])
    return Plan(methods=methods, jobs=jobs, n_tokens=21, sampling=SAMPLING, n_repeats=n_repeats, seconds=seconds)


def measured(book: Book, plan: Plan) -> list[Sample]:
    return list(run(plan, book.open))


def test_methods_run_at_once_and_take_turns_to_be_first() -> None:
    book = Book()
    samples = measured(book, plan(n_jobs=2))
    assert book.events[6:-3] == [
        *("read none0", "read auto0", "read suffix0"),
        *("none0", "auto0", "suffix0"),
        *("end none0", "end auto0", "end suffix0"),
        *("read auto1", "read suffix1", "read none1"),
        *("auto1", "suffix1", "none1"),
        *("end auto1", "end suffix1", "end none1"),
    ]
    assert len(samples) == len(plan(n_jobs=2))


def test_every_engine_is_warm_before_the_first_is_measured() -> None:
    book = Book()
    measured(book, plan())
    assert book.events[:6] == ["open none", "warm none", "open auto", "warm auto", "open suffix", "warm suffix"]
    assert sorted(book.events[-3:]) == ["close auto", "close none", "close suffix"]


def test_each_repeat_has_fresh_engines_and_other_noise_but_the_same_for_all_methods() -> None:
    book = Book()
    samples = measured(book, plan(n_jobs=2, n_repeats=2))
    assert book.events.count("open auto") == book.events.count("close auto") == 2
    assert {s.repeat for s in samples} == {0, 1}
    seeds = {key: [s.seed for s in used] for key, used in book.samplings.items()}
    assert seeds["none", 0] == seeds["auto", 0] == seeds["suffix", 0]
    assert len({*seeds["none", 0], *seeds["none", 1]}) == 4
    assert all(s.ignore_eos and s.temperature == 0.5 for used in book.samplings.values() for s in used)


def test_a_failure_costs_one_sample() -> None:
    samples = measured(Book(fails=[("auto", 1)]), plan())
    assert [(s.method, s.job, s.error) for s in samples if s.error] == [("auto", 1, "too long")]
    assert len(samples) == 9


def test_time_up_ends_after_a_whole_job() -> None:
    book = Book()
    assert len(measured(book, plan(n_jobs=50, seconds=0.0))) == 3
    assert book.events.count("close none") == 1


def test_an_engine_that_does_not_open_leaves_none_behind() -> None:
    book = Book()

    def opens(method: Method) -> Contender:
        if method.name == "suffix":
            raise ContextFull("no memory")
        return book.open(method)

    with pytest.raises(ContextFull):
        list(run(plan(), opens))
    assert {"close none", "close auto"} <= set(book.events)


@pytest.mark.parametrize("n_slots", [1, 4])
def test_first_tokens_do_not_count_since_the_clock_starts_with_them(n_slots: int) -> None:
    sample = measured(Book(), plan(n_slots=n_slots))[0]
    assert (sample.n_tokens, sample.seconds, sample.n_steps) == (20 * n_slots, 2.0, 5 * n_slots)
    assert (sample.n_drafted, sample.n_accepted) == (8 * n_slots, 6 * n_slots)
    assert sample.texts == ((1, 2, 3),) * n_slots


def test_the_planners_account_is_part_of_the_sample() -> None:
    sample = measured(Book(), plan())[1]
    assert (sample.planned_plain, sample.planned_actual) == (3.0, 1.5)
    assert Account(5.0, 3.0, 2.0) - Account(1.0, 2.0, 0.5) == Account(4.0, 1.0, 1.5)


def test_everybody_starts_between_two_steps() -> None:
    """The only thread that computes is the one that starts them: none can be a step ahead."""
    threads: set[str] = set()

    class Watched(FakeContender):
        def start(self, job: Job, n_tokens: int, sampling: SamplingParams) -> Finish:
            threads.add(threading.current_thread().name)
            return super().start(job, n_tokens, sampling)

    book = Book()
    list(run(plan(), lambda method: Watched(method.name, book)))
    assert threads == {"paceline-worker"}
