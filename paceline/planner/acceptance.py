"""How likely each token of a draft is accepted: what its drafter says, and how that came out before.

A drafter's confidence is calibrated apart for greedy and for sampled text, where it means something else, and shifted
by how well it does on this text and with these tokens. Knows drafts and calibrations, nothing of costs. Bound: two
calibrations and two tables of tokens per drafter, one bias per drafter and slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paceline.drafters.base import Draft
from paceline.planner.calibration import Bias, Calibration
from paceline.planner.shifts import TokenShifts


@dataclass(slots=True)
class Record:
    """One text: whether it is sampled, and how much better or worse each drafter does on it than elsewhere."""

    sampled: bool = False
    biases: dict[str, Bias] = field(default_factory=dict)

    def shift(self, source: str) -> float:
        bias = self.biases.get(source)
        return bias.value if bias else 0.0


class AcceptanceModel:
    """Calibrations and shifts by drafter and kind of text; biases by slot."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool], tuple[Calibration, TokenShifts]] = {}
        self._records: dict[int, Record] = {}

    def begin(self, seq: int, *, sampled: bool) -> None:
        """A request starts in this slot."""
        self._records[seq] = Record(sampled)

    def of(self, source: str, *, sampled: bool) -> tuple[Calibration, TokenShifts]:
        known = self._known.get((source, sampled))
        if known is None:
            known = self._known[source, sampled] = Calibration(), TokenShifts()
        return known

    def means(self) -> dict[str, float]:
        """How often each drafter's tokens are right lately, for people who ask."""
        return {f"{s}, sampled" if noisy else s: known.mean for (s, noisy), (known, _) in self._known.items()}

    def rule(self, seq: int, source: str) -> tuple[Callable[[Draft], float], float]:
        """From a draft of this drafter's to the chance of its last token; and how often it is right in general."""
        record = self._records.get(seq) or Record()
        calibration, shifts = self.of(source, sampled=record.sampled)
        own = record.shift(source)

        def chance(draft: Draft) -> float:
            before = draft.tokens[-2] if len(draft) > 1 else draft.before
            return calibration.p_accept(draft.confidence[-1], own + shifts.shift(before, draft.tokens[-1]))

        return chance, calibration.mean

    def p_accept(self, seq: int, draft: Draft) -> list[float]:
        """For each token its chance, given that all before it are right."""
        record = self._records.get(seq) or Record()
        calibration, shifts = self.of(draft.source, sampled=record.sampled)
        own, before, chances = record.shift(draft.source), draft.before, []
        for token, confidence in zip(draft.tokens, draft.confidence, strict=True):
            chances.append(calibration.p_accept(confidence, own + shifts.shift(before, token)))
            before = token
        return chances

    def learn(self, seq: int, candidates: Sequence[Draft], emitted: Sequence[int]) -> None:
        """What the text turned out to be teaches about every draft made, checked or not."""
        record = self._records.setdefault(seq, Record())
        for draft in candidates:
            calibration, shifts = self.of(draft.source, sampled=record.sampled)
            bias, before = record.biases.setdefault(draft.source, Bias()), draft.before
            for token, confidence, shown in zip(draft.tokens, draft.confidence, emitted, strict=False):
                right = token == shown
                chance = calibration.p_accept(confidence, bias.value + shifts.shift(before, token))
                bias.learn(chance, right=right)
                shifts.learn(before, token, chance, right=right)
                calibration.learn(confidence, right=right)
                if not right:
                    break
                before = token

    def end(self, seq: int) -> None:
        """The request in this slot is over."""
        self._records.pop(seq, None)
