"""What planning itself costs: microseconds per step for 1 to 8 slots, drafters and models left out.

python -m benchmarks.planner
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from statistics import median
from time import perf_counter

from rich.console import Console
from rich.table import Table

from paceline.drafters.base import Draft
from paceline.engine.auto import AutoPolicy
from paceline.engine.costs import CostCurve
from paceline.engine.planner import Planner
from paceline.engine.policy import GoOn, Want
from paceline.engine.proposal import Proposal
from paceline.engine.request import Request
from paceline.engine.slot import Slot
from paceline.engine.stats import DrafterStats

CPU = {1: 0.014, 2: 0.019, 3: 0.023, 4: 0.026, 6: 0.035, 8: 0.040, 12: 0.054, 16: 0.068, 32: 0.12}
N_STEPS = 400
N_DRAFT = 8


class Canned:
    """Two drafters that answer at once: a look-up, and a model that asks after every token whether to go on."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def names(self) -> list[str]:
        return ["suffix", "draft-simple"]

    def seconds(self, name: str) -> float:
        return 0.0

    def ask(self, name: str, slots: list[Slot], limits: list[int], go_on: Sequence[GoOn | None]) -> list[Draft]:
        drafts = [self._draft(name, limit, rule) for limit, rule in zip(limits, go_on, strict=True)]
        for slot, draft in zip(slots, drafts, strict=True):
            slot.offers.append((tuple(slot.draft.tokens), draft))
        return drafts

    def _draft(self, name: str, limit: int, go_on: GoOn | None) -> Draft:
        draft = Draft(source=name)
        while len(draft) < min(limit, N_DRAFT):
            draft.tokens.append(self._random.randrange(3))
            draft.confidence.append(self._random.random())
            if go_on and not go_on(draft):
                break
        return draft


def measure(n_slots: int) -> dict[str, float]:
    """Medians over many steps: choosing how much to check, and the whole policy with its learning."""
    policy = AutoPolicy(Planner(CostCurve(CPU), CostCurve({1: 0.0008})))
    asks = Canned()
    slots = [
        Slot(seq, tokens=[1] * 300, request=Request(prompt=[1], on_event=lambda _: None)) for seq in range(n_slots)
    ]
    trims, wholes = [], []
    for slot in slots:
        slot.stats = {name: DrafterStats(name) for name in asks.names()}
    for _ in range(N_STEPS):
        for slot in slots:
            slot.draft = Proposal()
            slot.offers.clear()
        start = perf_counter()
        policy.propose(asks, [Want(slot, 16) for slot in slots])
        for slot in slots:
            policy.settled(slot, [*slot.draft.tokens[:1], 9])
        policy.spent(n_slots, n_slots, 0.014)
        wholes.append(perf_counter() - start)
        chances = [[0.9 - 0.05 * i for i in range(N_DRAFT)] for _ in slots]
        start = perf_counter()
        policy.planner.trim(chances)
        trims.append(perf_counter() - start)
    return {"planner_us": 1e6 * median(trims), "policy_us": 1e6 * median(wholes)}


def main() -> None:
    table = Table("slots", "planner, µs a step", "policy with learning, µs a step")
    result = {n: measure(n) for n in (1, 2, 4, 8)}
    for n, row in result.items():
        table.add_row(str(n), *(f"{value:.0f}" for value in row.values()))
    Console().print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
