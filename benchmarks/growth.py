"""Growth without hardware: 1 to 1,000 replicas in a simulation, with measured times and the router of `--replicas`.

    python -m benchmarks.growth [--sizes 1,10,100,1000]
    python -m benchmarks.growth --measure          # times and conversations anew, into benchmarks/data/growth.json

Conversations come back after a pause with all that was said before. Every request goes to a replica chosen by `Routes`
(the same code that serves), by chance, or by two choices (the lighter of two replicas, Ray Serve's own rule). A replica
has slots, a queue, and remembers blocks of prompts up to what its cache holds, the least recently used go first. A
request waits for a slot, reads what is not remembered, and writes; a step takes as long as was measured with so many
slots at work. Left out: that reading slows neighbours down, drafts, the network, and time in the front.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import quantiles
from time import process_time
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import guarded
from paceline import Engine
from paceline.bench.suite import SUITE
from paceline.cluster.routing import BLOCK, Routes, prefix_hashes
from paceline.engine.request import Request, Tokens
from paceline.models import demo_model

DATA = Path(__file__).parent / "data" / "growth.json"
SIZES = (1, 10, 100, 1000)
N_SLOTS = 4
CROWD = 5  # conversations for each replica
N_REQUESTS = 40  # for each replica, and
N_LEAST = 1000  # in all
CACHE = 32768  # tokens that a replica remembers
PAUSE = 5.0  # seconds that a person reads, on average
N_SYSTEMS = 40
Router = Callable[[Sequence[int]], int]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: a prompt's token, and a step with 1, 2, ... slots at work."""

    prompt: float
    steps: tuple[float, ...]


@dataclass(slots=True)
class Dialogue:
    """A system prompt, and for each turn how long question and answer are; `said` is all of it so far."""

    turns: list[tuple[int, int]]
    said: list[int]
    at: int = 0


@dataclass(slots=True)
class Machine:
    """One replica: what it remembers, who is at work, who waits."""

    n_busy: int = 0
    waiting: deque[Job] = field(default_factory=deque)
    blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def read(self, hashes: Sequence[int]) -> int:
        """How many blocks of these are known; all of them are afterwards."""
        known = next((i for i, block in enumerate(hashes) if block not in self.blocks), len(hashes))
        for block in hashes:
            self.blocks[block] = None
            self.blocks.move_to_end(block)
        while len(self.blocks) > CACHE // BLOCK:
            self.blocks.popitem(last=False)
        return known


@dataclass(slots=True)
class Job:
    """One request on its way."""

    dialogue: Dialogue
    n_prompt: int
    n_answer: int
    hashes: list[int]
    came: float
    machine: int = 0


@dataclass(slots=True)
class Outcome:
    """What a run adds up to."""

    n_requests: int = 0
    n_written: int = 0
    n_read: int = 0
    n_cached: int = 0
    seconds: float = 0.0
    deciding: float = 0.0
    waits: list[float] = field(default_factory=list)

    def row(self) -> dict[str, float]:
        return {
            "tokens_per_second": round(self.n_written / self.seconds, 1),
            "cached_share": round(self.n_cached / (self.n_cached + self.n_read), 3),
            "p50_wait_s": round(quantiles(self.waits, n=100)[49], 2),
            "p99_wait_s": round(quantiles(self.waits, n=100)[98], 2),
            "decision_us": round(1e6 * self.deciding / self.n_requests, 1),
        }


