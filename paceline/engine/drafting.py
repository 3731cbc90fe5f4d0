"""Asking the drafters on behalf of the slots. Knows which drafter a request wants and keeps their records.

The first non-empty draft wins, in the registry's order; what a grammar forces, and a short look-up, may be continued. A
drafter that fails is switched off with one warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from paceline.config import SamplingParams, SpeculativeParams
from paceline.drafters.base import Ask, Draft, Drafter, Noise
from paceline.engine.planner import FixedPlanner
from paceline.engine.proposal import Proposal
from paceline.engine.slot import Slot
from paceline.engine.stats import DrafterStats

log = logging.getLogger("paceline")

CONTINUERS = frozenset({"draft-simple"})
SHORT = 4  # a look-up draft of fewer tokens is worth continuing with a model


class Drafting:
    """All drafters of the engine."""

    def __init__(self, drafters: Sequence[Drafter], planner: FixedPlanner) -> None:
        self.drafters = list(drafters)
        self.planner = planner
        self.stats = {drafter.name: DrafterStats(drafter.name) for drafter in drafters}

    def begin(self, slot: Slot) -> None:
        slot.stats = {name: DrafterStats(name) for name in self._wanted(slot)}
        for drafter in self._of(slot):
            with self._guard(drafter), self._timed(drafter, [slot], "begin_ms"):
                drafter.begin(slot.seq, slot.tokens)

    def propose(self, slots: list[Slot], rooms: list[int]) -> None:
        """Give each slot something to check, where anybody has an idea. `rooms` are the most each may have."""
        limits = {}
        for slot, room in zip(slots, rooms, strict=True):
            slot.draft = Proposal()
            limit = self.planner.limit(wishes_of(slot), room)
            if limit > 0 and slot.stats:
                limits[slot.seq] = limit
        open_slots = [slot for slot in slots if slot.seq in limits]
        for drafter in list(self.drafters):
            asked = [slot for slot in open_slots if wants(slot, drafter.name, limits[slot.seq])]
            if asked:
                self._ask(drafter, asked, limits)
        for slot in open_slots:
            self.planner.trim(wishes_of(slot), slot.draft, limits[slot.seq])

    def _ask(self, drafter: Drafter, slots: list[Slot], limits: dict[int, int]) -> None:
        asks = [ask_for(slot, limits[slot.seq] - len(slot.draft)) for slot in slots]
        with self._guard(drafter), self._timed(drafter, slots, "draft_ms"):
            for slot, ask, draft in zip(slots, asks, drafter.draft(asks), strict=True):
                slot.draft.add(allowed(draft, ask))
        for slot in slots:
            slot.stats[drafter.name].n_calls += 1
        self.stats[drafter.name].n_calls += len(slots)

    def accepted(self, slot: Slot, n_accepted: int) -> None:
        """The slot's proposal was checked."""
        for draft, n_right, reached in slot.draft.outcome(n_accepted):
            slot.stats[draft.source].count(len(draft), n_right)
            self.stats[draft.source].count(len(draft), n_right)
            drafter = next((d for d in self.drafters if d.name == draft.source), None)
            if drafter and reached:
                with self._guard(drafter), self._timed(drafter, [slot], "accept_ms"):
                    drafter.accept(slot.seq, draft, n_right)

    def end(self, slot: Slot) -> None:
        for drafter in self._of(slot):
            with self._guard(drafter):
                drafter.end(slot.seq, slot.tokens)

    def close(self) -> None:
        for drafter in self.drafters:
            with self._guard(drafter):
                drafter.close()

    def _wanted(self, slot: Slot) -> list[str]:
        types = wishes_of(slot).types
        return [d.name for d in self.drafters if types is None or d.name in types]

    def _of(self, slot: Slot) -> list[Drafter]:
        return [drafter for drafter in self.drafters if drafter.name in slot.stats]

    @contextmanager
    def _guard(self, drafter: Drafter) -> Iterator[None]:
        """Drafting is a luxury: whatever goes wrong in it must not reach a request."""
        try:
            yield
        except Exception:
            log.warning("drafter %s failed and is switched off", drafter.name, exc_info=True)
            self.drafters = [d for d in self.drafters if d is not drafter]

    @contextmanager
    def _timed(self, drafter: Drafter, slots: list[Slot], name: str) -> Iterator[None]:
        start = perf_counter()
        yield
        ms = 1e3 * (perf_counter() - start)
        add_ms(self.stats[drafter.name], name, ms)
        for slot in slots:
            add_ms(slot.stats[drafter.name], name, ms / len(slots))


def add_ms(stats: DrafterStats, name: str, ms: float) -> None:
    setattr(stats, name, getattr(stats, name) + ms)


def wishes_of(slot: Slot) -> SpeculativeParams:
    assert slot.request
    return slot.request.speculative


def ask_for(slot: Slot, n_max: int) -> Ask:
    assert slot.request and slot.sampler
    request = slot.request
    noise = noise_of(request.sampling, slot.sampler.seed)
    return Ask(slot.seq, slot.tokens, n_max, request.speculative.p_min, noise, slot.draft.tokens, request.grammar)


def wants(slot: Slot, drafter: str, limit: int) -> bool:
    """Whether to ask this drafter: it is on for the slot, and nobody before it has said enough."""
    n = len(slot.draft)
    if drafter not in slot.stats or n >= limit:
        return False
    if drafter in CONTINUERS and n < SHORT:
        return True
    return all(part.source == "grammar" for part in slot.draft.parts)


def allowed(draft: Draft, ask: Ask) -> Draft:
    """Cut at the first token that the grammar forbids."""
    if ask.grammar is None or not draft.tokens:
        return draft
    n = ask.grammar.n_valid([*ask.ahead, *draft.tokens]) - len(ask.ahead)
    return draft if n >= len(draft) else draft.cut(max(0, n))


def noise_of(params: SamplingParams, seed: int) -> Noise | None:
    """What a draft model needs to draw as this request will; None when it is greedy."""
    if params.temperature <= 0 or params.mirostat:
        return None
    return Noise(seed, params.temperature, params.top_k, params.top_p, params.min_p)
