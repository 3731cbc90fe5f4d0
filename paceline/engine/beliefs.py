"""How likely each token of a proposal is right: what its drafter says, what others say there, how it went before.

Two drafters that offer the same token are right far more often than either alone, and where they differ each is right
far less often; so a drafter's confidence is calibrated apart for the three cases. Knows drafts and calibrations,
nothing of costs. Bound: three calibrations per drafter, one bias per drafter and slot.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        tokens = [token for part in parts for token in part.tokens]
        out: list[float] = []
        for part in parts:
            kinds = opinions(tokens, part.source, offers)[len(out) :]
            calibrations, bias = self.of(part.source), self._bias(seq, part)
            out += [calibrations[kind].chance(c, bias) for kind, c in zip(kinds, part.confidence, strict=False)]
        return out

    def _bias(self, seq: int, part: Draft) -> float:
        bias = self._biases.get(seq, {}).get(part.source)
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
        kinds, calibrations = opinions(tokens, draft.source, offers), self.of(draft.source)
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


def opinions(tokens: Sequence[int], source: str, offers: Sequence[Offer]) -> list[int]:
    """What drafters other than `source` say to each token, given the ones before it."""
    kinds = [ALONE] * len(tokens)
    for ahead, draft in offers:
        if draft.source == source:
            continue
        said = [*ahead, *draft.tokens]
        n_same = common_prefix(tokens, said)
        for at in range(len(ahead), n_same):
            kinds[at] = SECONDED
        if len(ahead) <= n_same < min(len(tokens), len(said)) and kinds[n_same] == ALONE:
            kinds[n_same] = CONTESTED
    return kinds
