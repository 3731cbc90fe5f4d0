"""The policy that lets every draft token earn its place. Joins beliefs to costs; never sees token values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt

from paceline.drafters.base import Draft
from paceline.drafters.grammar import GrammarDrafter
from paceline.engine.beliefs import ALONE, Beliefs
from paceline.engine.planner import Planner
from paceline.engine.policy import MODELS, Asks, GoOn, Want
from paceline.engine.proposal import Proposal
from paceline.engine.slot import Slot

COMMON_RATE = 0.05
FAITH = 5.0  # what other texts say of asking the model counts like so many tries on this one
MEMORY = 20.0  # tries, with those, that count
FADING = 0.99  # of what is known of a text, per step without asking
ENOUGH = 0.03  # tokens that asking must promise
DOUBT = 0.1  # tokens per try, by which one text differs from others
MOST = 0.5  # tokens that one try counts for, gained or lost: seldom ones are far larger
POOR = 0.1  # share of tokens a model and the target agree on, under which it is no use
UNTRIED = 0.1  # tokens that a model must promise before it is first tried
PROBE_SHARE = 0.008  # of all time for tries that may well pay but so far do not; less with several slots
PROBE_MOST = 3.0  # steps that can be saved up for them
WORTH_RATE = 0.1
LEAN = 0.04  # tokens: where look-ups are worth less on average, which is what asking and weighing them costs, they rest
REST = 3  # they are asked at every third step then: the text may begin to repeat itself
WORTHY = 0.2  # a look-up worth more than this, in tokens, needs no second opinion
LIKELY = 0.7  # a look-up this likely to come out right as a whole is continued by the model, not doubted


@dataclass(slots=True)
class Try:
    """The model was asked, where a look-up had a doubtful offer or not, and this must be gained to make up for it."""

    offered: bool
    price: float


@dataclass(slots=True)
class Choice:
    """What a slot may check next: a proposal, each token's chance, and how far and for what gain checking it pays."""

    proposal: Proposal
    chances: list[float]
    n: int = 0
    worth: float = 0.0
    tried: Try | None = None

    @property
    def is_likely(self) -> bool:
        return bool(self.chances) and prod(self.chances) > LIKELY

    @property
    def is_doubtful(self) -> bool:
        return bool(self.chances) and not self.is_likely


class Hope:
    """What asking the model gains on one text, in tokens: where a look-up has an offer, and where not.

    Starts from what it gained on other texts, which counts like FAITH tries, and is the less sure the fewer it has
    seen of this one.
    """

    def __init__(self, values: dict[bool, float]) -> None:
        self.values = dict(values)
        self.n_asked = {True: 0.0, False: 0.0}

    @property
    def is_new(self) -> bool:
        return not any(self.n_asked.values())

    def learn(self, offered: bool, gained: float) -> None:
        self.n_asked[offered] = min(self.n_asked[offered] + 1, MEMORY - FAITH)
        self.values[offered] += (gained - self.values[offered]) / (FAITH + self.n_asked[offered])

    def fade(self) -> None:
        """A step without asking: the text may be changing."""
        for offered in self.values:
            self.n_asked[offered] *= FADING
            self.values[offered] *= FADING

    def at_best(self, offered: bool) -> float:
        """What it may well be, for all that is known."""
        return self.values[offered] + DOUBT / sqrt(1 + self.n_asked[offered] / FAITH)


