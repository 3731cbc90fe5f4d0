"""Policies on recorded answers, on any machine's costs: no model and no GPU needed once the answers are recorded.

    python -m benchmarks.replay --record greedy.json --prompts 36 -n 160            # once, runs the models
    python -m benchmarks.replay --record sampled.json --prompts 36 -n 160 --temp 0.8
    python -m benchmarks.replay greedy.json sampled.json [--machines F16,H200-F16] [--slots 1,4,8]
    python -m benchmarks.replay greedy.json --first 40                             # the first answers of new processes

A run of the engine tells two policies apart by two or three per cent at best; here the same answers meet the same moods
of the machine, so a tenth of that shows. Counted besides the target's step: its context, changes of its size, questions
to the draft model and its reading of the prompt, Python, the noise of a shared machine, and a warm-up that is a little
off. Texts do not change with what was drafted.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common import draft_model, guarded
from benchmarks.machine_costs import MACHINES, MS, Machine
from benchmarks.recording import MODEL, RECORDED, Text, load, n_right, record
from paceline.drafters.base import Draft
from paceline.drafters.proposal import Proposal
from paceline.engine.warmup import BETWEEN, SIZES, changes
from paceline.errors import ConfigError
from paceline.planner.base import Agreement, DraftBudget, Drafted, Policy, ShouldContinue
from paceline.planner.change import WARM
from paceline.planner.costs import CostCurve
from paceline.planner.fixed import FixedPolicy
from paceline.planner.planner import Planner
from paceline.planner.policy import AutoPolicy

WIDTH = 140
LOW = 0.95  # of plain speed: what no first answer should be under
N_INTERVIEW = 39


def drafted_by(kind: str, texts: list[Text], machine: Machine) -> tuple[list[Text], Machine]:
    """The same texts with another draft model: the good one, one that says nothing true, one that is slow."""
    if kind == "slow":
        return texts, replace(machine, token=8 * machine.token)
    if kind == "good":
        return texts, machine
    bad = [[Draft([-1] * len(d), MODEL, [0.05] * len(d)) for d in text.drafts[MODEL]] for text in texts]
    return [replace(t, drafts={**t.drafts, MODEL: b}) for t, b in zip(texts, bad, strict=True)], machine


@dataclass(slots=True)
class SimSlot:
    """One text being written."""

    seq: int
    text: Text
    n_written: int = 1
    draft: Proposal = field(default_factory=Proposal)
    candidates: list[Draft] = field(default_factory=list)
    n_read: int = 0  # by the draft model

    @property
    def left(self) -> list[int]:
        return self.text.written[self.n_written :]

    @property
    def n_behind(self) -> int:
        """Tokens for the draft model to read before its first draft token, beside the last one."""
        return len(self.text.prompt) + self.n_written - 1 - self.n_read


class SimPool:
    """Recorded drafts that take as long as real ones do, by a virtual clock."""

    def __init__(self, machine: Machine, random: Random, names: Sequence[str]) -> None:
        self.machine = machine
        self.random = random
        self.now = 0.0
        self.deciding = 0.0  # seconds that the policy will take for it
        self._names = list(names)

    def names(self) -> list[str]:
        return self._names

    def continues(self, name: str) -> bool:
        return name == MODEL

    def token_seconds(self, name: str, n_slots: int) -> float:
        return MS * self.machine.token / n_slots if name == MODEL else 0.0

    def question_seconds(self, name: str, n_slots: int) -> float:
        return 2 * self.token_seconds(name, n_slots)

    def clock(self) -> float:
        """A policy reads it first when it begins to decide."""
        start, self.now, self.deciding = self.now, self.now + self.deciding, 0.0
        return start

    def ask(
        self, name: str, slots: Sequence[Drafted], limits: Sequence[int], rules: Sequence[ShouldContinue | None]
    ) -> list[Draft]:
        before, longest, drafts = self.now, 0, []
        for slot, limit, rule in zip(slots, limits, rules, strict=True):
            assert isinstance(slot, SimSlot)
            draft = self._known(name, slot)
            if name == MODEL:
                draft = self._step_by_step(draft, limit, rule)
                self.now += MS * self.machine.reading * min(110, slot.n_behind)
                slot.n_read += slot.n_behind
                longest = max(longest, len(draft))
            drafts.append(replace(draft.cut(max(0, limit)), before=slot.text.written[slot.n_written - 1]))
            if drafts[-1].tokens:
                slot.candidates.append(drafts[-1])
        if name == MODEL:
            self.now += MS * (self.machine.question + longest * self.machine.token)
        else:
            self.now += MS * self.machine.looking_up * len(slots)
        self.now = before + (self.now - before) * math.exp(self.random.gauss(0, 0.12))
        return drafts

    def _known(self, name: str, slot: SimSlot) -> Draft:
        """What a model would add to a look-up is known only where that is right; after a wrong one, a wrong guess."""
        at, n_ahead = slot.n_written - 1, len(slot.draft)
        if slot.left[:n_ahead] != slot.draft.tokens or at + n_ahead >= len(slot.text.written):
            return Draft([-1], name, [0.5])
        return slot.text.drafts[name][at + n_ahead]

    @staticmethod
    def _step_by_step(known: Draft, limit: int, rule: ShouldContinue | None) -> Draft:
        n = 0
        while n < min(limit, len(known)):
            n += 1
            if rule and not rule(known.cut(n)):
                break
        return known.cut(n)


class Simulation:
    """One policy on one machine: a group of texts of one category at a time, until the first of them is written."""

    def __init__(self, machine: Machine, policy: Policy, names: Sequence[str], random: Random) -> None:
        self.machine = machine
        self.policy = policy
        self.pool = SimPool(machine, random, names)
        self.random = random
        self.true = CostCurve({n: MS * ms for n, ms in machine.steps.items()}, 0.0, machine.changes)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.tokens: defaultdict[str, int] = defaultdict(int)

    def run(self, texts: Sequence[Text], *, sampled: bool = False) -> None:
        slots = [SimSlot(seq, text) for seq, text in enumerate(texts)]
        for slot in slots:
            self.policy.begin(slot.seq, sampled=sampled)
        n_prompt = sum(len(slot.text.prompt) for slot in slots)
        self.policy.passed(n_prompt)
        self.true.passed(n_prompt)
        while all(slot.left for slot in slots):
            self.step(slots)
        for slot in slots:
            self.policy.end(slot.seq)

    def step(self, slots: list[SimSlot]) -> None:
        start = self.pool.now
        for slot in slots:
            slot.draft = Proposal()
            slot.candidates.clear()
        budgets = [
            DraftBudget(slot, len(slot.left) - 1, self.pool.names(), len(slot.text.prompt) + slot.n_written)
            for slot in slots
        ]
        if not self.policy.rests:
            self.pool.deciding = MS * self.machine.deciding * len(slots)
            self.policy.propose(self.pool, budgets)
            self.pool.deciding = 0.0
        n_drafted = sum(len(slot.draft) for slot in slots)
        size = self.policy.size(len(slots) + n_drafted)
        seconds = self.step_seconds(size, sum(budget.n_context for budget in budgets) / len(slots))
        n_emitted = sum(self.settle(slot) for slot in slots)
        self.policy.observe_step(size, n_emitted, n_drafted, seconds)
        for name in (slots[0].text.category, "overall"):
            self.seconds[name] += self.pool.now - start + seconds
            self.tokens[name] += n_emitted

    def settle(self, slot: SimSlot) -> int:
        emitted = slot.left[: n_right(slot.draft.tokens, slot.left) + 1]
        self.policy.settled(slot, emitted)
        slot.n_written += len(emitted)
        return len(emitted)

    def step_seconds(self, n: int, n_context: float) -> float:
        """As they come on this machine, with its moods."""
        m = self.machine
        mood = math.exp(self.random.gauss(0, m.noise)) * (1.5 if self.random.random() < m.odd else 1)
        seconds = self.true.predict(n) + self.true.changing(n) + MS * m.attention * n * n_context
        self.true.passed(n)
        return seconds * mood + MS * m.python

    def speed(self, category: str) -> float:
        return self.tokens[category] / self.seconds[category]


def interview(texts: Sequence[Text]) -> list[Agreement]:
    """What the draft model would say of the beginning of a text before any request."""
    drafts, written = texts[0].drafts[MODEL], texts[0].written
    places = zip(drafts[:N_INTERVIEW], written[1:], strict=False)
    return [(draft.confidence[0], draft.tokens[0] == shown) for draft, shown in places if draft.tokens]


def auto(machine: Machine, random: Random, agreements: Sequence[Agreement] = ()) -> AutoPolicy:
    """The policy with a warm-up that was a little off, after an interview."""
    true, change = CostCurve({n: MS * ms for n, ms in machine.steps.items()}), machine.changes
    felt = changes([{n: [true.predict(n) + change.at(n, age) for age in range(1 + WARM)] for n in SIZES}])
    sizes = SIZES if felt.whole(1) else (*SIZES, *BETWEEN)
    measured = {n: true.predict(n) * math.exp(random.gauss(0, machine.off)) + MS * machine.python for n in sizes}
    policy = AutoPolicy(Planner(CostCurve(measured, None, felt)))
    policy.set_agreement(MODEL, agreements, MS * machine.token, MS * machine.question)
    return policy


class Constant(FixedPolicy):
    """A drafter with its settings, taken literally: at most k tokens, each of at least this confidence."""

    def __init__(self, k: int, p_min: float) -> None:
        self.k, self.p_min = k, p_min

    def propose(self, pool: Any, budgets: Sequence[DraftBudget]) -> None:
        (name,) = pool.names()
        rule = lambda draft: draft.confidence[-1] >= self.p_min  # noqa: E731
        limits = [min(self.k, budget.limit) for budget in budgets]
        for budget, draft in zip(
            budgets, pool.ask(name, [b.slot for b in budgets], limits, [rule] * len(budgets)), strict=True
        ):
            n = next((i for i, c in enumerate(draft.confidence) if c < self.p_min), len(draft))
            budget.slot.draft = Proposal()
            budget.slot.draft.add(draft.cut(n))


FIXED = {
    "draft:4:0.4": (MODEL, 4, 0.4),
    "draft:8:0.6": (MODEL, 8, 0.6),
    "suffix:4:0.5": ("suffix", 4, 0.5),
    "suffix:16:0.2": ("suffix", 16, 0.2),
}


def groups(texts: Sequence[Text], n: int) -> list[list[Text]]:
    """So many texts of one category at once; where it has fewer, some are there again."""
    by: defaultdict[str, list[Text]] = defaultdict(list)
    for text in texts:
        by[text.category].append(text)
    longer = [row * math.ceil(n / len(row)) for row in by.values()]
    rows = [[row[i : i + n] for i in range(0, len(row) - n + 1, n)] for row in longer]
    return [row[i] for i in range(max(map(len, rows))) for row in rows if i < len(row)]


def replayed(
    texts: list[Text], machine: Machine, policy: Policy, names: Sequence[str], n_slots: int, seed: int, sampled: bool
) -> Simulation:
    simulation = Simulation(machine, policy, names, Random(seed))
    for group in groups(texts, n_slots):
        simulation.run(group, sampled=sampled)
    return simulation


def compare(
    texts: list[Text], machine: Machine, n_slots: int, runs: int, *, sampled: bool, fixed: bool
) -> dict[str, dict[str, float]]:
    """By method and category: speed against none, averaged over runs with other moods each."""
    out: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    asked = interview(texts)
    for seed in range(runs):
        plain = replayed(texts, machine, FixedPolicy(), [], n_slots, seed, sampled)
        found = {
            "auto": replayed(
                texts, machine, auto(machine, Random(seed), asked), ["suffix", MODEL], n_slots, seed, sampled
            )
        }
        if fixed:
            found |= {
                label: replayed(texts, machine, Constant(k, p), [name], n_slots, seed, sampled)
                for label, (name, k, p) in FIXED.items()
            }
        for label, simulation in found.items():
            for category in simulation.tokens:
                out[label][category] += simulation.speed(category) / plain.speed(category) / runs
    return {label: dict(row) for label, row in out.items()}


def first_answers(texts: list[Text], machine: Machine, n: int, runs: int, *, sampled: bool) -> list[float]:
    """The beginning of every text with a policy that has seen nothing but an interview: speeds against none. The
    machine is calm, or single answers could not be told apart."""
    asked, found = interview(texts), []
    machine = replace(machine, noise=0.02, odd=0.0)
    for text in texts:
        begun = [replace(text, written=text.written[: n + 1])]
        for seed in range(runs):
            policy = auto(machine, Random(seed), asked)
            own = replayed(begun, machine, policy, ["suffix", MODEL], 1, seed, sampled)
            plain = replayed(begun, machine, FixedPolicy(), [], 1, seed, sampled)
            found.append(own.speed("overall") / plain.speed("overall"))
    return sorted(found)


def show_first(paths: Sequence[Path], machines: Sequence[str], n: int, runs: int) -> None:
    table, rows = Table("first answers, against none", "mean", "a tenth is under", f"share under {LOW}"), {}
    for path in paths:
        texts = load(path)
        for name in machines:
            found = first_answers(texts, MACHINES[name], n, runs, sampled="sampled" in path.name)
            row = [mean(found), found[len(found) // 10], sum(speed < LOW for speed in found) / len(found)]
            rows[f"{path.stem} {name}"] = row
            table.add_row(f"{path.stem} {name}", *(f"{x:.3f}" for x in row))
    Console(width=WIDTH).print(table)
    print(json.dumps(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, nargs="*")
    parser.add_argument("--record", type=Path, help="write answers to this file, with a draft model's agreements")
    parser.add_argument("--draft", help="draft model of the same vocabulary")
    parser.add_argument("--prompts", type=int, default=36)
    parser.add_argument("-n", type=int, default=160)
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--machines", default=",".join(MACHINES))
    parser.add_argument("--slots", default="1")
    parser.add_argument("--drafts", default="good", help="good, useless, slow")
    parser.add_argument("--runs", type=int, default=2, help="with other moods each")
    parser.add_argument("--fixed", action="store_true", help="beside settings taken literally")
    parser.add_argument("--first", type=int, help="so many tokens of each text, each with a policy of its own")
    args = parser.parse_args()
    if args.record:
        record(args.record, draft_model(args.draft), args.prompts, args.n, args.temp)
        return
    if not args.texts:
        raise ConfigError(f"needs {RECORDED}")
    if args.first:
        show_first(args.texts, args.machines.split(","), args.first, args.runs)
        return
    result: dict[str, Any] = {}
    for path in args.texts:
        texts = load(path)
        categories = [*dict.fromkeys(text.category for text in texts), "overall"]
        table = Table("against none", *categories, title=path.name)
        for name in args.machines.split(","):
            for kind in args.drafts.split(","):
                for n_slots in map(int, args.slots.split(",")):
                    own, machine = drafted_by(kind, texts, MACHINES[name])
                    found = compare(own, machine, n_slots, args.runs, sampled="sampled" in path.name, fixed=args.fixed)
                    for label, row in found.items():
                        key = f"{name} {kind} x{n_slots} {label}"
                        result[f"{path.stem} {key}"] = row
                        table.add_row(key, *(f"{row[c]:.3f}" if c in row else "" for c in categories))
        Console(width=WIDTH).print(table)
    means = [row["overall"] for row in result.values()]
    print(json.dumps({"mean_overall": sum(means) / max(1, len(means)), "rows": result}))


if __name__ == "__main__":
    guarded(main)
