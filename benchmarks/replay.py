"""The planner on recorded answers with everything counted that an answer takes on the machine it was tuned on.

    python -m benchmarks.simulate --record greedy.json --prompts 40
    python -m benchmarks.simulate --record sampled.json --prompts 40 --temp 0.8
    python -m benchmarks.replay greedy.json sampled.json

A run of the engine tells two policies apart by two or three per cent at best; here the same answers meet the same
moods of the machine, so a tenth of that shows. What is counted besides the target's step: its context, questions to
the draft model and its reading of the prompt, Python, the noise of a shared machine, and a warm-up that is a little
off. Texts do not change with what was drafted, and one slot runs alone.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from benchmarks.simulate import Machine, Text, load, n_right
from paceline.drafters.base import Draft
from paceline.engine.auto import AutoPolicy
from paceline.engine.costs import CostCurve
from paceline.engine.planner import Planner
from paceline.engine.policy import GoOn, Want
from paceline.engine.proposal import Proposal
from paceline.engine.request import Request
from paceline.engine.slot import Slot
from paceline.engine.stats import DrafterStats
from paceline.engine.warmup import SELDOM, SIZES

MS = 1e-3
CURVES = {
    "Q8_0": {1: 10.8, 2: 13.7, 3: 15.6, 4: 17.7, 5: 22, 6: 24.2, 8: 25.9, 10: 33, 12: 34.5, 16: 43.5, 32: 86},
    "F16": {1: 19.2, 2: 22, 3: 24.8, 4: 26.3, 5: 28.6, 6: 29.8, 8: 35.6, 10: 40.1, 12: 42.5, 16: 52.5, 32: 101},
}
ATTENTION = 5.5 * MS / 1000  # for each token of a batch and each of its context
PLAIN, LOOKING_UP, POLICY, RESTING = 0.46 * MS, 0.1 * MS, 0.2 * MS, 0.06 * MS  # Python
QUESTION, FIRST, NEXT = 0.45 * MS, 1.2 * MS, 0.85 * MS  # to the draft model: Python, its first token, each further one
READING, N_READ = 0.12 * MS, 110  # a prompt's token, and how many are read
OFF = 0.05  # error of the warm-up


class Clocked(Machine):
    """Recorded drafts that take as long as real ones do."""

    def __init__(self, random: Random) -> None:
        super().__init__(NEXT, QUESTION + FIRST - NEXT)
        self.random = random
        self.has_read = False

    def begin(self, text: Text) -> None:
        self.text = text
        self.has_read = False

    def ask(self, name: str, slots: list[Slot], limits: list[int], go_on: Sequence[GoOn | None]) -> list[Draft]:
        before = self.clock[name]
        drafts = super().ask(name, slots, limits, go_on)
        if name == "suffix":
            self.clock[name] += LOOKING_UP
        else:
            self.clock[name] = before + (self.clock[name] - before) * math.exp(self.random.gauss(0, 0.12))
            self.clock[name] += 0 if self.has_read else READING * min(N_READ, len(self.text.prompt))
            self.has_read = True
        return drafts


@dataclass(slots=True)
class Tally:
    """Seconds and tokens by category."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    tokens: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, category: str, seconds: float, n_tokens: int) -> None:
        for name in (category, "overall"):
            self.seconds[name] += seconds
            self.tokens[name] += n_tokens

    def speed(self, category: str) -> float:
        return self.tokens[category] / self.seconds[category]


def step_seconds(curve: CostCurve, n: int, n_context: int, random: Random) -> float:
    """Every twentieth takes half as long again."""
    mood = math.exp(random.gauss(0, 0.08)) * (1.5 if random.random() < 0.05 else 1)
    return (curve.predict(n) + ATTENTION * n * n_context) * mood


def plain(texts: Iterable[Text], curve: CostCurve, random: Random) -> Tally:
    tally = Tally()
    for text in texts:
        for i in range(1, len(text.written)):
            tally.add(text.category, step_seconds(curve, 1, len(text.prompt) + i, random) + PLAIN, 1)
    return tally


def auto(texts: Iterable[Text], curve: CostCurve, random: Random) -> Tally:
    machine, tally = Clocked(random), Tally()
    measured = CostCurve()
    measured.learn({n: curve.predict(n) * math.exp(random.gauss(0, OFF)) for n in SIZES + SELDOM})
    policy = AutoPolicy(Planner(measured, CostCurve({1: MS, 8: 2 * MS, 128: 15 * MS})))
    for text in texts:
        machine.begin(text)
        slot = Slot(0, tokens=[*text.prompt, text.written[0]], n_prompt=len(text.prompt))
        slot.request = Request(prompt=text.prompt, on_event=lambda event: None)
        slot.stats = {name: DrafterStats(name) for name in machine.names()}
        while slot.n_generated < len(text.written):
            step(machine, policy, slot, curve, tally)
        policy.ended(slot)
    return tally


def step(machine: Clocked, policy: AutoPolicy, slot: Slot, curve: CostCurve, tally: Tally) -> None:
    slot.draft = Proposal()
    slot.offers.clear()
    left = machine.text.written[slot.n_generated :]
    before = dict(machine.clock)
    policy.propose(machine, [Want(slot, max(0, len(left) - 1))])
    emitted = left[: n_right(slot.draft.tokens, left) + 1]
    seconds = step_seconds(curve, 1 + len(slot.draft), len(slot.tokens), machine.random)
    python = PLAIN + (POLICY if machine.clock["suffix"] > before["suffix"] else RESTING)
    drafting = sum(machine.clock.values()) - sum(before.values())
    tally.add(machine.text.category, seconds + python + drafting, len(emitted))
    policy.settled(slot, emitted)
    policy.spent(1 + len(slot.draft), len(emitted), seconds)
    slot.tokens.extend(emitted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--runs", type=int, default=8, help="with other moods each")
    args = parser.parse_args()
    for path in args.texts:
        texts = load(path)
        categories = [*dict.fromkeys(text.category for text in texts), "overall"]
        table = Table("auto / none", *categories, title=path.name)
        for name, sizes in CURVES.items():
            curve = CostCurve({n: MS * ms for n, ms in sizes.items()})
            found = [(auto(texts, curve, Random(i)), plain(texts, curve, Random(i))) for i in range(args.runs)]
            ratios = [sum(a.speed(c) / p.speed(c) for a, p in found) / len(found) for c in categories]
            table.add_row(name, *(f"{ratio:.3f}" for ratio in ratios))
        Console().print(table)


if __name__ == "__main__":
    main()