class AutoPolicy:
    """Look-ups cost next to nothing and are asked always, or at every third step of a text where they never help; the
    model when asking is worth its time on this text, or may be for all that is known: then within PROBE_SHARE of all
    time.

    A model's draft is worth its time in two ways: as a draft, and as a second opinion on a doubtful look-up.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.beliefs = Beliefs()
        self.off: set[str] = set()
        self.agreement: float | None = None
        self._common: dict[bool, float] = {}
        self._hopes: dict[int, Hope] = {}
        self._worths: dict[int, float] = {}
        self._turn = 0
        self._idle = False  # nobody had anything to offer last time
        self._seconds_for_probes = 0.0
        self._seconds_drafting = 0.0

    # -- drafting

    def propose(self, asks: Asks, wants: list[Want]) -> None:
        self._turn = (self._turn + 1) % REST
        self.planner.face(len(wants), sum(len(want.slot.tokens) for want in wants) / len(wants))
        if self._idle and all(self._rests(want.slot) for want in wants):
            return
        before = self._clock(asks)
        lookups = self._look_up(asks, wants)
        choices = self._ask_models(asks, wants, lookups)
        lengths = [choice.n for choice in choices]
        if len(choices) > 1 and any(lengths):
            lengths = self.planner.trim([choice.chances[: choice.n] for choice in choices])
        for want, choice, n in zip(wants, choices, lengths, strict=True):
            want.slot.draft = choice.proposal
            want.slot.draft.cut(n if n >= (want.slot.wishes.n_min or 0) else 0)
            if choice.tried:
                self._judge(want.slot, choice, choice.tried, n)
        self._weigh(wants, lookups, lengths)
        self._idle = not any(lengths) and self._nobody_may_offer(asks, wants)
        self._seconds_drafting = self._clock(asks) - before

    def _nobody_may_offer(self, asks: Asks, wants: list[Want]) -> bool:
        """But look-ups, which say for each text when they rest."""
        models_are_off = all(name in self.off for name in asks.names() if name in MODELS)
        return models_are_off and not any(GrammarDrafter.name in want.slot.stats for want in wants)

    @staticmethod
    def _clock(asks: Asks) -> float:
        """Time spent drafting so far, by everybody who is on."""
        return sum(asks.seconds(name) for name in asks.names())

    # -- look-ups

    def _look_up(self, asks: Asks, wants: list[Want]) -> list[Choice]:
        for name in asks.names():
            if name not in MODELS:
                self._ask_lookup(asks, name, wants)
        return [self._best(want.slot) for want in wants]

    def _weigh(self, wants: list[Want], lookups: list[Choice], lengths: list[int]) -> None:
        """What look-ups are worth on each text: nothing where the batch as a whole has no room for them."""
        for want, lookup, n in zip(wants, lookups, lengths, strict=True):
            if not self._rests(want.slot):
                worth = self._worths.get(want.slot.seq, WORTHY)
                found = min(1.0, lookup.worth) if n else 0.0
                self._worths[want.slot.seq] = worth + WORTH_RATE * (found - worth)

    def _ask_lookup(self, asks: Asks, name: str, wants: list[Want]) -> None:
        """Its draft is among the slot's offers then."""
        asked = [want for want in wants if name in want.slot.stats]
        if name != GrammarDrafter.name:
            asked = [want for want in asked if not self._rests(want.slot)]
        if asked:
            asks.ask(name, [w.slot for w in asked], [w.limit for w in asked], [None] * len(asked))

    def _rests(self, slot: Slot) -> bool:
        return self._turn > 0 and self._worths.get(slot.seq, WORTHY) < LEAN

    def _best(self, slot: Slot) -> Choice:
        """The offer that is worth most; nothing where none is worth checking."""
        best = Choice(Proposal(), [])
        for ahead, draft in slot.offers:
            if not ahead:
                choice = self._weighed(slot, Proposal([draft], list(draft.tokens)))
                best = choice if choice.worth > best.worth else best
        return best

    def _weighed(self, slot: Slot, proposal: Proposal) -> Choice:
        chances = self.beliefs.chances(slot.seq, proposal.parts, slot.offers)
        return Choice(proposal, chances, *self.planner.best_length(chances))

    # -- the model

    def _ask_models(self, asks: Asks, wants: list[Want], lookups: list[Choice]) -> list[Choice]:
        choices = list(lookups)
        for name in asks.names():
            if name in MODELS:
                self._ask_model(asks, name, wants, choices)
        return choices

    def _ask_model(self, asks: Asks, name: str, wants: list[Want], choices: list[Choice]) -> None:
        """Where it is hoped to gain something, put its choice in place of the look-up's."""
        able = [i for i, want in enumerate(wants) if name in want.slot.stats and want.limit > 0]
        if not able or not self.planner.can_ever_pay(max(wants[i].limit for i in able)):
            self.off.add(name)
            return
        asked = [i for i in able if self._hope(wants[i], choices[i]) > ENOUGH]
        if not asked and self._seconds_for_probes > 0:
            asked = [i for i in able if self._hope(wants[i], choices[i], at_best=True) > ENOUGH][:1]
        for i in set(able) - set(asked):
            self._hope_of(wants[i].slot).fade()
        if not asked:
            self.off.add(name)
            return
        self.off.discard(name)
        found = self._draft_with_model(asks, name, [wants[i] for i in asked], [choices[i] for i in asked])
        for i, choice in zip(asked, found, strict=True):
            choices[i] = choice

    def _hope(self, want: Want, choice: Choice, *, at_best: bool = False) -> float:
        """What asking gains, as far as is known; or may well gain."""
        offered = choice.is_doubtful
        if (offered and choice.worth > WORTHY) or (choice.is_likely and len(choice.proposal) >= want.limit):
            return 0.0
        hope = self._hope_of(want.slot)
        return hope.at_best(offered) if at_best else hope.values[offered]

    def _hope_of(self, slot: Slot) -> Hope:
        if slot.seq not in self._hopes:
            self._hopes[slot.seq] = Hope(self._common_hope)
        return self._hopes[slot.seq]

    @property
    def _common_hope(self) -> dict[bool, float]:
        """Of all texts so far; at first what costs and agreement let expect."""
        if not self._common:
            prospect = self.planner.prospect(self.agreement) - UNTRIED
            self._common = {True: prospect, False: prospect}
        return self._common

    def _draft_with_model(self, asks: Asks, name: str, asked: list[Want], lookups: list[Choice]) -> list[Choice]:
        """The model goes on after a likely look-up, else starts afresh and competes with it."""
        slots = [want.slot for want in asked]
        limits, stops = [], []
        for want, lookup in zip(asked, lookups, strict=True):
            want.slot.draft = lookup.proposal if lookup.is_likely else Proposal()
            limits.append(want.limit - len(want.slot.draft))
            stops.append(self._stop_rule(want.slot, name, limits[-1]))
        before = asks.seconds(name)
        drafts = asks.ask(name, slots, limits, stops)
        seconds = (asks.seconds(name) - before) / len(asked)
        return [self._compared(*which, seconds) for which in zip(slots, drafts, lookups, strict=True)]

    def _compared(self, slot: Slot, draft: Draft, lookup: Choice, seconds: float) -> Choice:
        """The better choice, now that there is a second opinion; and its price: what checking the look-up was worth
        without it, and the time it took. The first time includes reading the prompt, which is not counted."""
        again = self._weighed(slot, lookup.proposal)
        without = self.planner.worth(again.chances[: lookup.n])
        hope, offered = self._hope_of(slot), lookup.is_doubtful
        if hope.values[offered] <= ENOUGH:
            self._seconds_for_probes -= seconds
        if offered or not lookup.chances:
            choice = self._best(slot)
        else:
            lookup.proposal.add(draft)
            choice = self._weighed(slot, lookup.proposal)
        choice.tried = Try(offered, without + (0.0 if hope.is_new else self.planner.rate * seconds))
        return choice

    def _judge(self, slot: Slot, choice: Choice, tried: Try, n: int) -> None:
        """What asking the model gained, now that so many tokens of the slot are going to be checked."""
        worth = choice.worth if n == choice.n else self.planner.worth(choice.chances[:n])
        gained = max(-MOST, min(MOST, worth - tried.price))
        self._hope_of(slot).learn(tried.offered, gained)
        self._common_hope[tried.offered] += COMMON_RATE * (gained - self._common_hope[tried.offered])

    def _stop_rule(self, slot: Slot, name: str, limit: int) -> GoOn:
        """For the model, token by token: can going on still pay?"""
        n_ahead = len(slot.draft)
        mean = self.beliefs.of(name)[ALONE].mean
        reached = prod(self.beliefs.chances(slot.seq, slot.draft.parts, slot.offers))
        chance = self.beliefs.chance_by_token(slot.seq, name, slot.draft.tokens, slot.offers)

        def go_on(draft: Draft) -> bool:
            nonlocal reached
            reached *= chance(draft.tokens[-1], draft.confidence[-1])
            return self.planner.pays_to_go_on(reached, mean, n_ahead + len(draft), limit - len(draft))

        return go_on

    # -- learning

    def hear(self, name: str, opinions: Sequence[tuple[float, bool]]) -> None:
        """How sure the model was of a stranger's words before any request, and whether the target agreed. The target's
        own are easier to guess, so only a poor model's confidence is corrected by that."""
        if not opinions:
            return
        self.agreement = sum(right for _, right in opinions) / len(opinions)
        if self.agreement < POOR:
            for confidence, right in opinions:
                self.beliefs.of(name)[ALONE].learn(confidence, right=right)

    def settled(self, slot: Slot, emitted: Sequence[int]) -> None:
        self.beliefs.learn(slot.seq, slot.offers, emitted)

    def ended(self, slot: Slot) -> None:
        self._hopes.pop(slot.seq, None)
        self._worths.pop(slot.seq, None)
        self.beliefs.forget(slot.seq)

    def spent(self, n_tokens: int, n_emitted: int, seconds: float) -> None:
        """A batch of generating slots was computed; drafting for it took what `propose` measured."""
        self.planner.observe(n_tokens, n_emitted, seconds, self._seconds_drafting)
        share = PROBE_SHARE / self.planner.n_slots
        earned = self._seconds_for_probes + share * (seconds + self._seconds_drafting)
        self._seconds_for_probes = min(earned, PROBE_MOST * self.planner.plain_seconds)
        self._seconds_drafting = 0.0
