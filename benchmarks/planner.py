"""What planning itself costs: microseconds per step for 1 to 8 slots, drafters and models left out.

python -m benchmarks.planner
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from statistics import median
from time import perf_counter

from rich.console import Console
from rich.table import Table

from benchmarks.machine_costs import MACHINES
from benchmarks.recording import Text
from benchmarks.replay import SimSlot, auto
from paceline.drafters.base import Draft
from paceline.drafters.proposal import Proposal
from paceline.planner.base import DraftBudget, Drafted, ShouldContinue

N_STEPS = 400
N_DRAFT = 8


class Canned:
    """Two drafters that answer at once: a look-up, and a model that asks after every token whether to go on."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def names(self) -> list[str]:
        return ["suffix", "draft-simple"]

    def continues(self, name: str) -> bool:
        return name == "draft-simple"

    def token_seconds(self, name: str, n_slots: int) -> float:
        return 0.0008 / n_slots if self.continues(name) else 0.0

    def question_seconds(self, name: str, n_slots: int) -> float:
        return 2 * self.token_seconds(name, n_slots)

    def clock(self) -> float:
        return 0.0

    def ask(
        self, name: str, drafted: Sequence[Drafted], limits: Sequence[int], rules: Sequence[ShouldContinue | None]
    ) -> list[Draft]:
        drafts = [self._draft(name, limit, rule) for limit, rule in zip(limits, rules, strict=True)]
        for slot, draft in zip(drafted, drafts, strict=True):
            slot.candidates.append(draft)
        return drafts

    def _draft(self, name: str, limit: int, rule: ShouldContinue | None) -> Draft:
        draft = Draft(source=name)
        while len(draft) < min(limit, N_DRAFT):
            draft.tokens.append(self._random.randrange(3))
            draft.confidence.append(self._random.random())
            if rule and not rule(draft):
                break
        return draft


def measure(machine: str, n_slots: int) -> float:
    """Median over many steps of the whole policy with its learning, in microseconds."""
    policy, pool = auto(MACHINES[machine], random.Random(1)), Canned()
    slots = [SimSlot(seq, Text("", [1] * 300, [])) for seq in range(n_slots)]
    found = []
    for _ in range(N_STEPS):
        for slot in slots:
            slot.draft = Proposal()
            slot.candidates.clear()
        start = perf_counter()
        policy.propose(pool, [DraftBudget(slot, 16, pool.names(), 300) for slot in slots])
        size = policy.size(n_slots + sum(len(slot.draft) for slot in slots))
        for slot in slots:
            policy.settled(slot, [*slot.draft.tokens[:1], 9])
        policy.observe_step(size, n_slots, size - n_slots, policy.planner.seconds(size))
        found.append(perf_counter() - start)
    return 1e6 * median(found)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    table = Table("slots", *(f"{name}, µs a step" for name in ("Q8_0", "H200-F16")))
    result = {n: {name: measure(name, n) for name in ("Q8_0", "H200-F16")} for n in (1, 2, 4, 8)}
    for n, row in result.items():
        table.add_row(str(n), *(f"{value:.0f}" for value in row.values()))
    Console().print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
