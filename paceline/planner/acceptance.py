"""How likely each token of a draft is accepted: what its drafter says, and how that came out before.

A drafter's confidence is calibrated apart for greedy and for sampled text, where it means something else. Knows drafts
and calibrations, nothing of costs. Bound: two calibrations per drafter, one bias per drafter and slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paceline.drafters.base import Draft
from paceline.planner.calibration import Bias, Calibration


@dataclass(slots=True)
class Record:
    """One text: whether it is sampled, and how much better or worse each drafter does on it than elsewhere."""

    sampled: bool = False
    biases: dict[str, Bias] = field(default_factory=dict)


class AcceptanceModel:
    """Calibrations by drafter and kind of text; biases by slot."""

    def __init__(self) -> None:
        self._calibrations: dict[tuple[str, bool], Calibration] = {}
        self._records: dict[int, Record] = {}

    def begin(self, seq: int, *, sampled: bool) -> None:
        """A request starts in this slot."""
        self._records[seq] = Record(sampled)

    def of(self, source: str, *, sampled: bool) -> Calibration:
        known = self._calibrations.get((source, sampled))
        if known is None:
            known = self._calibrations[source, sampled] = Calibration()
        return known

    def means(self) -> dict[str, float]:
        """How often each drafter's tokens are right lately, for people who ask."""
        return {f"{s}, sampled" if noisy else s: known.mean for (s, noisy), known in self._calibrations.items()}

    def rule(self, seq: int, source: str) -> tuple[Callable[[float], float], float]:
        """From a confidence of this drafter to its chance on this text; and how often it is right in general."""
        record = self._records.get(seq) or Record()
        bias = record.biases.get(source)
        shift = bias.value if bias else 0.0
        calibration = self.of(source, sampled=record.sampled)
        return lambda confidence: calibration.p_accept(confidence, shift), calibration.mean

    def p_accept(self, seq: int, draft: Draft) -> list[float]:
        """For each token its chance, given that all before it are right."""
        chance, _ = self.rule(seq, draft.source)
        return [chance(confidence) for confidence in draft.confidence]

    def learn(self, seq: int, candidates: Sequence[Draft], emitted: Sequence[int]) -> None:
        """What the text turned out to be teaches about every draft made, checked or not."""
        record = self._records.setdefault(seq, Record())
        for draft in candidates:
            calibration = self.of(draft.source, sampled=record.sampled)
            bias = record.biases.setdefault(draft.source, Bias())
            for token, confidence, shown in zip(draft.tokens, draft.confidence, emitted, strict=False):
                right = token == shown
                bias.learn(calibration.p_accept(confidence, bias.value), right=right)
                calibration.learn(confidence, right=right)
                if not right:
                    break

    def end(self, seq: int) -> None:
        """The request in this slot is over."""
        self._records.pop(seq, None)
