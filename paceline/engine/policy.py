"""Who is asked for a draft, and which proposal is checked: literally by the flags, or by what it is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

from paceline.drafters.base import Draft
from paceline.engine.calibration import Bias, Calibration
from paceline.engine.memory import common_prefix
from paceline.engine.planner import Planner
from paceline.engine.proposal import Proposal
from paceline.engine.slot import Slot

MODELS = frozenset({"draft-simple"})
SHORT = 4  # a look-up draft of fewer tokens is worth continuing with a model
FIRST_HOPE = 0.3  # tokens a model draft is believed to gain before it was tried
HOPE_RATE = 0.1
PROBE_SHARE = 0.02
PROBE_LENGTH = 2
LIKELY = 0.7  # a look-up this likely to come out right as a whole may be continued by the model
GoOn = Callable[[Sequence[float]], bool]


class Asks(Protocol):
    """What a policy needs of the drafting room: asking one drafter for several slots."""

    def names(self) -> list[str]: ...
    def ask(self, name: str, slots: list[Slot], limits: list[int], go_on: Sequence[GoOn | None]) -> list[Draft]: ...
    def seconds(self, name: str) -> float: ...


@dataclass(slots=True)
class Want:
    """One slot that may draft, and at most how much."""

    slot: Slot
    limit: int


class FixedPolicy:
    """Takes the flags literally, as llama-server does: the first non-empty draft wins, in the registry's order.

    What a grammar forces is continued by anybody, a short look-up by a model.
    """

    def propose(self, asks: Asks, wants: list[Want]) -> None:
        for name in asks.names():
            asked = [want for want in wants if self._wanted(want, name)]
            if not asked:
                continue
            limits = [want.limit - len(want.slot.draft) for want in asked]
            drafts = asks.ask(name, [want.slot for want in asked], limits, [None] * len(asked))
            for want, draft in zip(asked, drafts, strict=True):
                want.slot.draft.add(draft)
        for want in wants:
            n_min = want.slot.wishes.n_min or 0
            want.slot.draft.cut(want.limit if len(want.slot.draft) >= n_min else 0)

    @staticmethod
    def _wanted(want: Want, name: str) -> bool:
        n = len(want.slot.draft)
        if name not in want.slot.stats or n >= want.limit:
            return False
        if name in MODELS and n < SHORT:
            return True
        return all(part.source == "grammar" for part in want.slot.draft.parts)

    def settled(self, slot: Slot, emitted: Sequence[int]) -> None:
        """Nothing to learn."""

    def ended(self, slot: Slot) -> None:
        """Nothing to forget."""

    def spent(self, n_tokens: int, n_slots: int, n_emitted: int, seconds: float) -> None:
        """Nothing to measure."""


@dataclass(slots=True)
class SlotView:
    """What is known of one slot's text: how each drafter does on it, and what asking the model was worth."""

    biases: dict[str, Bias] = field(default_factory=dict)
    hope: float = FIRST_HOPE


