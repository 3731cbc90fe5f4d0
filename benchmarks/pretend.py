"""The real engine on a pretended device: what policies, drafters and Python cost where steps are quicker than here.

    python -m benchmarks.replay --record greedy.json --prompts 36 -n 160            # once, runs the models
    python -m benchmarks.pretend greedy.json [--machines H200-F16] [--slots 1,8] [--profile]

Scheduling, drafting, planning, verifying are the engine's own, timed by the thread's own clock, which others on the
machine do not disturb. Computing takes as long as the machine's table in benchmarks.machine_costs says, and the target
writes the recorded answers. `--python` is what the machine's Python takes of this one's: an H200's host 0.4.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import math
import pstats
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.common import guarded
from benchmarks.machine_costs import MACHINES, MS, Machine
from benchmarks.recording import MODEL, Text, load
from benchmarks.replay import auto, groups, interview
from paceline.config import EngineParams, SamplingParams
from paceline.config.drafters import SuffixParams
from paceline.drafters.base import Draft, Drafter, DraftRequest
from paceline.drafters.suffix import Suffix
from paceline.engine import admission, core, drafting, slot
from paceline.engine.active import ActiveRequest
from paceline.engine.core import Core
from paceline.engine.drafting import Drafting
from paceline.engine.request import Event, Request, Tokens
from paceline.llama.context import Batch
from paceline.llama.lib import Floats
from paceline.planner.base import Policy
from paceline.planner.costs import CostCurve
from paceline.planner.fixed import FixedPolicy

MIXED = "mixed"
N_VOCAB = 49_152
N_CTX = 4096
N_PROMPT = 96  # tokens: longer ones would be read while the first texts end
READING_MS = 0.02  # each token of a prompt
GREEDY = SamplingParams(temperature=0, ignore_eos=True)
VOCAB = SimpleNamespace(handle=0, n_tokens=N_VOCAB, add_bos=False, eog=frozenset())


class Clock:
    """Seconds of this thread, as long as they would be there, and of what was pretended."""

    def __init__(self, python: float) -> None:
        self._python = python
        self._pretended = 0.0

    def __call__(self) -> float:
        return self._python * time.thread_time() + self._pretended

    @contextmanager
    def taking(self, seconds: float) -> Iterator[None]:
        """What happens inside takes so long."""
        start = self()
        yield
        self._pretended += seconds - (self() - start)


class Device:
    """A target that writes known texts, one for each sequence, and takes its machine's time for it."""

    n_rollback: int | None = None
    can_shift = True
    kv_unified = True
    n_vocab = N_VOCAB
    n_batch, n_ubatch = 2048, 512

    def __init__(self, machine: Machine, clock: Clock, n_seqs: int, random: Random) -> None:
        self.machine, self.clock, self.random, self.n_seqs = machine, clock, random, n_seqs
        self.n_ctx = self.n_ctx_seq = N_CTX * n_seqs
        self.true = CostCurve({n: MS * ms for n, ms in machine.steps.items()}, 0.0, machine.changes)
        self.texts: list[list[int]] = [[] for _ in range(n_seqs)]
        self._rows: Floats = np.zeros((256, N_VOCAB), np.float32)
        self._hot: list[int] = []

    def new_batch(self) -> Batch:
        return Batch(self.n_batch, self.n_seqs, self.n_ctx)

    def use_adapters(self, scales: str | None) -> None: ...

    def decode(self, batch: Batch) -> Floats:
        with self.clock.taking(self._seconds(batch)):
            for row, token in enumerate(self._hot):
                self._rows[row, token] = 0.0
            self._hot = self._next_tokens(batch)
            for row, token in enumerate(self._hot):
                self._rows[row, token] = 9.0
        return self._rows[: len(self._hot)]

    def _seconds(self, batch: Batch) -> float:
        n = batch.n_tokens
        if n > batch.n_outputs + 64:
            return MS * READING_MS * n
        seconds = self.true.predict(n) + self.true.changing(n)
        self.true.passed(n)
        return seconds * math.exp(self.random.gauss(0, self.machine.noise))

    def _next_tokens(self, batch: Batch) -> list[int]:
        """Of each output. A draft is right as long as it is the text; what follows a wrong one matters to nobody."""
        found = []
        for i in range(batch.n_tokens):
            if batch._outputs[i]:
                seq = (int(batch._seq_pointers[i]) - batch._seq_address[0]) // 4
                text, position = self.texts[seq], int(batch._positions[i])
                found.append(text[position + 1] if position + 1 < len(text) else 1)
        return found

    def remove(self, seq: int, start: int, end: int = -1) -> bool:
        return True

    def state_size(self, seq: int) -> int:
        return 0

    def clear(self) -> None: ...


