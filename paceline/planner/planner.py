"""How many draft tokens are worth checking. Knows chances, counts and costs; never token values.

A step that takes t seconds and yields x tokens is worth x - rate * t, where the rate is what the engine achieves on
average. A token earns its place when its chance is more than its share of the time costs: the optimality condition of a
renewal process, which checks more on good text and less on bad text than each step's own best tokens per second would.

Where a change of size costs time (a GPU's graphs), a step is also charged for what its size costs later: the way back
to the size that has lately been best, or staying where it is, whichever is less. Batches have few sizes then; what is
missing is filled with padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from paceline.planner.base import Agreement
from paceline.planner.costs import CostCurve
from paceline.planner.purse import Purse

HOPELESS = 0.01  # a token with less chance than this is never worth a look
GAIN_RATE = 0.02
RISK_RATE = 0.1
MARGIN = 0.08  # a token must earn this much more than it costs, twice as much with several slots: the best of many
CROWD = 2  # guesses looks better than it is
LOOK_AHEAD = 16
SHORT = 3  # drafts up to this are checked at once
ROUND = (2, 4, 8, 16, 32, 64)  # sizes of batches where changing the size costs time; no draft makes one larger
LOOK_EVERY = 16  # steps, while all drafters rest
EXPECTED = 8  # steps that the first expectation counts for
HORIZON = 128  # steps for which the size that was best lately is expected to stay best
CERTAIN = tuple(0.9**j for j in range(17))  # a draft model can hardly do better


class Planner:
    """Weighs chances against the target's cost curve.

    `begin_step` says what the next step is like; everything else is about that step. With a `least` size each slot is
    computed on its own, in a batch of never fewer tokens (exact mode).

    Where `n_rollback` is not None, taking back more tokens than that costs a checkpoint, and computing again. Where it
    is more than 0, slots with a draft are computed apart from those without.
    """

    def __init__(self, target: CostCurve, *, least: int = 0, n_rollback: int | None = None) -> None:
        self.target = target
        self.least = least
        self.n_rollback = n_rollback
        self.risk = 0.0  # seconds that a draft which needs a checkpoint takes beyond its tokens
        self.gain = 1.0
        self.seconds_plain = 0.0
        self.seconds_actual = 0.0
        self.purse = Purse()
        self._n_rested = 0
        self.predicted = 0.0
        self.actual = 0.0
        self._advantages: dict[int, dict[int, float]] = {}
        self._n_learned: dict[int, int] = {}
        self._plain_seen: dict[int, float] = {}  # seconds of a plain step, where few are seen and context costs little
        self.begin_step(1)

    def begin_step(self, n_slots: int, n_context: float = 0.0) -> None:
        """The next step is for so many slots, with so many tokens of context on average."""
        self.n_slots = n_slots
        self.n_context = n_context
        self.plain_seconds = n_slots * self.seconds(self.least) if self.least else self.seconds(n_slots)
        self.least_rate = (1 + MARGIN * min(n_slots, CROWD)) * n_slots / max(1e-9, self.plain_seconds)
        self.rate = max(1.0, self.gain) * self.least_rate
        self._alone = bool(self.least or (self.n_rollback and n_slots > 1))
        self._price = self.target.change.whole(n_slots) if self.target.price and not self._alone else 0.0
        self._nothing = self._step(n_slots) if self._price else self.plain_seconds
        self._extra = [0.0]
        self._share = [0.0]
        # several slots spread their risk, and what a change of size costs is paid back slowly, by sizes that are kept
        self._is_bounded = n_slots == 1 and not self._price
        self._most_lost = self.purse.seconds(self.plain_seconds) if self._is_bounded else math.inf

    def seconds(self, n: int) -> float:
        """A batch of n tokens, after others of its size."""
        return self.target.predict(n, self.n_context)

    def can_afford(self, seconds: float) -> bool:
        """Whether a question that takes so long, and checking a single token after it, may come to nothing."""
        return seconds + self.extras(1)[1] <= self._most_lost

    # -- sizes

    @property
    def is_plain(self) -> bool:
        """Whether steps without drafts cost what they should: the last ones had their size."""
        return not self._price or self.target.last == self.n_slots

    def size(self, n: int) -> int:
        """How many tokens, padding included, a batch of n should have now."""
        if not self._price or n > ROUND[-1]:
            return n
        whole = n if n == self.n_slots else next(size for size in ROUND if size >= n)
        last = self.target.last
        return last if n <= last and last in ROUND and self._in_all(last) <= self._in_all(whole) else whole

    def _step(self, n: int) -> float:
        """Seconds for n tokens now, and for what their size costs later."""
        if not self._price:
            return self.seconds(n)
        return self._in_all(self.size(n)) if n <= max(self.n_slots, ROUND[-1]) else math.inf

    def _in_all(self, size: int) -> float:
        return self.seconds(size) + self.target.changing(size) + self._later(size)

    def _later(self, size: int) -> float:
        """What it costs not to be at the best size afterwards: getting there, or staying here for a while."""
        known = self._advantages.get(self.n_slots)
        if known is None:
            known = self._advantages[self.n_slots] = self._without_drafts()
        best = max(known, key=known.__getitem__)
        return min(self.target.change.whole(best), HORIZON * (known[best] - known.get(size, 0.0)) / self.rate)

    def _without_drafts(self) -> dict[int, float]:
        """What each size gains over plain steps when it is filled with padding: at first nothing else is expected."""
        sizes = [self.n_slots, *(size for size in ROUND if size > self.n_slots)]
        return {size: self.rate * (self.plain_seconds - self.seconds(size)) for size in sizes}

    def learn_sizes(self, p_accept: Sequence[Sequence[float]], drafting: float) -> None:
        """These drafts could be checked in this step: how would each size have done, had it been the last one's?

        At most what going there and back costs: what gains more is worth the change from plain steps too.
        """
        if not self._price:
            return
        reached = sorted((c for row in p_accept for c in cumulated(row)), reverse=True)
        known, sums = self._advantages[self.n_slots], [0.0, *accumulate(reached)]
        n = self._n_learned[self.n_slots] = self._n_learned.get(self.n_slots, 0) + 1
        for size, gained in self._without_drafts().items():
            if size > self.n_slots:
                gained += sums[min(size - self.n_slots, len(reached))] - self.rate * drafting
                gained = min(gained, self.rate * (self.target.change.at(size, 0) + self._price))
            known[size] += (gained - known[size]) / min(HORIZON, EXPECTED + n)

    # -- what drafts add

    def extras(self, n: int) -> list[float]:
        """What 0, 1, ... n draft tokens add to the step; in exact mode one slot's."""
        extra = self._extra
        while len(extra) <= n:
            m = len(extra)
            risk = self.risk if self.n_rollback is not None and m > self.n_rollback else 0.0
            extra.append(self._added(m) + risk)
        return extra

    def _added(self, m: int) -> float:
        """By one more batch where the slot's is apart, by a larger one where not."""
        if self.least:
            return self.seconds(max(self.least, 1 + m)) - self.seconds(self.least)
        if self._alone:
            return self.seconds(1 + m) + self.seconds(self.n_slots - 1) - self._nothing
        return self._step(self.n_slots + m) - self._nothing

    def shares(self, n: int) -> list[float]:
        """What 0, 1, ... n draft tokens of one slot add, or its share if all slots have as many: the lower, since the
        choice for the whole batch comes last. Batches grow dearer by jumps, which one slot alone need not pay."""
        if self._alone or self.n_slots == 1:
            return self.extras(n)
        share, own = self._share, self.extras(n)
        while len(share) <= n:
            m = len(share)
            together = (self._step(self.n_slots * (1 + m)) - self._nothing) / self.n_slots
            share.append(min(own[m], together))
        return share

    # -- what to check

    def trim(self, p_accept: Sequence[Sequence[float]]) -> list[int]:
        """How many tokens of each slot's proposal to check, for the batch as a whole."""
        if self._alone:
            return [self._peak(row, self.extras(len(row)))[0] for row in map(cumulated, p_accept)]
        reached = sorted(((c, slot) for slot, row in enumerate(p_accept) for c in cumulated(row)), reverse=True)
        best_n, _ = self._peak([c for c, _ in reached], self.extras(len(reached)))
        lengths = [0] * len(p_accept)
        for _, slot in reached[:best_n]:
            lengths[slot] += 1
        return lengths

    def best_length(self, p_accept: Sequence[float]) -> tuple[int, float]:
        """One slot's draft on its own: how much of it to check, and what that is worth in tokens."""
        reached = cumulated(p_accept)
        n, gain = self._peak(reached, self.shares(len(reached)))
        return self._patient(reached[:n], gain) if n > SHORT else (n, gain)

    def _patient(self, reached: Sequence[float], gain: float) -> tuple[int, float]:
        """How many of these tokens to check now, when the rest can be checked in the next step once they are known to
        be right; and what that is worth. On a CPU a long draft that fails at its first token costs many steps."""
        extra = self.shares(len(reached))
        total, rate, plain = sum(reached), self.rate, self.plain_seconds / self.n_slots
        best_n, best, tokens = len(reached), gain, 0.0
        for n, (c, given) in enumerate(pairwise(reached), start=1):
            tokens += c
            later = c * (1 - rate * (plain + extra[len(reached) - n - 1])) + total - tokens - given
            value = tokens - rate * extra[n] + max(0.0, later)
            if value > best:
                best_n, best = n, value
        return best_n, best

    def _peak(self, reached: Sequence[float], extra: Sequence[float]) -> tuple[int, float]:
        best_n, best, tokens = 0, 0.0, 0.0
        rate, most_lost = self.rate, self._most_lost
        for n, c in enumerate(reached, start=1):
            if extra[n] > most_lost:
                break
            tokens += c
            value = tokens - rate * extra[n]
            if value > best:
                best_n, best = n, value
        return best_n, best

    # -- whether to go on drafting

    def pays_to_continue(self, reached: float, mean: float, n_drafted: int, n_left: int, token_seconds: float) -> bool:
        """Whether a model should draft more after tokens that come out right with chance `reached`.

        Looks ahead along the curve: on a GPU the first token is dear and the next fifteen almost free.
        """
        n_ahead = min(n_left, LOOK_AHEAD)
        shares = self.shares(n_drafted + n_ahead)
        before, tokens = shares[n_drafted], 0.0
        for m in range(1, n_ahead + 1):
            if shares[n_drafted + m] > self._most_lost:
                return False
            reached *= mean
            tokens += reached
            if tokens > self.rate * (shares[n_drafted + m] - before + m * token_seconds):
                return True
            if reached < HOPELESS:
                return False
        return False

    def can_ever_pay(self, n_max: int, token_seconds: float, whole_seconds: float = 0.0) -> bool:
        """Whether a drafter this slow could gain anything even if it were almost always right. It takes so long for
        each token, and for a draft as a whole."""
        n_max = min(n_max, len(CERTAIN) - 1)
        right = list(accumulate(CERTAIN))
        plain, n_slots = self.plain_seconds, self.n_slots
        extra = ((self.seconds(n_slots * (1 + n)) - plain) / n_slots + n * token_seconds for n in range(1, n_max + 1))
        return any(
            right[n] - 1 > self.least_rate * (seconds + whole_seconds) for n, seconds in enumerate(extra, start=1)
        )

    def prospect(
        self, agreements: Sequence[Agreement], token_seconds: float, beside: float = 0.0, dearer: float = 1.0
    ) -> float:
        """What asking a model would have gained on average, after its own time, where it said how sure it was of each
        token of a text, and whether that was right is known; at a size that has become usual, and if all were so many
        times `dearer`. A question takes it so long `beside` its tokens."""
        self._price, self._extra, self._share, self._most_lost = 0.0, [0.0], [0.0], math.inf
        self._nothing = self.seconds(self.n_slots)
        self.rate *= dearer
        found = [self._hindsight(agreements[i:], token_seconds) for i in range(len(agreements))]
        gain, n_drafted = sum(gain for gain, _ in found), sum(n for _, n in found)
        worth = (max(0.0, gain) - self.rate * token_seconds * n_drafted) / len(found) - self.rate * beside
        self.begin_step(self.n_slots, self.n_context)
        return worth

    def _hindsight(self, agreements: Sequence[Agreement], token_seconds: float) -> tuple[float, int]:
        """What checking its tokens would have gained, and how many it would have drafted."""
        reached, n_drafted = 1.0, 0
        for n_drafted, (confidence, _) in enumerate(agreements[:LOOK_AHEAD], start=1):
            reached *= confidence
            if not self.pays_to_continue(reached, confidence, n_drafted, LOOK_AHEAD - n_drafted, token_seconds):
                break
        n, _ = self.best_length([confidence for confidence, _ in agreements[:n_drafted]])
        n_right = next((i for i, (_, right) in enumerate(agreements[:n]) if not right), n)
        return n_right - self.rate * self.shares(n)[n], n_drafted

    # -- how it went

    def observe_step(self, n_tokens: int, n_emitted: int, n_drafted: int, seconds: float, drafting: float) -> None:
        """The step is over, a part of it in exact mode: n tokens were computed in this many seconds, after drafting.

        How did it compare with plain ones? A step without drafts is one, unless padding or a change made it slower.
        """
        plain = n_emitted * self._plain_seen.get(self.n_slots, self.plain_seconds) / self.n_slots
        changed = bool(self._price and self.target.changing(n_tokens))
        if not n_drafted and not changed and n_tokens <= max(self.least, self.n_slots):
            plain = seconds
            if self._price:
                seen = self._plain_seen.setdefault(self.n_slots, seconds)
                self._plain_seen[self.n_slots] += GAIN_RATE * (seconds - seen)
        self.gain += GAIN_RATE * (plain / (seconds + drafting) - self.gain)
        self.seconds_plain += plain
        self.seconds_actual += seconds + drafting
        if self._is_bounded:
            self.purse.book(plain - seconds - drafting, seconds, self.plain_seconds)
        predicted = self.target.observe(n_tokens, seconds, self.n_context)
        rate = GAIN_RATE if self.actual else 1.0
        self.predicted += rate * (predicted - self.predicted)
        self.actual += rate * (seconds - self.actual)

    def took_back(self, seconds: float, n_again: int) -> None:
        """A draft's checkpoint took this long, and so many tokens are computed again in the next step."""
        seconds += self.seconds(self.n_slots + n_again) - self.seconds(self.n_slots)
        self.risk += (RISK_RATE if self.risk else 1.0) * (seconds - self.risk)

    def observe_rest(self, n_tokens: int, n_emitted: int, seconds: float) -> None:
        """A plain step while all drafters rest: looked at now and then only, since looking takes time too."""
        self.n_context += n_emitted / self.n_slots
        self._n_rested += 1
        if self._n_rested % LOOK_EVERY == 0 or (self._price and self.target.changing(n_tokens)):
            self.observe_step(n_tokens, n_emitted, 0, seconds, 0.0)
            return
        self.seconds_plain += seconds
        self.seconds_actual += seconds
        if self._is_bounded:
            self.purse.book(0.0, seconds, self.plain_seconds)
        if self._price:
            self.target.passed(n_tokens)

    @property
    def speedup(self) -> float:
        """Time the same tokens would have taken without speculation, over the time they took."""
        return self.seconds_plain / self.seconds_actual if self.seconds_actual else 1.0

    def explain(self) -> dict[str, Any]:
        """The target's costs in milliseconds, for people."""
        target = self.target
        return {
            "target_ms": {n: 1e3 * s for n, s in target.sizes.items()},
            "change_ms": {n: [1e3 * s for s in found] for n, found in target.change.by_size.items()},
            "attention": target.drift.attention,
            "predicted_ms": 1e3 * self.predicted,
            "actual_ms": 1e3 * self.actual,
        }


def cumulated(p_accept: Sequence[float]) -> list[float]:
    """Chance that each token is reached and right; ends where it is hopeless."""
    out = []
    reached = 1.0
    for chance in p_accept:
        reached *= chance
        if reached < HOPELESS:
            break
        out.append(reached)
    return out