class AutoPolicy:
    """Every draft token has to earn its place. Look-ups are asked always, they cost next to nothing; the model when
    it has been worth its time lately, else now and then (within PROBE_SHARE of all time) to see whether that changed.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.calibrations: dict[str, Calibration] = {}
        self.hope = FIRST_HOPE
        self.off: set[str] = set()
        self._views: dict[int, SlotView] = {}
        self._seconds_probing = 0.0
        self._seconds_total = 0.0
        self._seconds_drafting = 0.0

    # -- drafting

    def propose(self, asks: Asks, wants: list[Want]) -> None:
        before = self._clock(asks)
        self._propose(asks, wants)
        self._seconds_drafting = self._clock(asks) - before

    @staticmethod
    def _clock(asks: Asks) -> float:
        """Time spent drafting so far, by everybody who is on."""
        return sum(asks.seconds(name) for name in asks.names())

    def _propose(self, asks: Asks, wants: list[Want]) -> None:
        for name in asks.names():
            if name not in MODELS:
                self._ask_lookup(asks, name, wants)
        for name in asks.names():
            if name in MODELS:
                self._ask_model(asks, name, wants)
        slots = [want.slot for want in wants]
        lengths = self.planner.trim([self._chances(slot, slot.draft) for slot in slots])
        for slot, n in zip(slots, lengths, strict=True):
            slot.draft.cut(n if n >= (slot.wishes.n_min or 0) else 0)

    def _ask_lookup(self, asks: Asks, name: str, wants: list[Want]) -> None:
        asked = [want for want in wants if name in want.slot.stats]
        if not asked:
            return
        drafts = asks.ask(name, [w.slot for w in asked], [w.limit for w in asked], [None] * len(asked))
        for want, draft in zip(asked, drafts, strict=True):
            offer = Proposal()
            offer.add(draft)
            self._keep_better(want.slot, offer, len(wants))

    def _keep_better(self, slot: Slot, offer: Proposal, n_slots: int) -> None:
        if self._worth(slot, offer, n_slots) > self._worth(slot, slot.draft, n_slots):
            slot.draft = offer

    def _worth(self, slot: Slot, proposal: Proposal, n_slots: int) -> float:
        return self.planner.best_length(self._chances(slot, proposal), n_slots)[1] if proposal.tokens else 0.0

    def _ask_model(self, asks: Asks, name: str, wants: list[Want]) -> None:
        n_slots = len(wants)
        able = [want for want in wants if name in want.slot.stats and want.limit > 0]
        if not able or not self.planner.can_ever_pay(n_slots, max(want.limit for want in able)):
            self.off.add(name)
            return
        asked = [want for want in able if self._hopeful(want, name, n_slots)]
        probing = not asked and self._may_probe()
        if probing:
            asked = able[:1]
        if not asked:
            self.off.add(name)
            return
        self.off.discard(name)
        self._draft_with_model(asks, name, asked, n_slots, probing)

    def _hopeful(self, want: Want, name: str, n_slots: int) -> bool:
        """Whether the model is likely to add more than the look-up has to offer already."""
        slot = want.slot
        hope = self._view(slot).hope
        if not slot.draft.tokens:
            return hope > 0
        chances = self._chances(slot, slot.draft)
        n, worth = self.planner.best_length(chances, n_slots)
        reached = prod(chances)
        if n == len(slot.draft) < want.limit and reached > LIKELY:
            return reached * hope > 0
        slot.draft.cut(n)
        if hope > worth:
            slot.draft = Proposal() if worth <= 0 else slot.draft
            return True
        return False

    def _may_probe(self) -> bool:
        return self._seconds_probing <= PROBE_SHARE * self._seconds_total

    def _draft_with_model(self, asks: Asks, name: str, asked: list[Want], n_slots: int, probing: bool) -> None:
        """The model goes on after a likely look-up, else starts afresh and competes with it."""
        slots = [want.slot for want in asked]
        kept = [slot.draft for slot in slots]
        for slot in slots:
            likely = slot.draft.tokens and prod(self._chances(slot, slot.draft)) > LIKELY
            slot.draft = slot.draft if likely else Proposal()
        limits = [PROBE_LENGTH if probing else want.limit - len(want.slot.draft) for want in asked]
        stops = [self._stop_rule(want.slot, name, limit, n_slots) for want, limit in zip(asked, limits, strict=True)]
        before = asks.seconds(name)
        drafts = asks.ask(name, slots, limits, stops)
        seconds = (asks.seconds(name) - before) / len(asked)
        if probing:
            self._seconds_probing += seconds
        for slot, draft, lookup in zip(slots, drafts, kept, strict=True):
            self._compare(slot, draft, lookup, seconds, n_slots)

    def _compare(self, slot: Slot, draft: Draft, lookup: Proposal, seconds: float, n_slots: int) -> None:
        """Add the model's draft, keep the better proposal, and note what asking was worth."""
        before = self._worth(slot, slot.draft, n_slots)
        slot.draft.add(draft)
        gained = self._worth(slot, slot.draft, n_slots) - before - self.planner.rate(n_slots) * seconds
        view = self._view(slot)
        view.hope += HOPE_RATE * (gained - view.hope)
        self.hope += HOPE_RATE / 4 * (gained - self.hope)
        if lookup is not slot.draft:
            self._keep_better(slot, lookup, n_slots)

    def _stop_rule(self, slot: Slot, name: str, limit: int, n_slots: int) -> GoOn:
        """For the model, token by token: can going on still pay?"""
        calibration, bias = self._calibration(name), self._bias(slot, name)
        n_ahead = len(slot.draft)
        reached = prod(self._chances(slot, slot.draft))
        mean = calibration.mean

        def go_on(confidence: Sequence[float]) -> bool:
            chance = reached * prod(calibration.chances(confidence, bias))
            n = n_ahead + len(confidence)
            return self.planner.pays_to_go_on(chance, mean, n, n_slots, limit - len(confidence))

        return go_on

    # -- chances

    def _chances(self, slot: Slot, proposal: Proposal) -> list[float]:
        out: list[float] = []
        for part in proposal.parts:
            bias = self._bias(slot, part.source)
            out += self._calibration(part.source).chances(part.confidence, bias)
        return out

    def _calibration(self, name: str) -> Calibration:
        if name not in self.calibrations:
            self.calibrations[name] = Calibration()
        return self.calibrations[name]

    def _view(self, slot: Slot) -> SlotView:
        if slot.seq not in self._views:
            self._views[slot.seq] = SlotView(hope=max(self.hope, 0.0))
        return self._views[slot.seq]

    def _bias(self, slot: Slot, name: str) -> float:
        bias = self._view(slot).biases.get(name)
        return bias.value if bias else 0.0

    # -- learning

    def settled(self, slot: Slot, emitted: Sequence[int]) -> None:
        """What the text turned out to be teaches about every offer made, checked or not."""
        view = self._view(slot)
        for ahead, draft in slot.offers:
            n_ahead = len(ahead)
            if list(emitted[:n_ahead]) != list(ahead) or len(emitted) <= n_ahead:
                continue
            shown = emitted[n_ahead:]
            n_right = common_prefix(draft.tokens, shown)
            calibration = self._calibration(draft.source)
            bias = view.biases.setdefault(draft.source, Bias())
            bias.learn(calibration.chances(draft.confidence, bias.value), n_right, len(shown))
            calibration.learn(draft.confidence, n_right, len(shown))

    def ended(self, slot: Slot) -> None:
        self._views.pop(slot.seq, None)

    def spent(self, n_tokens: int, n_slots: int, n_emitted: int, seconds: float) -> None:
        """A batch of generating slots was computed; drafting for it took what `propose` measured."""
        self.planner.compare(n_tokens, seconds)
        total = seconds + self._seconds_drafting
        self._seconds_drafting = 0.0
        self._seconds_total += total
        self.planner.observe(n_slots, n_emitted, total)
