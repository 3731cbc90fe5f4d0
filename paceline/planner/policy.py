"""The policy that lets every draft earn its place: one rule for every drafter.

Ask when the upper bound of its expected gain is more than its measured seconds are worth; check what pays. The first
whose draft pays is taken, in the order from cheap to dear. Where the expected gain itself is less than the price,
asking is exploration, which has a budget: a share of all time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.drafters.base import Draft
from paceline.drafters.proposal import Proposal
from paceline.planner.acceptance import AcceptanceModel
from paceline.planner.base import DraftBudget, Drafted, DrafterPool, Policy, ShouldContinue
from paceline.planner.gains import GainEstimate, Gains
from paceline.planner.planner import Planner

log = logging.getLogger("paceline")

EXPLORATION = 0.01  # of all time, for asking where it may well pay but is not expected to
SAVED = 3.0  # plain steps of such time that can be saved up
ENOUGH = 4  # tokens: with room for fewer nothing is said of a drafter
MANY = 64  # questions after which a drafter that does not pay is told of
MOST = 0.5  # tokens beyond its price that one question counts for


@dataclass(slots=True)
class ChosenDraft:
    """A slot's draft: how likely each token is, how many are worth checking, and what that gains."""

    draft: Draft
    p_accept: list[float]
    n: int
    gain: float


def pays(choices: Mapping[int, ChosenDraft], budget: DraftBudget) -> bool:
    """Whether the slot has a draft that is worth checking."""
    choice = choices.get(budget.slot.seq)
    return choice is not None and choice.n > 0


