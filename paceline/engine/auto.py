"""The policy that lets every draft token earn its place. Joins beliefs to costs; never sees token values."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from paceline.drafters.base import Draft
from paceline.engine.beliefs import ALONE, Beliefs
from paceline.engine.planner import Planner
from paceline.engine.policy import MODELS, Asks, GoOn, Want
from paceline.engine.proposal import Proposal
from paceline.engine.slot import Slot

FIRST_HOPE = 0.3  # tokens that asking a model is believed to gain before it was tried
HOPE_RATE = 0.1
PROBE_SHARE = 0.02
PROBE_LENGTH = 2
LIKELY = 0.7  # a look-up this likely to come out right as a whole is continued by the model, not doubted


class Hope:
    """What asking the model gained lately on one text, in tokens: where a look-up had an offer, and where not."""

    def __init__(self, with_offer: float = FIRST_HOPE, without: float = FIRST_HOPE) -> None:
        self.values = {True: with_offer, False: without}

    def learn(self, offered: bool, gained: float, rate: float = HOPE_RATE) -> None:
        self.values[offered] += rate * (gained - self.values[offered])

    def start(self) -> Hope:
        """Another slot's, which gives the model a chance."""
        return Hope(max(0.0, self.values[True]), max(0.0, self.values[False]))


