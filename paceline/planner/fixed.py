"""The policy that takes the flags literally, as llama-server does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.drafters.grammar import GrammarDrafter
from paceline.planner.base import DraftBudget, Drafted, DrafterPool, Policy

SHORT = 4  # a look-up draft of fewer tokens is worth continuing with a model


class FixedPolicy(Policy):
    """The first non-empty draft wins, in the registry's order. What a grammar forces is continued by anybody, a short
    look-up by a model."""

    def begin(self, seq: int, *, sampled: bool) -> None:
        """Nothing to prepare."""

    @property
    def rests(self) -> bool:
        return False

    def propose(self, pool: DrafterPool, budgets: Sequence[DraftBudget]) -> None:
        for name in pool.names():
            asked = [budget for budget in budgets if self._wanted(pool, budget, name)]
            if not asked:
                continue
            limits = [budget.limit - len(budget.slot.draft) for budget in asked]
            drafts = pool.ask(name, [budget.slot for budget in asked], limits, [None] * len(asked))
            for budget, draft in zip(asked, drafts, strict=True):
                budget.slot.draft.add(draft)
        for budget in budgets:
            enough = len(budget.slot.draft) >= budget.n_min
            budget.slot.draft.cut(budget.limit if enough else 0)

    @staticmethod
    def _wanted(pool: DrafterPool, budget: DraftBudget, name: str) -> bool:
        n = len(budget.slot.draft)
        if name not in budget.sources or n >= budget.limit:
            return False
        if pool.continues(name) and n < SHORT:
            return True
        return all(part.source == GrammarDrafter.name for part in budget.slot.draft.parts)

    def expects(self, pool: DrafterPool, name: str) -> bool:
        return True

    def size(self, n_tokens: int) -> int:
        return n_tokens

    def settled(self, slot: Drafted, emitted: Sequence[int]) -> None:
        """Nothing to learn."""

    def observe_step(self, n_tokens: int, n_emitted: int, n_drafted: int, seconds: float) -> None:
        """Nothing to measure."""

    def took_back(self, n_drafts: int, seconds: float, n_again: int) -> None:
        """Nothing to measure."""

    def passed(self, n_tokens: int) -> None:
        """Nothing to measure."""

    def end(self, seq: int) -> None:
        """Nothing to forget."""

    @property
    def planned_seconds(self) -> tuple[float, float] | None:
        return None

    def explain(self) -> dict[str, Any]:
        return {"policy": "fixed"}
