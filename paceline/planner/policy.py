"""The policy that lets every draft earn its place: whoever is worth it is asked, and what gains most is checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.drafters.proposal import Proposal
from paceline.planner.acceptance import AcceptanceModel
from paceline.planner.base import Agreement, DraftBudget, Drafted, DrafterPool, Policy
from paceline.planner.gains import GainEstimate, Gains
from paceline.planner.planner import Planner
from paceline.planner.questions import Offer, Questions, best

PAUSE = 16  # steps before all are looked at again, when nobody was worth asking


class AutoPolicy(Policy):
    """Joins what drafters gain to what they cost; never sees token values."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.acceptance = AcceptanceModel()
        self.questions = Questions(planner, self.acceptance)
        self.agreement: dict[str, float] = {}
        self._rests = False
        self._pause = 0  # steps in which nobody is even considered
        self._drafting = 0.0

    @property
    def gains(self) -> Gains:
        return self.questions.gains

    def begin(self, seq: int, *, sampled: bool) -> None:
        self.acceptance.begin(seq, sampled=sampled)
        self.questions.resting.clear()
        self._rests = False

    def propose(self, pool: DrafterPool, budgets: Sequence[DraftBudget]) -> None:
        planner, start = self.planner, pool.clock()
        found = self.questions.ask(pool, budgets)
        choices = [best(found[budget.slot.seq]) for budget in budgets]
        planner.learn_sizes([choice.p_accept for choice in choices if choice], pool.clock() - start)
        lengths = planner.trim([choice.p_accept[: choice.n] if choice else [] for choice in choices])
        for budget, choice, n in zip(budgets, choices, lengths, strict=True):
            n = self._check(budget, choice, n)
            self.questions.learn(budget.slot.seq, found[budget.slot.seq], checked=n > 0)
        self._drafting = pool.clock() - start
        self.questions.considered(self._drafting)
        self._rests = planner.is_plain and len(self.questions.resting) == len(pool.names())
        self._pause = PAUSE if self._rests else 0

    @staticmethod
    def _check(budget: DraftBudget, choice: Offer | None, n: int) -> int:
        """So many tokens of this draft, if the slot may have so few; returns how many."""
        budget.slot.draft = Proposal()
        if not choice or n < max(1, budget.n_min):
            return 0
        budget.slot.draft.add(choice.draft.cut(n))
        return n

    def expects(self, pool: DrafterPool, name: str) -> bool:
        return GainEstimate(self.gains.common[name]).upper_bound(self.gains.most[name]) > 0

    def set_agreement(
        self, name: str, agreements: Sequence[Agreement], token_seconds: float, beside: float = 0.0
    ) -> None:
        """How sure a model was of each token that the target wrote before any request, and whether it was right. A
        question takes it so long `beside` its tokens."""
        if not agreements:
            return
        self.agreement[name] = sum(right for _, right in agreements) / len(agreements)
        self.questions.interviewed(name, agreements, token_seconds, beside)
        calibration, _ = self.acceptance.of(name, sampled=False)
        for confidence, right in agreements:
            calibration.learn(confidence, right=right)

    @property
    def rests(self) -> bool:
        return self._rests and (self._pause > 0 or not self.questions.may_explore)

    def size(self, n_tokens: int) -> int:
        return n_tokens if self._rests else self.planner.size(n_tokens)

    def settled(self, slot: Drafted, emitted: Sequence[int]) -> None:
        self.acceptance.learn(slot.seq, slot.candidates, emitted)

    def observe_step(self, n_tokens: int, n_emitted: int, n_drafted: int, seconds: float) -> None:
        if self._rests and not self._drafting:
            self.planner.observe_rest(n_tokens, n_emitted, seconds)
        else:
            self.planner.observe_step(n_tokens, n_emitted, n_drafted, seconds, self._drafting)
        self.questions.passed(seconds + self._drafting)
        self._drafting = 0.0
        self._pause -= 1

    def took_back(self, n_drafts: int, seconds: float, n_again: int) -> None:
        self.planner.took_back(seconds / n_drafts, n_again // n_drafts)
        self._drafting += seconds

    def passed(self, n_tokens: int) -> None:
        self.planner.target.passed(n_tokens)

    def end(self, seq: int) -> None:
        self._rests = False
        self.questions.end(seq)
        self.acceptance.end(seq)

    @property
    def planned_seconds(self) -> tuple[float, float] | None:
        return self.planner.seconds_plain, self.planner.seconds_actual

    def explain(self) -> dict[str, Any]:
        """Cost curves in milliseconds, chances, who rests."""
        return {
            "policy": "auto",
            **self.planner.explain(),
            "p_accept": self.acceptance.means(),
            "agreement": self.agreement,
            "resting": sorted(name for name in self.questions.resting if self.gains.n_asked[name]),
        }