class Simulation:
    """Events in the order of their time. `how` is who chooses."""

    def __init__(self, n_replicas: int, how: str, times: Times, mix: dict[str, Any], seed: int = 0) -> None:
        self._times = times
        self._chance, self._dice = random.Random(seed), random.Random(seed + 1)
        self._mix = mix
        self._machines = [Machine() for _ in range(n_replicas)]
        self._routes = Routes(N_SLOTS)
        for number in range(n_replicas):
            self._routes.join(str(number))
        self._names = [str(number) for number in range(n_replicas)]
        self._choose: Router = {"prefix": self._by_prefix, "random": self._by_chance, "two": self._of_two}[how]
        self._order = count()
        self._events: list[tuple[float, int, Callable[[Any, float], None], Any]] = []
        self._first_token = count(10**6)
        self.outcome = Outcome()

    # -- who chooses

    def _by_prefix(self, hashes: Sequence[int]) -> int:
        return int(self._routes.choose(hashes, self._routes.loads.keys()))

    def _by_chance(self, hashes: Sequence[int]) -> int:
        return self._dice.randrange(len(self._machines))

    def _of_two(self, hashes: Sequence[int]) -> int:
        pair = [self._dice.choice(self._names) for _ in range(2)]
        return int(min(pair, key=self._routes.loads.__getitem__))

    # -- what happens

    def run(self) -> Outcome:
        """Until so many requests were answered; the first fifth is not counted, caches are cold then."""
        n_replicas = len(self._machines)
        for _ in range(CROWD * n_replicas):
            self._later(self._chance.uniform(0, PAUSE), self._ask, self._dialogue())
        n_wanted = max(N_LEAST, N_REQUESTS * n_replicas)
        n_warm, n_done, began, now = n_wanted // 5, 0, 0.0, 0.0
        while n_done < n_wanted:
            now, _, work, what = heapq.heappop(self._events)
            n_done += work == self._end
            if n_done == n_warm and not began:
                began, self.outcome = now, Outcome()
            work(what, now)
        self.outcome.seconds = now - began
        return self.outcome

    def _later(self, when: float, work: Callable[[Any, float], None], what: object) -> None:
        heapq.heappush(self._events, (when, next(self._order), work, what))

    def _dialogue(self) -> Dialogue:
        """One of those recorded, with words of its own: only the system prompt is shared."""
        kept = self._chance.choice(self._mix["dialogues"])
        system = min(int(self._chance.paretovariate(0.9)) - 1, N_SYSTEMS - 1)
        words = [system] * self._mix["systems"][system]
        return Dialogue([(question, answer) for question, answer in kept], words)

    def _words(self, n: int) -> list[int]:
        """Words that nobody else says."""
        return [next(self._first_token)] * n

    def _ask(self, dialogue: Dialogue, now: float) -> None:
        n_question, n_answer = dialogue.turns[dialogue.at]
        dialogue.said = dialogue.said + self._words(n_question)
        hashes = prefix_hashes(Request(id=0, prompt=(Tokens(dialogue.said),)))
        job = Job(dialogue, len(dialogue.said), n_answer, hashes, now)
        start = process_time()
        job.machine = self._choose(hashes)
        self._routes.sent(hashes, str(job.machine))
        self.outcome.deciding += process_time() - start
        machine = self._machines[job.machine]
        machine.waiting.append(job)
        self._admit(machine, now)

    def _admit(self, machine: Machine, now: float) -> None:
        while machine.waiting and machine.n_busy < N_SLOTS:
            job = machine.waiting.popleft()
            machine.n_busy += 1
            n_cached = min(BLOCK * machine.read(job.hashes), job.n_prompt - 1)
            reading = self._times.prompt * (job.n_prompt - n_cached)
            writing = self._times.steps[machine.n_busy - 1] * job.n_answer
            self.outcome.waits.append(now + reading - job.came)
            self.outcome.n_cached += n_cached
            self.outcome.n_read += job.n_prompt - n_cached
            self._later(now + reading + writing, self._end, job)

    def _end(self, job: Job, now: float) -> None:
        self.outcome.n_requests += 1
        self.outcome.n_written += job.n_answer
        self._routes.done(str(job.machine))
        machine, dialogue = self._machines[job.machine], job.dialogue
        machine.n_busy -= 1
        dialogue.said = dialogue.said + self._words(job.n_answer)
        dialogue.at += 1
        pause = self._chance.expovariate(1 / PAUSE)
        self._later(now + pause, self._ask, dialogue if dialogue.at < len(dialogue.turns) else self._dialogue())
        self._admit(machine, now)


# -- what was measured


def measure() -> dict[str, Any]:
    """The demo model with one thread: the best of several."""
    with Engine(demo_model(), n_ctx=8192, n_slots=N_SLOTS, n_threads=1, spec_types=()) as engine:
        texts = [engine.tokenize(prompt.text) for prompt in SUITE]
        long = [token for text in texts for token in text][:255]
        prompt_ms = min(reading_ms(engine, [number, *long]) for number in range(3))
        steps = [min(step_ms(engine, n, turn) for turn in range(3)) for n in range(1, N_SLOTS + 1)]
    return {
        "how": "SmolLM2-135M-Instruct Q4_1, one thread, no drafts: milliseconds of processor time for a token of a "
        "prompt of 256, and for a step with 1 to 4 slots at work; the best of three",
        "prompt_ms": round(prompt_ms, 3),
        "step_ms": [round(ms, 2) for ms in steps],
        **record([len(text) for text in texts]),
    }


def reading_ms(engine: Engine, tokens: list[int]) -> float:
    return busy_ms(lambda: engine.generate(tokens, max_tokens=1, cache_prompt=False).text()) / len(tokens)


def step_ms(engine: Engine, n: int, turn: int) -> float:
    """What sixteen tokens more take."""

    def write(n_tokens: int) -> None:
        options: dict[str, Any] = {"max_tokens": n_tokens, "temperature": 0, "ignore_eos": True}
        for generation in [engine.generate([turn, slot, n_tokens], **options) for slot in range(n)]:
            generation.text()

    return (busy_ms(lambda: write(20)) - busy_ms(lambda: write(4))) / 16


def busy_ms(work: Callable[[], object]) -> float:
    """The processor's time: with one computing thread that is how long it takes where nobody else works."""
    start = process_time()
    work()
    return 1e3 * (process_time() - start)


def record(lengths: list[int], seed: int = 0) -> dict[str, Any]:
    """Conversations of one to eight turns whose questions are as long as those of our suite; 40 system prompts, the
    popular ones asked for far more often than the rest."""
    chance = random.Random(seed)
    systems = [chance.randrange(150, 1200) for _ in range(N_SYSTEMS)]
    dialogues = [
        [[min(400, chance.choice(lengths)), chance.randrange(20, 160)] for _ in range(min(8, 1 + n_more(chance)))]
        for _ in range(200)
    ]
    return {"systems": systems, "dialogues": dialogues}


def n_more(chance: random.Random) -> int:
    return int(chance.expovariate(1 / 2.5))


def simulate(sizes: Sequence[int], kept: dict[str, Any]) -> list[dict[str, Any]]:
    times = Times(kept["prompt_ms"] / 1e3, tuple(ms / 1e3 for ms in kept["step_ms"]))
    runs = [(size, how) for size in sizes for how in ("prefix", "random", "two")]
    rows = []
    for size, how in track(runs, "simulating", console=Console(stderr=True)):
        rows.append({"replicas": size, "router": how, **Simulation(size, how, times, kept).run().row()})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--measure", action="store_true")
    args = parser.parse_args()
    if args.measure:
        DATA.write_text(json.dumps(measure()) + "\n")
        return
    rows = simulate([int(size) for size in args.sizes.split(",")], json.loads(DATA.read_text()))
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)


if __name__ == "__main__":
    guarded(main)
