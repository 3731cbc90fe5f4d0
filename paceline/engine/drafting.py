"""Asking the drafters on behalf of the slots. Knows which drafter a request wants and keeps their records.

Whom to ask is the policy's business. A drafter that fails is switched off with one warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from paceline.config import SamplingParams
from paceline.drafters.base import Costs, Draft, Drafter, DraftRequest, Noise
from paceline.drafters.proposal import Proposal
from paceline.engine.readers import Readers, TargetRows
from paceline.engine.scheduler import Work
from paceline.engine.slot import Slot
from paceline.engine.stats import DrafterStats
from paceline.planner.base import DraftBudget, Drafted, Policy, ShouldContinue

log = logging.getLogger("paceline")


class Drafting:
    """All drafters of the engine, and the policy that chooses among them."""

    def __init__(
        self,
        drafters: Sequence[Drafter],
        policy: Policy,
        eog: frozenset[int] = frozenset(),
        rows: TargetRows | None = None,
    ) -> None:
        """`eog` are the tokens that end a text: drafts are cut after them. `rows` are what the target hands out, where
        a drafter reads them."""
        self._eog = eog
        self.drafters = {drafter.name: drafter for drafter in drafters}
        self._costs: dict[str, Costs | None] = {drafter.name: drafter.costs for drafter in drafters}
        self._readers = Readers(drafters, rows)
        self._adapters: dict[tuple[str, int], str | None] = {}  # with which its rows were computed
        self._slots: dict[int, Slot] = {}
        self.policy = policy
        self.stats = {drafter.name: DrafterStats(drafter.name) for drafter in drafters}

    def begin(self, slot: Slot) -> None:
        types = slot.speculative.types
        grammar = slot.active.grammar if slot.active else None
        wanted = [name for name, d in self.drafters.items() if (types is None or name in types) and d.can_help(grammar)]
        slot.stats = {name: DrafterStats(name) for name in wanted}
        self.policy.begin(slot.seq, sampled=slot.request.sampling.temperature > 0)
        self.open_text(slot)

    def open_text(self, slot: Slot) -> None:
        """What the drafters have to go by is the slot's tokens as they are now."""
        for name in self._wanted(slot):
            with self._guard(name), self._timed(name, slot, "begin_ms"):
                self._forget_others(self.drafters[name], slot)
                self.drafters[name].begin(slot.seq, slot.tokens)

    def _forget_others(self, drafter: Drafter, slot: Slot) -> None:
        """Rows that were computed with other adapters are not those of this text."""
        if drafter.reads_target and self._adapters.get((drafter.name, slot.seq)) != slot.adapter:
            drafter.begin(slot.seq, ())
            self._adapters[drafter.name, slot.seq] = slot.adapter

    def close_text(self, slot: Slot) -> None:
        for name in self._wanted(slot):
            with self._guard(name):
                self.drafters[name].end(slot.seq, slot.tokens)

    def _wanted(self, slot: Slot) -> list[str]:
        return [name for name in slot.stats if name in self.drafters]

    @property
    def rests(self) -> bool:
        return not self.drafters or self.policy.rests

    def propose(self, slots: list[Slot], rooms: list[int]) -> None:
        self._slots = {slot.seq: slot for slot in slots}
        budgets = [self._budget(slot, room) for slot, room in zip(slots, rooms, strict=True)]
        if any(budget.limit > 0 for budget in budgets):
            self.policy.propose(self, budgets)
        for budget in budgets:
            budget.slot.draft.cut(max(0, budget.limit))

    def _budget(self, slot: Slot, room: int) -> DraftBudget:
        slot.draft = Proposal()
        slot.candidates.clear()
        speculative = slot.speculative
        limit = room if speculative.n_max is None else min(room, speculative.n_max)
        known = self.drafters
        sources = [name for name in slot.stats if name in known and known[name].is_ready(slot.seq, slot.tokens)]
        return DraftBudget(
            slot, limit if sources else 0, sources, len(slot.tokens), speculative.n_min or 0, slot.n_left
        )

    # -- what policies ask for

    def names(self) -> list[str]:
        """Drafters that are on, in the registry's order."""
        return list(self.drafters)

    def continues(self, name: str) -> bool:
        return self._costs[name] is not None and not self._block(name)

    def _block(self, name: str) -> int:
        return self.drafters[name].block if name in self.drafters else 0

    def token_seconds(self, name: str, n_slots: int) -> float:
        costs = self._costs[name]
        return costs.predict(n_slots) / n_slots if costs is not None and not self._block(name) else 0.0

    def question_seconds(self, name: str, n_slots: int) -> float:
        costs = self._costs[name]
        if costs is None:
            return 0.0
        block = self._block(name)
        return costs.predict(block * n_slots) / n_slots if block else 2 * self.token_seconds(name, n_slots)

    def clock(self) -> float:
        return perf_counter()

    def ask(
        self, name: str, drafted: Sequence[Drafted], limits: Sequence[int], rules: Sequence[ShouldContinue | None]
    ) -> list[Draft]:
        """One drafter's drafts for these slots, each going on after what the slot's proposal has already."""
        start = perf_counter()
        slots = [self._slots[each.seq] for each in drafted]
        requests = [draft_request(slot, limit, rule) for slot, limit, rule in zip(slots, limits, rules, strict=True)]
        try:
            found = self.drafters[name].draft(requests)
            drafts = [self._cut(draft, request) for draft, request in zip(found, requests, strict=True)]
        except Exception:
            self._switch_off(name)
            drafts = [Draft(source=name) for _ in slots]
        ms = 1e3 * (perf_counter() - start)
        for slot, draft in zip(slots, drafts, strict=True):
            slot.stats[name].asked(1, ms / len(slots))
            if draft.tokens:
                slot.candidates.append(draft)
        self.stats[name].asked(len(slots), ms)
        return drafts

    def _cut(self, draft: Draft, request: DraftRequest) -> Draft:
        """Nothing comes after the end of a text, and nothing that the grammar forbids."""
        draft.before = (request.ahead or request.tokens)[-1]
        if not self._eog.isdisjoint(draft.tokens):
            draft = draft.cut(next(i for i, token in enumerate(draft.tokens, start=1) if token in self._eog))
        return allowed(draft, request)

    # -- what became of it

    def prepare(self, works: Sequence[Work]) -> None:
        """A batch is about to be computed."""
        self._readers.prepare(works, lambda name: name in self.drafters and self.policy.expects(self, name))

    def observe(self, work: Work) -> None:
        """It was: drafters that read the target hear of it."""
        for reader in self._readers.who_hears(work):
            if reader.name in self._wanted(work.slot):
                with self._guard(reader.name):
                    self._readers.tell(reader, work)

    def settled(self, slot: Slot, n_accepted: int, emitted: Sequence[int]) -> None:
        """The slot's proposal was checked and the text went on with these tokens."""
        self.policy.settled(slot, emitted)
        for draft, n_right, reached in slot.draft.outcome(n_accepted):
            slot.stats[draft.source].count(len(draft), n_right)
            self.stats[draft.source].count(len(draft), n_right)
            if reached and draft.source in self.drafters:
                with self._guard(draft.source), self._timed(draft.source, slot, "accept_ms"):
                    self.drafters[draft.source].accept(slot.seq, draft, n_right)

    def end(self, slot: Slot) -> None:
        self.policy.end(slot.seq)
        self.close_text(slot)

    def close(self) -> None:
        for name in list(self.drafters):
            with self._guard(name):
                self.drafters[name].close()

    @contextmanager
    def _guard(self, name: str) -> Iterator[None]:
        """Drafting is a luxury: whatever goes wrong in it must not reach a request."""
        try:
            yield
        except Exception:
            self._switch_off(name)

    def _switch_off(self, name: str) -> None:
        log.warning("drafter %s failed and is switched off", name, exc_info=True)
        self.drafters.pop(name, None)

    @contextmanager
    def _timed(self, name: str, slot: Slot, field: str) -> Iterator[None]:
        start = perf_counter()
        yield
        ms = 1e3 * (perf_counter() - start)
        for stats in (self.stats[name], slot.stats[name]):
            setattr(stats, field, getattr(stats, field) + ms)


def draft_request(slot: Slot, n_max: int, rule: ShouldContinue | None) -> DraftRequest:
    assert slot.active and slot.sampler
    request = slot.request
    return DraftRequest(
        slot.seq,
        slot.tokens,
        n_max,
        slot.speculative.p_min,
        noise_of(request.sampling, slot.sampler.seed),
        slot.draft.tokens,
        slot.active.grammar,
        rule,
        slot.n_left,
        slot.n_dropped,
    )


def allowed(draft: Draft, request: DraftRequest) -> Draft:
    """Cut at the first token that the grammar forbids; to nothing where it fails, which its own request will hear."""
    if request.grammar is None or not draft.tokens:
        return draft
    try:
        n = request.grammar.n_valid([*request.ahead, *draft.tokens]) - len(request.ahead)
    except Exception:
        n = 0
    return draft if n >= len(draft) else draft.cut(max(0, n))


def noise_of(params: SamplingParams, seed: int) -> Noise | None:
    """What a draft model needs to draw as this request will; None when it is greedy."""
    if params.temperature <= 0 or params.mirostat:
        return None
    return Noise(seed, params.temperature, params.top_k, params.top_p, params.min_p)