class AutoPolicy:
    """Look-ups are asked always, they cost next to nothing; the model when it has been worth its time lately, else now
    and then (within PROBE_SHARE of all time) to see whether that changed.

    A model's draft is worth its time in two ways: as a draft, and as a second opinion on what a look-up offers.
    """

    def __init__(self, planner: Planner, beliefs: Beliefs | None = None) -> None:
        self.planner = planner
        self.beliefs = beliefs or Beliefs()
        self.off: set[str] = set()
        self._hope = Hope()
        self._hopes: dict[int, Hope] = {}
        self._seconds_probing = 0.0
        self._seconds_total = 0.0
        self._seconds_drafting = 0.0

    # -- drafting

    def propose(self, asks: Asks, wants: list[Want]) -> None:
        before = self._clock(asks)
        self.planner.face(len(wants), sum(len(want.slot.tokens) for want in wants) / len(wants))
        self._propose(asks, wants)
        self._seconds_drafting = self._clock(asks) - before

    @staticmethod
    def _clock(asks: Asks) -> float:
        """Time spent drafting so far, by everybody who is on."""
        return sum(asks.seconds(name) for name in asks.names())

    def _propose(self, asks: Asks, wants: list[Want]) -> None:
        names = asks.names()
        for name in names:
            if name not in MODELS:
                self._ask_lookup(asks, name, wants)
        for want in wants:
            want.slot.draft = self._best(want.slot)
        for name in names:
            if name in MODELS:
                self._ask_model(asks, name, wants)
        slots = [want.slot for want in wants]
        lengths = self.planner.trim([self._chances(slot, slot.draft) for slot in slots])
        for slot, n in zip(slots, lengths, strict=True):
            slot.draft.cut(n if n >= (slot.wishes.n_min or 0) else 0)

    @staticmethod
    def _ask_lookup(asks: Asks, name: str, wants: list[Want]) -> None:
        """Its draft is among the slot's offers then."""
        asked = [want for want in wants if name in want.slot.stats]
        if asked:
            asks.ask(name, [w.slot for w in asked], [w.limit for w in asked], [None] * len(asked))

    def _best(self, slot: Slot) -> Proposal:
        """The offer that is worth most; nothing where none is worth checking."""
        best, best_worth = Proposal(), 0.0
        for ahead, draft in slot.offers:
            if not ahead:
                proposal = Proposal()
                proposal.add(draft)
                worth = self._worth(slot, proposal)
                if worth > best_worth:
                    best, best_worth = proposal, worth
        return best

    def _worth(self, slot: Slot, proposal: Proposal) -> float:
        return self.planner.best_length(self._chances(slot, proposal))[1] if proposal.tokens else 0.0

    def _chances(self, slot: Slot, proposal: Proposal) -> list[float]:
        return self.beliefs.chances(slot.seq, proposal.parts, slot.offers)

    # -- the model

    def _ask_model(self, asks: Asks, name: str, wants: list[Want]) -> None:
        able = [want for want in wants if name in want.slot.stats and want.limit > 0]
        if not able or not self.planner.can_ever_pay(max(want.limit for want in able)):
            self.off.add(name)
            return
        asked = [want for want in able if self._hopeful(want)]
        probing = not asked and self._may_probe()
        if probing:
            asked = able[:1]
        if not asked:
            self.off.add(name)
            return
        self.off.discard(name)
        self._draft_with_model(asks, name, asked, probing)

    def _hopeful(self, want: Want) -> bool:
        slot = want.slot
        if self._is_likely(slot):
            reached = prod(self._chances(slot, slot.draft))
            return len(slot.draft) < want.limit and reached * self._hope_of(slot).values[False] > 0
        return self._hope_of(slot).values[bool(slot.draft.tokens)] > 0

    def _is_likely(self, slot: Slot) -> bool:
        return bool(slot.draft.tokens) and prod(self._chances(slot, slot.draft)) > LIKELY

    def _hope_of(self, slot: Slot) -> Hope:
        if slot.seq not in self._hopes:
            self._hopes[slot.seq] = self._hope.start()
        return self._hopes[slot.seq]

    def _may_probe(self) -> bool:
        return self._seconds_probing <= PROBE_SHARE * self._seconds_total

    def _draft_with_model(self, asks: Asks, name: str, asked: list[Want], probing: bool) -> None:
        """The model goes on after a likely look-up, else starts afresh and competes with it."""
        slots = [want.slot for want in asked]
        lookups = [slot.draft for slot in slots]
        checked = [self.planner.best_length(self._chances(slot, slot.draft))[0] for slot in slots]
        for slot in slots:
            slot.draft = slot.draft if self._is_likely(slot) else Proposal()
        limits = [PROBE_LENGTH if probing else want.limit - len(want.slot.draft) for want in asked]
        stops = [self._stop_rule(want.slot, name, limit) for want, limit in zip(asked, limits, strict=True)]
        before = asks.seconds(name)
        drafts = asks.ask(name, slots, limits, stops)
        seconds = (asks.seconds(name) - before) / len(asked)
        if probing:
            self._seconds_probing += seconds
        for slot, draft, lookup, n in zip(slots, drafts, lookups, checked, strict=True):
            self._compare(slot, draft, lookup, n, seconds)

    def _compare(self, slot: Slot, draft: Draft, lookup: Proposal, n_checked: int, seconds: float) -> None:
        """Keep the better proposal, and note what asking was worth: over checking what would have been checked."""
        without = self.planner.worth(self._chances(slot, lookup)[:n_checked])
        offered = bool(lookup.tokens) and lookup is not slot.draft
        if lookup is slot.draft:
            slot.draft.add(draft)
        else:
            slot.draft = self._best(slot)
        gained = self._worth(slot, slot.draft) - without - self.planner.rate * seconds
        self._hope_of(slot).learn(offered, gained)
        self._hope.learn(offered, gained, HOPE_RATE / 4)

    def _stop_rule(self, slot: Slot, name: str, limit: int) -> GoOn:
        """For the model, token by token: can going on still pay?"""
        ahead = list(slot.draft.parts)
        n_ahead = len(slot.draft)
        mean = self.beliefs.of(name)[ALONE].mean

        def go_on(draft: Draft) -> bool:
            reached = prod(self.beliefs.chances(slot.seq, [*ahead, draft], slot.offers))
            return self.planner.pays_to_go_on(reached, mean, n_ahead + len(draft), limit - len(draft))

        return go_on

    # -- learning

    def settled(self, slot: Slot, emitted: Sequence[int]) -> None:
        self.beliefs.learn(slot.seq, slot.offers, emitted)

    def ended(self, slot: Slot) -> None:
        self._hopes.pop(slot.seq, None)
        self.beliefs.forget(slot.seq)

    def spent(self, n_tokens: int, n_emitted: int, seconds: float) -> None:
        """A batch of generating slots was computed; drafting for it took what `propose` measured."""
        self.planner.observe(n_tokens, n_emitted, seconds, self._seconds_drafting)
        self._seconds_total += seconds + self._seconds_drafting
        self._seconds_drafting = 0.0