class AutoPolicy(Policy):
    """Joins what drafters gain to what they cost; never sees token values."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.acceptance = AcceptanceModel()
        self.gains = Gains()
        self.agreement: dict[str, float] = {}
        self.resting: set[str] = set()
        self._exploration = 0.0  # seconds left for it
        self._expects = False  # somebody was asked who is expected to pay
        self._rests = False
        self._drafting = 0.0
        self._have_read: set[tuple[int, str]] = set()
        self._told: set[str] = set()

    def begin(self, seq: int, *, sampled: bool) -> None:
        self.acceptance.begin(seq, sampled=sampled)
        self.resting.clear()
        self._rests = False

    def propose(self, pool: DrafterPool, budgets: Sequence[DraftBudget]) -> None:
        planner, names, start = self.planner, pool.names(), pool.clock()
        planner.begin_step(len(budgets), sum(budget.n_context for budget in budgets) / len(budgets))
        choices: dict[int, ChosenDraft] = {}
        for name in names:
            self._ask(pool, name, [b for b in budgets if name in b.sources and not pays(choices, b)], choices)
        planner.learn_sizes([choice.p_accept for choice in choices.values()], pool.clock() - start)
        chosen = [budget for budget in budgets if pays(choices, budget)]
        lengths = planner.trim([choices[b.slot.seq].p_accept[: choices[b.slot.seq].n] for b in chosen])
        for budget, n in zip(chosen, lengths, strict=True):
            choice = choices[budget.slot.seq]
            budget.slot.draft = Proposal()
            budget.slot.draft.add(choice.draft.cut(n if n >= budget.n_min else 0))
            self._judge(budget.slot.seq, choice.draft.source, choice.gain if n else 0.0)
        self._drafting = pool.clock() - start
        self._exploration -= 0.0 if self._expects else self._drafting
        self._expects = False
        self._rests = not chosen and planner.is_plain and len(self.resting) == len(names)

    # -- asking

    def _ask(
        self, pool: DrafterPool, name: str, budgets: Sequence[DraftBudget], choices: dict[int, ChosenDraft]
    ) -> None:
        """Those slots where it pays, or may pay. Its draft becomes the slot's choice."""
        asked = self._worth_asking(pool, name, [budget for budget in budgets if budget.limit > 0])
        if not asked:
            self.resting.add(name)
            return
        self.resting.discard(name)
        start = pool.clock()
        rules = [self._rule(pool, name, budget) for budget in asked]
        drafts = pool.ask(name, [b.slot for b in asked], [b.limit for b in asked], rules)
        for budget, draft in zip(asked, drafts, strict=True):
            p_accept = self.acceptance.p_accept(budget.slot.seq, draft)
            choice = choices[budget.slot.seq] = ChosenDraft(draft, p_accept, *self.planner.best_length(p_accept))
            if not choice.n:
                self._judge(budget.slot.seq, name, 0.0)
        self._took(name, asked, pool.clock() - start)

    def _worth_asking(self, pool: DrafterPool, name: str, budgets: Sequence[DraftBudget]) -> list[DraftBudget]:
        if not self._can_pay(pool, name, budgets):
            return []
        price = self._price(pool, name)
        asked, able = [], []
        for budget in budgets:
            gain = self.gains.of(budget.slot.seq, name)
            if gain.expected > price:
                self._expects = True
                asked.append(budget)
                continue
            if gain.upper_bound(self.gains.most[name]) > price:
                able.append(budget)
            gain.decay(self.gains.common[name])
        if able and not asked and self._exploration > 0:
            asked = able[:1]
        return asked

    def _price(self, pool: DrafterPool, name: str) -> float:
        """What a question takes, in tokens."""
        seconds = self.gains.seconds.get(name)
        return self.planner.rate * (pool.question_seconds(name, self.planner.n_slots) if seconds is None else seconds)

    def expects(self, pool: DrafterPool, name: str) -> bool:
        return GainEstimate(self.gains.common[name]).upper_bound(self.gains.most[name]) > self._price(pool, name)

    def _can_pay(self, pool: DrafterPool, name: str, budgets: Sequence[DraftBudget]) -> bool:
        """Whether it could even if it were almost always right."""
        if not budgets or name in self.gains.seconds:
            return bool(budgets)
        token_seconds, limit = pool.token_seconds(name, self.planner.n_slots), max(b.limit for b in budgets)
        whole = 0.0 if token_seconds else pool.question_seconds(name, self.planner.n_slots)
        can = self.planner.can_ever_pay(limit, token_seconds, whole)
        if not can and limit >= ENOUGH:
            ms, plain = 1e3 * token_seconds, 1e3 * self.planner.plain_seconds / self.planner.n_slots
            batch = 1e3 * self.planner.seconds(ENOUGH)
            why = f"{ms:.1f} ms a draft token" if token_seconds else f"{batch:.1f} ms for a batch of {ENOUGH} tokens"
            why = f"{1e3 * whole:.1f} ms a draft" if whole else why
            self._tell(name, f"{why} against {plain:.1f} ms a plain step: it cannot pay")
        return can

    def _tell(self, name: str, why: str) -> None:
        """Once, for people who asked for this drafter."""
        if name not in self._told:
            self._told.add(name)
            log.warning("%s: %s", name, why)

    def _rule(self, pool: DrafterPool, name: str, budget: DraftBudget) -> ShouldContinue | None:
        """For those that draft token by token: can going on still pay? With a whole block at once it always does."""
        token_seconds = pool.token_seconds(name, self.planner.n_slots)
        if not token_seconds:
            return (lambda draft: True) if pool.question_seconds(name, self.planner.n_slots) else None
        p_accept, mean = self.acceptance.rule(budget.slot.seq, name)
        reached = 1.0

        def should_continue(draft: Draft) -> bool:
            nonlocal reached
            reached *= p_accept(draft.confidence[-1])
            n = len(draft)
            return self.planner.pays_to_continue(reached, mean, n, budget.limit - n, token_seconds)

        return should_continue

    # -- learning

    def _judge(self, seq: int, name: str, gained: float) -> None:
        price = self.planner.rate * self.gains.seconds.get(name, 0.0)
        self.gains.learn(seq, name, gained, min(gained, price + MOST))

    def _took(self, name: str, asked: Sequence[DraftBudget], seconds: float) -> None:
        """The first question about a text includes reading it, and does not count."""
        keys = {(budget.slot.seq, name) for budget in asked}
        if keys <= self._have_read:
            self.gains.took(name, seconds / len(asked))
        self._have_read |= keys

    def set_agreement(self, name: str, agreements: Sequence[tuple[float, bool]], token_seconds: float) -> None:
        """How sure a model was of each token that the target wrote before any request, and whether it was right."""
        if not agreements:
            return
        self.agreement[name] = sum(right for _, right in agreements) / len(agreements)
        self.gains.common[name] = self.planner.prospect(agreements, token_seconds)
        for confidence, right in agreements:
            self.acceptance.of(name, sampled=False).learn(confidence, right=right)

    @property
    def rests(self) -> bool:
        return self._rests and self._exploration <= 0

    def size(self, n_tokens: int) -> int:
        return n_tokens if self._rests else self.planner.size(n_tokens)

    def settled(self, slot: Drafted, emitted: Sequence[int]) -> None:
        self.acceptance.learn(slot.seq, slot.candidates, emitted)

    def observe_step(self, n_tokens: int, n_emitted: int, n_drafted: int, seconds: float) -> None:
        if self._rests and not self._drafting:
            self.planner.observe_rest(n_tokens, n_emitted, seconds)
        else:
            self.planner.observe_step(n_tokens, n_emitted, n_drafted, seconds, self._drafting)
        earned = self._exploration + EXPLORATION * (seconds + self._drafting)
        self._exploration = min(earned, SAVED * self.planner.plain_seconds)
        self._drafting = 0.0

    def took_back(self, n_drafts: int, seconds: float, n_again: int) -> None:
        self.planner.took_back(seconds / n_drafts, n_again // n_drafts)
        self._drafting += seconds

    def passed(self, n_tokens: int) -> None:
        self.planner.target.passed(n_tokens)

    def _explain_rest(self, name: str) -> None:
        """A model that was given to us and asked often, but does not pay."""
        seconds, common = self.gains.seconds.get(name, 0.0), self.gains.common[name]
        if self.gains.n_asked[name] > MANY and common < self.planner.rate * seconds:
            worth = 1e3 * common / self.planner.rate
            self._tell(name, f"a question takes {1e3 * seconds:.1f} ms and saves {worth:.1f} ms: it is seldom asked")

    def end(self, seq: int) -> None:
        self._rests = False
        for name in self.agreement:
            self._explain_rest(name)
        self.gains.end(seq)
        self.acceptance.end(seq)
        self._have_read = {key for key in self._have_read if key[0] != seq}

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
            "resting": sorted(name for name in self.resting if self.gains.n_asked[name]),
        }
