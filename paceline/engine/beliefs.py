"""How likely each token of a proposal is right: what its drafter says, what others say there, how it went before.

Two drafters that offer the same token are right far more often than either alone, and where they differ each is right
far less often; so a drafter's confidence is calibrated apart for the three cases. Knows drafts and calibrations,
nothing of costs. Bound: three calibrations per drafter, one bias per drafter and slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.drafters.base import Draft
from paceline.engine.calibration import Bias, Calibration
from paceline.engine.memory import common_prefix

Offer = tuple[tuple[int, ...], Draft]  # a draft, and the tokens it goes on after
ALONE, SECONDED, CONTESTED = range(3)
SHIFTS = (0.0, 1.0, -1.0)  # of the log-odds, before anything was learned


class Beliefs:
    """Calibrations by drafter, and by what others said of the same token; a bias by slot."""

    def __init__(self) -> None:
        self._calibrations: dict[str, list[Calibration]] = {}
        self._biases: dict[int, dict[str, Bias]] = {}

    def of(self, source: str) -> list[Calibration]:
        if source not in self._calibrations:
            self._calibrations[source] = [Calibration(shift) for shift in SHIFTS]
        return self._calibrations[source]

    def means(self) -> dict[str, float]:
        """How often each drafter's tokens are right lately, for people who ask."""
        return {source: kinds[ALONE].mean for source, kinds in self._calibrations.items()}

    def chances(self, seq: int, parts: Sequence[Draft], offers: Sequence[Offer]) -> list[float]:
        """For each token of these drafts, one after the other: its chance, given that all before it are right."""
        if len(parts) == len(offers) == 1 and (part := parts[0]).source == offers[0][1].source:  # as most often
            calibration, shift = self.of(part.source)[ALONE], self._shift(seq, part.source)
            return [calibration.chance(confidence, shift) for confidence in part.confidence]
        before: list[int] = []
        out: list[float] = []
        for part in parts:
            chance = self.chance_by_token(seq, part.source, before, offers)
            out += map(chance, part.tokens, part.confidence)
            before += part.tokens
        return out

    def chance_by_token(
        self, seq: int, source: str, before: Sequence[int], offers: Sequence[Offer]
    ) -> Callable[[int, float], float]:
        """The chance of token after token that one drafter proposes after those `before`."""
        opinions, calibrations = Opinions(source, offers), self.of(source)
        for token in before:
            opinions.of(token)
        shift = self._shift(seq, source)
        return lambda token, confidence: calibrations[opinions.of(token)].chance(confidence, shift)

    def _shift(self, seq: int, source: str) -> float:
        bias = self._biases.get(seq, {}).get(source)
        return bias.value if bias else 0.0

    def learn(self, seq: int, offers: Sequence[Offer], emitted: Sequence[int]) -> None:
        """What the text turned out to be teaches about every offer made, checked or not."""
        shown = list(emitted)
        for ahead, draft in offers:
            n_ahead = len(ahead)
            if shown[:n_ahead] == list(ahead):
                self._learn(seq, [*ahead, *draft.tokens], n_ahead, draft, offers, shown)

    def _learn(
        self, seq: int, tokens: list[int], start: int, draft: Draft, offers: Sequence[Offer], shown: list[int]
    ) -> None:
        n_right = common_prefix(tokens, shown)
        opinions, calibrations = Opinions(draft.source, offers), self.of(draft.source)
        kinds = [opinions.of(token) for token in tokens[: n_right + 1]]
        bias = self._biases.setdefault(seq, {}).setdefault(draft.source, Bias())
        for at in range(start, min(n_right + 1, len(tokens), len(shown))):
            confidence, kind, right = draft.confidence[at - start], kinds[at], at < n_right
            bias.learn(calibrations[kind].chance(confidence, bias.value), right=right)
            calibrations[ALONE].learn(confidence, right=right)
            if kind != ALONE:
                calibrations[kind].learn(confidence, right=right)

    def forget(self, seq: int) -> None:
        """The request in this slot is over."""
        self._biases.pop(seq, None)


class Opinions:
    """What drafters other than `source` say to each token of a draft, given the ones before it."""

    def __init__(self, source: str, offers: Sequence[Offer]) -> None:
        self._at = 0
        self._agreeing = [(len(ahead), [*ahead, *d.tokens]) for ahead, d in offers if d.source != source]

    def of(self, token: int) -> int:
        """On the next token."""
        if not self._agreeing:
            return ALONE
        at, self._at = self._at, self._at + 1
        spoken = [(start, said) for start, said in self._agreeing if at < len(said)]
        self._agreeing = [(start, said) for start, said in spoken if said[at] == token]
        if any(start <= at for start, _ in self._agreeing):
            return SECONDED
        return CONTESTED if any(start <= at for start, _ in spoken) else ALONE
