"""What asking each drafter gains, its own time subtracted: on one text, on all texts, and how sure that is.

Gains and seconds belong together: long questions are those that gain much, and one text's would make the next one's
look dear. The numbers here are priors, chosen on recorded answers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import sqrt

FAITH = 5.0  # what other texts say counts like so many trials on this one
MEMORY = 20.0  # trials, with those, that count
COMMON_RATE = 0.01  # at least: a few texts
SECONDS_RATE = 0.05
FORGOTTEN = 0.998
DECAY = 0.99  # of what is known of a text, per step without asking
DOUBT = 0.03  # of the most that counted of a question lately: by so much its gain may differ on this text
FIRST_MOST = 3.0  # tokens, before anything was gained
MOST = 0.7  # tokens that a question to a look-up counts for: those that promise far more bring less, and hide the rest
FADING = 0.98  # of what a drafter gains or loses everywhere, by each text on which it was not asked
PRIOR_GAIN = 0.01  # tokens, before anything is known: next to nothing; counts like MEMORY questions


class GainEstimate:
    """In tokens, on one text. Starts from what others gained, and is the less sure the fewer trials it has seen."""

    __slots__ = ("expected", "n_trials")

    def __init__(self, expected: float) -> None:
        self.expected = expected
        self.n_trials = 0.0

    def upper_bound(self, most: float) -> float:
        """What it may well be, for all that is known, of a drafter that gained so much at most."""
        return self.expected + DOUBT * most / sqrt(1 + self.n_trials / FAITH)

    def learn(self, gained: float) -> None:
        self.n_trials = min(self.n_trials + 1, MEMORY - FAITH)
        self.expected += (gained - self.expected) / (FAITH + self.n_trials)

    def decay(self, common: float) -> None:
        """A step without asking: the text may be changing."""
        self.n_trials *= DECAY
        self.expected = common + DECAY * (self.expected - common)


class Gains:
    """Of every drafter: estimates by slot, what all texts have in common, and how long a question takes."""

    def __init__(self) -> None:
        self.common: defaultdict[str, float] = defaultdict(lambda: PRIOR_GAIN)
        self.most: defaultdict[str, float] = defaultdict(lambda: FIRST_MOST)
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
        self.most[name] = max(gained, FORGOTTEN * self.most[name])
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
