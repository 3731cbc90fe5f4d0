"""How many draft tokens are worth checking. Knows chances, counts and costs; never token values.

A step that takes t seconds and yields x tokens is worth x - rate * t, where the rate is what the engine achieves on
average. A token earns its place when its chance is more than its share of the time costs. Compared with taking the
step's own best tokens per second, as the design first had it, this checks more on good text and less on bad text, and
the average over all steps is higher: it is the optimality condition of a renewal process.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul

from paceline.engine.costs import CostCurve

HOPELESS = 0.01  # a token with less chance than this is never worth a look
GAIN_RATE = 0.02
MARGIN = 0.08  # a token must earn this much more than it costs, twice as much with several slots: the best of many
CROWD = 2  # guesses looks better than it is
LOOK_AHEAD = 16
SHORT = 3  # drafts up to this are checked at once
GOOD = 0.9  # the chance of a very good model's tokens
KNOWS = 0.15  # the share of places where a model is as good, if nothing is known of it
KNOWS_OF_AGREED = 0.3  # and of those where it says what the target says
RIGHT = {n: sum(GOOD**j for j in range(1, n + 1)) for n in (1, 2, 4, 8, 16)}  # of so many, on average
LARGE = 128  # tokens in a batch where each costs as little as it ever will
HANDFUL = 64  # tokens: with fewer to go by a model drafts much worse


class Planner:
    """Weighs chances against the cost curves of target and draft model.

    `face` says what the next step is like; everything else is about that step. In exact mode each slot is computed on
    its own, never with fewer than `least` tokens; 0 where all are computed together.
    """

    def __init__(self, target: CostCurve, draft: CostCurve, *, least: int = 0) -> None:
        self.target = target
        self.draft = draft
        self.least = least
        self.exact = least > 0
        self.gain = 1.0
        self.seconds_plain = 0.0
        self.seconds_actual = 0.0
        self.predicted = 0.0
        self.actual = 0.0
        self.face(1)

    def face(self, n_slots: int, n_context: float = 0.0) -> None:
        """The next step is for so many slots, with so many tokens of context on average."""
        self.n_slots = n_slots
        self.n_context = n_context
        self.plain_seconds = n_slots * self.seconds(self.least) if self.exact else self.seconds(n_slots)
        self._least_rate = (1 + MARGIN * min(n_slots, CROWD)) * n_slots / max(1e-9, self.plain_seconds)
        self.rate = max(1.0, self.gain) * self._least_rate
        self.draft_step = self.draft.predict(n_slots) / n_slots
        self._extra = [0.0]
        self._share = [0.0]

    def seconds(self, n: int) -> float:
        """A batch of n tokens."""
        return self.target.predict(n, self.n_context)

    def extra_seconds(self, n: int) -> float:
        """What n draft tokens add to the step; in exact mode n are one slot's."""
        return self._extras(n)[n]

    def _extras(self, n: int) -> list[float]:
        """What 0, 1, ... n draft tokens add."""
        extra = self._extra
        while len(extra) <= n:
            m = len(extra)
            extra.append(
                self.seconds(max(self.least, 1 + m)) - self.seconds(self.least)
                if self.exact
                else self.seconds(self.n_slots + m) - self.plain_seconds
            )
        return extra

    def slot_seconds(self, n: int) -> float:
        """What n draft tokens of one slot add, as far as that is known before the others' drafts are."""
        return self._shares(n)[n]

    def _shares(self, n: int) -> list[float]:
        """What 0, 1, ... n draft tokens of one slot add, or its share if all slots have as many: the lower, since the
        choice for the whole batch comes last. Batches grow dearer by jumps, which one slot alone need not pay."""
        if self.exact or self.n_slots == 1:
            return self._extras(n)
        share, own = self._share, self._extras(n)
        while len(share) <= n:
            m = len(share)
            together = (self.seconds(self.n_slots * (1 + m)) - self.plain_seconds) / self.n_slots
            share.append(min(own[m], together))
        return share

    def observe(self, n_tokens: int, n_emitted: int, seconds: float, drafting: float = 0.0) -> None:
        """The step is over, a part of it in exact mode: n tokens were computed in this many seconds, after drafting.

        How did it compare with plain ones? Both figures are kept for people who ask why.
        """
        plain = n_emitted * self.plain_seconds / self.n_slots
        self.gain += GAIN_RATE * (plain / (seconds + drafting) - self.gain)
        self.seconds_plain += plain
        self.seconds_actual += seconds + drafting
        predicted = self.target.observe(n_tokens, seconds, self.n_context)
        self.predicted += GAIN_RATE * (predicted - self.predicted)
        self.actual += GAIN_RATE * (seconds - self.actual)

    @property
    def speedup(self) -> float:
        """Time the same tokens would have taken without speculation, over the time they took."""
        return self.seconds_plain / self.seconds_actual if self.seconds_actual else 1.0

    # -- what to check

    def trim(self, chances: Sequence[Sequence[float]]) -> list[int]:
        """How many tokens of each slot's proposal to check, for the batch as a whole."""
        if self.exact:
            return [self._peak(row, self._extras(len(row)))[0] for row in map(cumulated, chances)]
        reached = sorted(((c, slot) for slot, row in enumerate(chances) for c in cumulated(row)), reverse=True)
        best_n, _ = self._peak([c for c, _ in reached], self._extras(len(reached)))
        lengths = [0] * len(chances)
        for _, slot in reached[:best_n]:
            lengths[slot] += 1
        return lengths

    def best_length(self, chances: Sequence[float]) -> tuple[int, float]:
        """One slot's draft on its own: how much of it to check, and what that is worth in tokens."""
        reached = cumulated(chances)
        n, worth = self._peak(reached, self._shares(len(reached)))
        return self._patient(reached[:n], worth) if n > SHORT else (n, worth)

    def _patient(self, reached: Sequence[float], worth: float) -> tuple[int, float]:
        """How many of these tokens to check now, when the rest can be checked in the next step once they are known to
        be right; and what that is worth. On a CPU a long draft that fails at its first token costs many steps."""
        extra = self._shares(len(reached))
        total, rate, plain = sum(reached), self.rate, self.plain_seconds / self.n_slots
        best_n, best, tokens = len(reached), worth, 0.0
        for n, (c, given) in enumerate(pairwise(reached), start=1):
            tokens += c
            later = c * (1 - rate * (plain + extra[len(reached) - n - 1])) + total - tokens - given
            value = tokens - rate * extra[n] + max(0.0, later)
            if value > best:
                best_n, best = n, value
        return best_n, best

    def _peak(self, reached: Sequence[float], extra: Sequence[float]) -> tuple[int, float]:
        best_n, best, tokens = 0, 0.0, 0.0
        rate = self.rate
        for n, c in enumerate(reached, start=1):
            tokens += c
            value = tokens - rate * extra[n]
            if value > best:
                best_n, best = n, value
        return best_n, best

    def worth(self, chances: Sequence[float]) -> float:
        """What checking just these tokens of one slot is worth."""
        return sum(accumulate(chances, mul)) - self.rate * self.slot_seconds(len(chances)) if chances else 0.0

    # -- whether to go on drafting

    def pays_to_go_on(self, reached: float, mean: float, n_drafted: int, n_left: int) -> bool:
        """Whether the model should draft more after tokens that come out right with chance `reached`.

        Looks ahead along the curve: on a GPU the first token is dear and the next fifteen almost free.
        """
        before = self.slot_seconds(n_drafted)
        tokens = 0.0
        for m in range(1, min(n_left, LOOK_AHEAD) + 1):
            reached *= mean
            tokens += reached
            if tokens > self.rate * (self.slot_seconds(n_drafted + m) - before + m * self.draft_step):
                return True
            if reached < HOPELESS:
                return False
        return False

    def n_affordable(self, n_steps: float) -> int:
        """How many tokens the draft model computes in one slot's share of so many plain steps; never a handful."""
        per_token = self.draft.predict(LARGE) / LARGE
        return max(HANDFUL, int(n_steps * self.plain_seconds / self.n_slots / max(1e-9, per_token)))

    def prospect(self, agreement: float | None = None) -> float:
        """What asking a model is worth in tokens, before it was tried: now and then it knows how to go on. How often it
        agrees with the target may be known."""
        knows = KNOWS if agreement is None else KNOWS_OF_AGREED * agreement
        best = max(right - self.rate * (self.slot_seconds(n) + n * self.draft_step) for n, right in RIGHT.items())
        return knows * max(0.0, best) - (1 - knows) * self.rate * self.draft_step

    def can_ever_pay(self, n_max: int) -> bool:
        """Whether a drafter this slow could gain anything even if it were almost always right."""
        return any(
            right > self._least_rate * (self.slot_seconds(n) + n * self.draft_step)
            for n, right in RIGHT.items()
            if n <= n_max
        )


def cumulated(chances: Sequence[float]) -> list[float]:
    """Chance that each token is reached and right; ends where it is hopeless."""
    out = []
    reached = 1.0
    for chance in chances:
        reached *= chance
        if reached < HOPELESS:
            break
        out.append(reached)
    return out