class RecordedModel(Drafter):
    """What a draft model said at every place of these texts, and its time for it."""

    name = MODEL

    def __init__(self, machine: Machine, clock: Clock, texts: list[Text | None]) -> None:
        self.machine, self.clock, self.texts = machine, clock, texts
        self.costs = CostCurve(dict.fromkeys((1, 64), MS * machine.token))

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = [self._draft(request) for request in requests]
        with self.clock.taking(MS * (self.machine.question + self.machine.token * max(map(len, drafts)))):
            return drafts

    def _draft(self, request: DraftRequest) -> Draft:
        text = self.texts[request.seq]
        assert text
        at, n = len(request.tokens) - len(text.prompt) - 1, 0
        known = text.drafts[MODEL][at] if 0 <= at < len(text.written) else Draft(source=MODEL)
        while n < min(request.n_max, len(known)):
            n += 1
            if request.should_continue and not request.should_continue(known.cut(n)):
                break
        return known.cut(n)

    def begin(self, seq: int, tokens: Sequence[int]) -> None: ...
    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None: ...
    def end(self, seq: int, tokens: Sequence[int]) -> None: ...
    def close(self) -> None: ...


class Pretended:
    """One engine with its policy; groups of texts are written until the first of them is done."""

    def __init__(
        self, machine: Machine, n_slots: int, python: float, seed: int, policy: Policy, *, drafts: bool
    ) -> None:
        self.clock = Clock(python)
        self.device = Device(machine, self.clock, n_slots, Random(seed))
        self.texts: list[Text | None] = [None] * n_slots
        drafters = [Suffix(SuffixParams()), RecordedModel(machine, self.clock, self.texts)] if drafts else []
        params = EngineParams(n_slots=n_slots, cache_ram=0)
        self.core = Core(cast(Any, self.device), cast(Any, VOCAB), Drafting(drafters, policy), params)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.tokens: defaultdict[str, int] = defaultdict(int)

    def run(self, group: Sequence[Text]) -> None:
        slots, events = self.core.slots, list[Event]()
        actives = []
        for text in group:
            parts = (Tokens(text.prompt),)
            request = Request(id=1, prompt=parts, sampling=GREEDY, max_tokens=len(text.written), cache_prompt=False)
            actives.append(ActiveRequest(request, events.append))
            self.core.submit(actives[-1])
        self.core.admission.admit()
        for slot_, text in ((s, group[actives.index(cast(Any, s.active))]) for s in slots if s.active):
            self.texts[slot_.seq] = text
            self.device.texts[slot_.seq] = [*text.prompt, *text.written]
        while any(s.busy and not s.generating for s in slots):
            self.core.step()
        start, n_before = self.clock(), sum(s.n_generated for s in slots)
        n_done, seconds = 0, 0.0
        while all(s.busy for s in slots):
            n_done = sum(s.n_generated for s in slots) - n_before
            seconds = self.clock() - start
            self.core.step()
        for name in (group[0].category, "overall"):
            self.seconds[name] += seconds
            self.tokens[name] += n_done
        for active in actives:
            active.cancelled = True
        while self.core.busy:
            self.core.step()

    def speed(self, category: str) -> float:
        return self.tokens[category] / self.seconds[category]


def pretended(
    texts: list[Text], machine: Machine, n_slots: int, python: float, seed: int, *, drafts: bool
) -> Pretended:
    policy = auto(machine, Random(seed), interview(texts)) if drafts else FixedPolicy()
    run = Pretended(machine, n_slots, python, seed, policy, drafts=drafts)
    with ExitStack() as stack:
        for room in (core, drafting, slot, admission):
            stack.enter_context(patch.object(room, "perf_counter", run.clock))
        for group in together(texts, n_slots):
            run.run(group)
    return run


def together(texts: list[Text], n_slots: int) -> list[list[Text]]:
    """Different texts, since look-ups know all slots' texts; of all kinds where a category has too few."""
    n_least = min(Counter(text.category for text in texts).values())
    mixed = texts if n_slots <= n_least else [replace(text, category=MIXED) for text in texts]
    return groups(mixed, n_slots)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--machines", default="H200-F16,H200-Q8_0,H200-7B")
    parser.add_argument("--slots", default="1,8")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--python", type=float, default=0.4)
    parser.add_argument("--profile", action="store_true", help="where Python's time goes with drafters")
    args = parser.parse_args()
    texts = [replace(text, prompt=text.prompt[-N_PROMPT:]) for text in load(args.texts)]
    categories = [*dict.fromkeys(text.category for text in texts), "overall"]
    table, rows = Table("auto / none", *categories, "ms a step", "of none"), {}
    profile = cProfile.Profile(time.thread_time) if args.profile else None
    for name in args.machines.split(","):
        for n_slots in map(int, args.slots.split(",")):
            row: defaultdict[str, float] = defaultdict(float)
            for seed in range(args.runs):
                plain = pretended(texts, MACHINES[name], n_slots, args.python, seed, drafts=False)
                with profile or ExitStack():
                    own = pretended(texts, MACHINES[name], n_slots, args.python, seed, drafts=True)
                for category in own.tokens:
                    row[category] += own.speed(category) / plain.speed(category) / args.runs
            ms = [1e3 * run.seconds["overall"] / run.tokens["overall"] * n_slots for run in (own, plain)]
            figures = [f"{row[c]:.3f}" if c in row else "" for c in categories]
            table.add_row(f"{name} x{n_slots}", *figures, *(f"{x:.3f}" for x in ms))
            rows[f"{name} x{n_slots}"] = dict(row)
    Console(width=140).print(table)
    if profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
    print(json.dumps(rows))


if __name__ == "__main__":
    guarded(main)
