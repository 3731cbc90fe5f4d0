"""What asking each drafter gains, its own time subtracted: on one text, on all texts, and how sure that is.

Gains and seconds belong together: long questions are those that gain much, and one text's would make the next one's
look dear. The numbers here are priors, chosen on recorded answers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import erfc, exp, pi, sqrt

from paceline.planner.base import USUAL_ANSWER

FAITH = 5.0  # what other texts say counts like so many trials on this one
MEMORY = 20.0  # trials, with those, that count
COMMON_RATE = 0.01  # at least: a few texts
SECONDS_RATE = 0.05
DECAY = 0.99  # of what is known of a text, per step without asking
TRIAL = 4  # questions by which a drafter is tried
SPREAD = 0.3  # tokens by which gains differ from text to text, before anything is known
SPREAD_RATE = 0.1
TELLING = 3  # questions: with fewer a text says nothing of that
MOST = 1.0  # tokens that one question to a look-up counts for: the few that promise far more bring less, and hide the
MOST_OF_MODELS = 4.0  # rest. Models keep what they promise
FADING = 0.98  # of what a drafter gains or loses everywhere, by each text on which it was not asked
PRIOR_GAIN = 0.2  # tokens, before anything is known; counts like MEMORY questions


class GainEstimate:
    """In tokens, on one text. Starts from what others gained, and is the less sure the fewer trials it has seen."""

    __slots__ = ("expected", "n_asked", "n_trials", "reach", "total")

    def __init__(self, expected: float) -> None:
        self.expected = expected
        self.n_trials = 0.0
        self.n_asked = 0
        self.total = 0.0
        self.reach = 0  # tokens that a draft may have, by how far drafts came

    def upper_bound(self, spread: float, n_left: int) -> float:
        """What the next question is worth: its own gain, and its share of what knowing better by a few questions is
        worth over the rest of the text (the knowledge gradient, Frazier and Powell 2008), where so many tokens may
        follow and gains differ by so much from text to text."""
        n = self.n_trials
        learned = spread * sqrt(FAITH / (FAITH + n) - FAITH / (FAITH + n + TRIAL))
        return self.expected + min(n_left, USUAL_ANSWER) / TRIAL * option(-abs(self.expected), learned)

    def learn(self, gained: float) -> None:
        self.total += gained
        self.n_asked += 1
        self.n_trials = min(self.n_trials + 1, MEMORY - FAITH)
        self.expected += (gained - self.expected) / (FAITH + self.n_trials)

    def checked(self, n: int, n_right: int) -> None:
        """So many tokens of a draft: who was right with all may go twice as far, others nearly as far as they came."""
        self.reach = max(self.reach, 2 * n) if n_right == n else (self.reach + 2 * n_right) // 2

    def decay(self, common: float) -> None:
        """A step without asking: the text may be changing."""
        self.n_trials *= DECAY
        self.expected = common + DECAY * (self.expected - common)


def option(mean: float, deviation: float) -> float:
    """What of a normal variable is above zero, on average."""
    if deviation <= 0:
        return max(0.0, mean)
    z = mean / deviation
    return deviation * (exp(-z * z / 2) / sqrt(2 * pi) + z * erfc(-z / sqrt(2)) / 2)


class Gains:
    """Of every drafter: estimates by slot, what all texts have in common, and how long a question takes."""

    def __init__(self, n_slots: int = 1) -> None:
        """For so many slots: with more, a draft may bring less, everywhere."""
        self.common: defaultdict[str, float] = defaultdict(lambda: PRIOR_GAIN)
        self.spread: defaultdict[str, float] = defaultdict(lambda: SPREAD / n_slots)
        self.n_asked: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self._of: defaultdict[int, dict[str, GainEstimate]] = defaultdict(dict)

    def of(self, seq: int, name: str) -> GainEstimate:
        known = self._of[seq]
        if name not in known:
            known[name] = GainEstimate(self.common[name])
        return known[name]

    def learn(self, seq: int, name: str, gained: float) -> None:
        """A question gained this much, after its own time."""
        self.n_asked[name] += 1
        self.of(seq, name).learn(gained)
        rate = max(COMMON_RATE, 1 / (MEMORY + self.n_asked[name]))
        self.common[name] += rate * (gained - self.common[name])

    def took(self, name: str, seconds: float) -> float:
        """One question to this drafter took so long, for one slot; what of that is believed."""
        known = self.seconds.setdefault(name, seconds)
        seconds = min(seconds, 3 * known)
        self.seconds[name] += SECONDS_RATE * (seconds - known)
        return seconds

    def end(self, seq: int) -> None:
        """Nobody is silent for ever: who was not asked on this text may be on the next."""
        for name, gain in self._of.pop(seq, {}).items():
            if not gain.n_trials:
                self.common[name] *= FADING
            elif gain.n_asked >= TELLING:
                weight = gain.n_asked / (FAITH + gain.n_asked)
                off = weight * (gain.total / gain.n_asked - self.common[name]) ** 2
                self.spread[name] = sqrt((1 - SPREAD_RATE) * self.spread[name] ** 2 + SPREAD_RATE * off)
