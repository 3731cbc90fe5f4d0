"""Whom to ask for a draft, and what each answer is worth: one rule for every drafter.

Asked in the order from cheap to dear: whoever is expected to gain more, after its own time, than the best draft so far
does. Where that is not expected but may well be, asking is exploration, which has a budget: a share of all time, saved
up before it is spent.
Reading a text is no part of a question's price: it is done once, where it is worth it for what may follow.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.drafters.base import Draft
from paceline.planner.acceptance import AcceptanceModel
from paceline.planner.base import USUAL_ANSWER, Agreement, DraftBudget, DrafterPool, ShouldContinue
from paceline.planner.gains import MOST, Gains
from paceline.planner.planner import Planner

log = logging.getLogger("paceline")

EXPLORATION = 0.005  # of all time, for asking where it may well pay but is not expected to
ONE_TEXT = 1.5  # times the cost: a model that gained at that in the interview is asked from the start
SAVED = 3.0  # plain steps of such time that can be saved up
NEEDED = 2.0  # plain steps of it that are enough for any question
ENOUGH = 4  # tokens: with room for fewer nothing is said of a drafter
FIRST_READING = 16  # questions that reading a text takes as long as, before that is known
READING_RATE = 0.3
CATCH_UP = 8  # tokens that came since a model was asked: with so many to read, a question is no usual one
MANY = 64  # questions after which a drafter that does not pay is told of


@dataclass(slots=True)
class Offer:
    """A draft for a slot: how likely each token is, how many are worth checking, what that gains, what asking cost."""

    draft: Draft
    p_accept: list[float]
    n: int
    gain: float
    price: float


Found = defaultdict[int, list[Offer]]


def best(found: Sequence[Offer]) -> Offer | None:
    """What gains most; where nothing gains anything, the last."""
    return max(reversed(found), key=lambda offer: offer.gain, default=None)


class Questions:
    """Gains are learned apart for one slot, for two or three, for four to seven: a draft is worth less in company."""

    def __init__(self, planner: Planner, acceptance: AcceptanceModel) -> None:
        self.planner = planner
        self.acceptance = acceptance
        self.gains = Gains()
        self._by_load = {1: self.gains}
        self._interviews: dict[str, tuple[Sequence[Agreement], float]] = {}
        self.resting: set[str] = set()
        self._budget = 0.0  # seconds left for exploration
        self._needed = 0.0  # to explore with whoever was able and takes least
        self._expects = False  # somebody was asked who is expected to pay
        self._seconds = 0.0  # of this step's questions
        self._asked_at: dict[tuple[int, str], int] = {}  # of a text's tokens, by slot and drafter
        self._reading: dict[str, float] = {}  # seconds that reading a text takes each drafter
        self._told: set[str] = set()

    def interviewed(self, name: str, agreements: Sequence[Agreement], token_seconds: float, beside: float) -> None:
        """What a model said of a text before any request, and how long a question takes it `beside` its tokens."""
        self._interviews[name] = agreements, beside
        self._expect(name, token_seconds)

    def ask(self, pool: DrafterPool, budgets: Sequence[DraftBudget]) -> Found:
        """Everybody who is worth it, for the next step of these slots."""
        self.planner.begin_step(len(budgets), sum(budget.n_context for budget in budgets) / len(budgets))
        self._meet(pool, len(budgets).bit_length())
        found: Found = defaultdict(list)
        self._expects, self._seconds, self._needed = False, 0.0, 0.0
        for name in pool.names():
            wanting = [budget for budget in budgets if name in budget.sources and budget.limit > 0]
            if not wanting or not self._ask(pool, name, wanting, found):
                self.resting.add(name)
        return found

    def _meet(self, pool: DrafterPool, load: int) -> None:
        """So many slots: where that is new, of models what the interview promises is expected."""
        if load in self._by_load:
            self.gains = self._by_load[load]
            return
        self.gains = self._by_load[load] = Gains()
        for name in self._interviews:
            self._expect(name, pool.token_seconds(name, self.planner.n_slots))

    def _expect(self, name: str, token_seconds: float) -> None:
        """Of a model, for as many slots as there are now, what the interview promises: if it is to be asked from the
        start, one text must show that it would gain at ONE_TEXT times the cost."""
        agreements, beside = self._interviews[name]
        self.gains.seconds[name] = beside + token_seconds
        promised = self.planner.prospect(agreements, token_seconds, beside, ONE_TEXT)
        doubtful = min(0.0, self.planner.prospect(agreements, token_seconds, beside))
        self.gains.common[name] = promised if promised > 0 else doubtful

    def _ask(self, pool: DrafterPool, name: str, budgets: Sequence[DraftBudget], found: Found) -> bool:
        """For those slots where it pays, or one where it may pay; says whether there is any."""
        asked, able = self._worth_asking(pool, name, budgets, found)
        if asked and not self.planner.can_afford(self._seconds_of(pool, name)):
            asked, able = [], asked + able
        explores = not asked and bool(able) and self._has_saved(pool, name, able[0])
        asked = able[:1] if explores else asked
        if not asked:
            return False
        self.resting.discard(name)
        self._expects |= not explores
        start = pool.clock()
        rules = [self._rule(pool, name, budget) for budget in asked]
        drafts = pool.ask(name, [budget.slot for budget in asked], [budget.limit for budget in asked], rules)
        took = pool.clock() - start
        self._seconds += took
        seconds = self._took(pool, name, asked, took)
        self._budget -= seconds if explores else 0.0
        for budget, draft in zip(asked, drafts, strict=True):
            p_accept = self.acceptance.p_accept(budget.slot.seq, draft) if draft.tokens else []
            n, gain = self.planner.best_length(p_accept) if p_accept else (0, 0.0)
            found[budget.slot.seq].append(Offer(draft, p_accept, n, gain, self.planner.rate * seconds))
        return True

    def _worth_asking(
        self, pool: DrafterPool, name: str, budgets: Sequence[DraftBudget], found: Found
    ) -> tuple[list[DraftBudget], list[DraftBudget]]:
        """Slots where it is expected to beat what was found already, and others where it may."""
        asked: list[DraftBudget] = []
        able: list[DraftBudget] = []
        if not self._can_pay(pool, name, budgets):
            return asked, able
        for budget in budgets:
            gain, known = self.gains.of(budget.slot.seq, name), best(found[budget.slot.seq])
            least = known.gain if known else 0.0
            if gain.expected > least and gain.expected - self._reading_share(pool, name, budget) > least:
                asked.append(budget)
                continue
            if gain.upper_bound(self.gains.most[name]) > least:
                able.append(budget)
            gain.decay(self.gains.common[name])
        return asked, able

    def _has_saved(self, pool: DrafterPool, name: str, budget: DraftBudget) -> bool:
        """Whether there is enough for a question there, reading included."""
        seconds = self.gains.seconds.get(name, 0.0) + self._reading_seconds(pool, name, budget)
        needed = min(seconds, NEEDED * self.planner.plain_seconds)
        self._needed = min(self._needed or needed, needed)
        return self._budget > needed

    def _seconds_of(self, pool: DrafterPool, name: str) -> float:
        """What a question takes for one slot."""
        known = self.gains.seconds.get(name)
        return pool.question_seconds(name, self.planner.n_slots) if known is None else known

    def _reading_seconds(self, pool: DrafterPool, name: str, budget: DraftBudget) -> float:
        """What reading the text takes first, where it has not been."""
        if (budget.slot.seq, name) in self._asked_at:
            return 0.0
        known = self._reading.get(name)
        return FIRST_READING * pool.question_seconds(name, self.planner.n_slots) if known is None else known

    def _reading_share(self, pool: DrafterPool, name: str, budget: DraftBudget) -> float:
        """What that takes of each question that may follow, in tokens."""
        n_left = max(1, min(budget.n_left, USUAL_ANSWER))
        return self.planner.rate * self._reading_seconds(pool, name, budget) / n_left

    def _can_pay(self, pool: DrafterPool, name: str, budgets: Sequence[DraftBudget]) -> bool:
        """Whether it could even if it were almost always right."""
        if self.gains.n_asked[name]:
            return True
        token_seconds, limit = pool.token_seconds(name, self.planner.n_slots), max(b.limit for b in budgets)
        whole = 0.0 if token_seconds else pool.question_seconds(name, self.planner.n_slots)
        can = self.planner.can_ever_pay(limit, token_seconds, whole)
        if not can and limit >= ENOUGH:
            self._tell(name, f"{self._why(token_seconds, whole)}: it cannot pay")
        return can

    def _why(self, token_seconds: float, whole: float) -> str:
        """Its own time and the batches', which it takes both to pay for."""
        planner, n = self.planner, self.planner.n_slots
        own = f"{1e3 * token_seconds:.1f} ms a draft token" if token_seconds else f"{1e3 * whole:.1f} ms a draft"
        size, plain = n * (1 + ENOUGH), planner.plain_seconds
        batches = (
            f"{1e3 * planner.seconds(size):.1f} ms for a batch of {size} tokens, {1e3 * plain:.1f} ms for one of {n}"
        )
        return f"{own}, {batches}"

    def _tell(self, name: str, why: str) -> None:
        """Once, for people who asked for this drafter."""
        if name not in self._told:
            self._told.add(name)
            log.warning("%s: %s", name, why)

    def _rule(self, pool: DrafterPool, name: str, budget: DraftBudget) -> ShouldContinue | None:
        """For those that draft token by token: can going on still pay? With a whole block at once it always does."""
        if not pool.question_seconds(name, self.planner.n_slots):
            return None
        token_seconds = pool.token_seconds(name, self.planner.n_slots)
        if not token_seconds:
            return lambda draft: True
        p_accept, mean = self.acceptance.rule(budget.slot.seq, name)
        reached = 1.0

        def should_continue(draft: Draft) -> bool:
            nonlocal reached
            reached *= p_accept(draft)
            n = len(draft)
            return self.planner.pays_to_continue(reached, mean, n, budget.limit - n, token_seconds)

        return should_continue

    def _took(self, pool: DrafterPool, name: str, asked: Sequence[DraftBudget], seconds: float) -> float:
        """Seconds of this question for one slot. Where a text, or much of it, had to be read first it counts like
        others."""
        places = {(budget.slot.seq, name): budget.n_context for budget in asked}
        least, known = pool.question_seconds(name, self.planner.n_slots), self._asked_at
        begins = any(key not in known for key in places)
        is_behind = bool(least) and any(n - known.get(key, n) >= CATCH_UP for key, n in places.items())
        self._asked_at |= places
        each = seconds / len(asked)
        if not begins and not is_behind:
            return self.gains.took(name, each)
        usual = min(each, self.gains.seconds.get(name, least))
        if begins:
            before = self._reading.setdefault(name, each - usual)
            self._reading[name] += READING_RATE * (each - usual - before)
        return usual

    # -- learning

    def learn(self, seq: int, found: Sequence[Offer], *, checked: bool) -> None:
        """What each draft for a slot would have gained."""
        for each in found:
            gained = (each.gain if checked else 0.0) - each.price
            self.gains.learn(seq, each.draft.source, min(gained, self._most(each.draft.source)))

    def _most(self, name: str) -> float:
        """What one question counts for at most. A model keeps what it promises, on a CPU: where sizes are kept, what
        it gains comes from the size as well."""
        return math.inf if name in self._interviews and not self.planner.target.price else MOST

    @property
    def may_explore(self) -> bool:
        return self._budget > self._needed

    def considered(self, seconds: float) -> None:
        """Deciding took so long in all: exploration too, unless somebody was expected to pay."""
        self._budget -= 0.0 if self._expects else seconds - self._seconds

    def passed(self, seconds: float) -> None:
        self._budget = min(self._budget + EXPLORATION * seconds, SAVED * self.planner.plain_seconds)

    def end(self, seq: int) -> None:
        for name in self._interviews:
            self._explain_rest(name)
        for gains in self._by_load.values():
            gains.end(seq)
        self._asked_at = {key: n for key, n in self._asked_at.items() if key[0] != seq}

    def _explain_rest(self, name: str) -> None:
        """A model that was given to us and asked often, but does not pay."""
        seconds, common = self.gains.seconds.get(name, 0.0), self.gains.common[name]
        if self.gains.n_asked[name] > MANY and common < 0:
            worth = max(0.0, 1e3 * (seconds + common / self.planner.rate))
            self._tell(name, f"a question takes {1e3 * seconds:.2f} ms and saves {worth:.2f} ms: it is seldom asked")
