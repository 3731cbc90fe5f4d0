"""The engine: requests in, events out, one `step()` at a time. Knows tokens, never text. One thread only."""

from __future__ import annotations

from time import perf_counter
from typing import Protocol

import numpy as np

from paceline.config import MIB, EngineParams
from paceline.drafters.base import Draft
from paceline.drafters.proposal import Proposal
from paceline.engine.active import ActiveRequest
from paceline.engine.admission import Admission
from paceline.engine.drafting import Drafting
from paceline.engine.endings import Endings
from paceline.engine.exactness import Layout
from paceline.engine.memory import Cells, Memory
from paceline.engine.prompt_cache import PromptCache
from paceline.engine.request import Emitted, Limits, Request
from paceline.engine.scheduler import Queue, Scheduler, Work
from paceline.engine.slot import Slot
from paceline.engine.synthetic import Synthetic
from paceline.engine.verify import verify
from paceline.errors import ContextFull, DecodeError, NoNumbers
from paceline.llama.context import Batch
from paceline.llama.lib import Floats
from paceline.llama.model import Vocab
from paceline.llama.sampler import Sampler

AGAIN = "again"  # the source of tokens that an earlier engine has written
ENDLESS = 2**20  # tokens, where neither the request nor the context ends a text
KEPT = 3  # quarters of a full context, at most: less than a quarter to go on with would be full again at once
NO_ROWS: Floats = np.zeros((0, 0), np.float32)


class Target(Cells, Protocol):
    """What the engine needs of the target's context: the seam a fake fits into."""

    n_ctx_seq: int
    n_batch: int
    n_ubatch: int
    n_seqs: int
    n_vocab: int
    kv_unified: bool

    def new_batch(self) -> Batch: ...
    def decode(self, batch: Batch) -> Floats: ...
    def use_adapters(self, scales: str | None) -> None: ...


class Core:
    """Slots of one target, drafted for, verified and emitted together; in exact mode by a layout of batches."""

    def __init__(
        self, target: Target, vocab: Vocab, drafting: Drafting, params: EngineParams, layout: Layout | None = None
    ) -> None:
        self.target = target
        self.vocab = vocab
        self.drafting = drafting
        self.layout = layout
        self.exact = layout is not None
        self.n_room = layout.room(target.n_ctx_seq) if layout else target.n_ctx_seq
        self.shifts, self.n_keep = params.context_shift, params.n_keep
        self.slots = slots = [Slot(seq) for seq in range(target.n_seqs)]
        self.memory = memory_of(target, slots, params, border=target.n_ubatch if layout else 1)
        self.scheduler = Scheduler(target.n_batch, target.n_ubatch, layout, snapshots=bool(target.n_rollback))
        self.queue = Queue()
        self.endings = Endings(slots, self.memory, self.queue, drafting)
        self.admission = Admission(slots, self.queue, self.memory, drafting, self.endings, self._sampler)
        self.n_steps = 0
        self.n_busy = 0  # slots at work, over all steps
        self.seconds = 0.0  # spent in steps that went on with an answer
        self._spoilt = False  # by logits that are no numbers
        self._synthetic = Synthetic.of(params)
        self._batch = target.new_batch()
        self._eog = vocab.eog

    @property
    def busy(self) -> bool:
        return bool(len(self.queue)) or any(slot.busy for slot in self.slots)

    @property
    def n_finished(self) -> int:
        return self.endings.n_finished

    @property
    def limits(self) -> Limits:
        return Limits(self.n_room, self.vocab.n_tokens, len(self.slots))

    def submit(self, active: ActiveRequest) -> None:
        """Queue a request that is within the limits; its events come from `step()`."""
        self.limits.check(active.request)
        self.queue.push(active)

    def _sampler(self, request: Request) -> Sampler:
        return Sampler(self.vocab, request.sampling, self.target.n_ctx_seq)

    def step(self) -> None:
        """One round for everybody: admit, draft and plan, then for each batch decode, verify, commit and emit."""
        start = perf_counter()
        generating = any(slot.generating for slot in self.slots)
        self.admission.admit()
        self.n_busy += sum(slot.busy for slot in self.slots)
        self.draft()
        n_prompt = sum(self.compute(works) for works in self.scheduler.lay_out(self.slots))
        self.n_steps += 1
        if generating:
            seconds = perf_counter() - start
            self.seconds += seconds
            self.scheduler.prompts.observe(n_prompt, seconds)

    def compute(self, works: list[Work]) -> int:
        """One batch: decode, verify, commit, emit; then the planner hears what it cost. Returns how much of prompts it
        had."""
        start, before = perf_counter(), self.memory.checkpoints.seconds
        works = [work for work in works if work.slot.busy]  # one of the batch before may have made them pause
        n_prompt = sum(len(work.tokens) for work in works if work.slot.known or not work.slot.generating)
        drafted = [len(work.slot.draft) for work in works if work.slot.draft.tokens]
        self._pad(works, alone=not n_prompt)
        rows = self.decode(works)
        n_emitted = sum(self.commit(work, rows) for work in works)
        if self._spoilt:
            self.admission.start_afresh()
            self._spoilt = False
        size, policy, taking_back = self._batch.n_tokens, self.drafting.policy, self.memory.checkpoints.seconds - before
        if works and n_prompt:
            policy.passed(size)
        elif works:
            if taking_back and drafted:
                policy.took_back(len(drafted), taking_back, sum(work.slot.n_again for work in works))
            policy.observe_step(size, n_emitted, sum(drafted), perf_counter() - start - taking_back)
        return n_prompt

    # -- draft and plan

    def draft(self) -> None:
        generating = [slot for slot in self.slots if slot.generating]
        if self.drafting.rests and not any(slot.known for slot in generating):
            return
        room = self.scheduler.draft_room(len(generating), sum(slot.n_again for slot in generating))
        slots = [slot for slot in generating if not self._repeat(slot, room)]
        if slots:
            self.drafting.propose(slots, [self._n_drafts(slot, room) for slot in slots])
        n_drafted = sum(len(slot.draft) for slot in generating)
        if n_drafted and self.memory.make_room(n_drafted + self._n_pending):
            for slot in generating:
                slot.draft = Proposal()

    @property
    def _n_pending(self) -> int:
        """Tokens of all slots that are to be computed, beside drafts."""
        return sum(len(slot.tokens) - slot.n_computed for slot in self.slots if slot.busy)

    def _repeat(self, slot: Slot, room: int) -> bool:
        """What is known to come is the draft, where there is such: its batches are those it would be written by."""
        if slot.known:
            slot.draft = Proposal()
            slot.draft.add(Draft(slot.known[: max(0, self._n_drafts(slot, room))], AGAIN))
        return bool(slot.known)

    def _n_drafts(self, slot: Slot, room: int) -> int:
        """The longest draft for the slot, where the batch has this much room; none before all is computed again."""
        if slot.n_again:
            return 0
        room = min(room, self._n_left(slot) - 1, self.n_room - len(slot.tokens) - 1)
        return min(room, self.layout.n_drafts(slot.n_computed)) if self.layout else room

    def _n_left(self, slot: Slot) -> int:
        """Tokens the request may still write, by its own limit and by the context, unless that makes room again."""
        limit = slot.request.max_tokens
        left = (ENDLESS if limit is None else limit) - slot.n_generated
        return left if self.shifts else min(left, self.n_room - len(slot.tokens))

    # -- decode

    def decode(self, works: list[Work]) -> Floats:
        """Logits of the batch. Work that could not be computed is taken out of the list; its requests have failed."""
        works[:] = self._that_fit(works)
        if not works:
            return NO_ROWS
        batch, checkpoints = self._batch, self.memory.checkpoints
        batch.clear()
        self.target.use_adapters(works[0].slot.adapter)
        self.drafting.prepare(works)
        for work in works:
            padded, work.start, work.first = work.padded(), work.slot.n_computed, batch.n_tokens
            work.row = batch.add(work.slot.seq, padded.tokens, work.slot.n_computed, padded.n_outputs)
        try:
            for work in works:
                checkpoints.take(work.slot.seq, work.slot.n_computed, len(work.slot.draft))
            return self.target.decode(batch)
        except DecodeError as error:
            for work in works:
                self.endings.fail(work.slot, error)
            works.clear()
            return NO_ROWS

    def _pad(self, works: list[Work], *, alone: bool) -> None:
        """In exact mode as the layout wants it; else, without prompts, to a size whose graph is warm, if there is room.
        The rows are never looked at."""
        if self.layout:
            for work in works:
                work.n_padding = self.layout.padded(len(work.tokens)) - len(work.tokens)
        elif alone and works:
            slot, n_used = works[-1].slot, sum(len(work.tokens) for work in works)
            n = self.drafting.policy.size(n_used) - n_used
            free = self.target.n_ctx - sum(slot.n_computed for slot in self.slots) - n_used
            free = min(free, self.target.n_ctx_seq - len(slot.tokens) - len(slot.draft))
            if self.target.n_rollback is not None:
                free = min(free, self.target.n_rollback - len(slot.draft)) if len(works) == 1 else 0
            if 0 < n <= free:
                works[-1].n_padding = n

    def _that_fit(self, works: list[Work]) -> list[Work]:
        """The newest requests pause until the rest fits the shared memory; one that is alone and does not fit fails."""
        while works and self.memory.make_room(sum(len(work.tokens) for work in works)):
            busy = sorted((slot for slot in self.slots if slot.busy), key=lambda slot: slot.clock.admitted)
            if len(busy) > 1:
                self.admission.pause(busy[-1])
            else:
                message = f"the cache of {self.target.n_ctx} tokens is full; this request had {len(busy[0].tokens)}"
                self.endings.fail(busy[0], ContextFull(f"{message}; raise -c"))
            works = [work for work in works if work.slot.busy]
        return works

    # -- verify, commit, emit

    def commit(self, work: Work, rows: Floats) -> int:
        """Bring the slot to where the text now stands; returns how many tokens were emitted."""
        slot = work.slot
        n_before = slot.n_computed
        n_read = n_before + len(work.tokens)
        slot.n_computed = n_read + work.n_padding
        slot.tell_progress(n_read)
        if not work.n_outputs:
            self._keep_prompt(slot, n_read)
            self.drafting.observe(work)
            return 0
        if slot.active is None or slot.active.cancelled:
            self.memory.keep(slot, n_read - len(slot.draft))
            self.drafting.observe(work)
            self.endings.finish(slot, "cancelled")
            return 0
        if slot.request.max_tokens == 0:
            return self._only_read(work, n_read)
        try:
            return self._verify(work, rows[work.row : work.row + work.n_outputs])
        except NoNumbers as error:
            return self._spoil(slot, error)
        except Exception as error:
            self.endings.fail(slot, error)
            return 0

    def _only_read(self, work: Work, n_read: int) -> int:
        """Nothing is to be written: the prompt stays in memory, for whoever asks next."""
        slot = work.slot
        self._keep_prompt(slot, n_read)
        self.drafting.observe(work)
        slot.clock.first_token = perf_counter()
        self.endings.finish(slot, "length")
        return 0

    def _spoil(self, slot: Slot, error: NoNumbers) -> int:
        """In a shared memory one text's NaN can reach another's logits: who has them in company goes on alone."""
        self._spoilt = self.memory.shared
        if self.memory.shared and sum(slot.busy for slot in self.slots) > 1:
            assert slot.active
            slot.active.suspect = True
        else:
            self.endings.fail(slot, error)
        return 0

    def _verify(self, work: Work, rows: Floats) -> int:
        slot = work.slot
        draft, draws = slot.draft.tokens, slot.draws()
        if self._synthetic and not slot.known:
            draft, draws = self._synthetic.checked(slot, self._eog)
        tokens = verify(draws, rows, draft, slot.n_text, self._eog)
        self._settle(work, tokens, draft, rows)
        return len(tokens)

    def _settle(self, work: Work, tokens: list[int], draft: list[int], rows: Floats) -> None:
        """Bring slot, memory and drafters to the new text, of which `draft` was guessed; then tell the client."""
        slot = work.slot
        n_before, n_again = len(slot.tokens), min(len(slot.known), len(tokens))
        n_accepted = len(tokens) - (tokens[-1] != nth(draft, len(tokens) - 1))
        if slot.candidates:
            self.drafting.settled(slot, n_accepted, tokens)
            slot.candidates.clear()
        reason = self._reason_to_end(slot, tokens)
        slot.tokens.extend(tokens)
        del slot.known[:n_again]
        first = slot.n_generated == len(tokens)
        self._keep_prompt(slot, n_before + min(n_accepted, len(tokens) - 1), prompt=first)
        self.drafting.observe(work)
        if n_again < len(tokens):
            self._tick(slot, first=first and not n_again)
            self.emit(slot, tokens[n_again:], n_accepted - n_again, rows[n_again:])
        slot.draft = Proposal()
        if reason:
            self.endings.finish(slot, reason)
        elif len(slot.tokens) >= self.n_room:
            self._shift(slot)

    def _shift(self, slot: Slot) -> None:
        """The context is full: half of it goes, after the tokens to keep. Drafters start over with what is left."""
        n_keep = self.n_keep if slot.request.n_keep is None else slot.request.n_keep
        n_keep = (slot.n_prompt if n_keep < 0 else n_keep) + self.vocab.add_bos
        n_keep = min(n_keep, KEPT * self.n_room // 4)
        self.drafting.close_text(slot)
        self.memory.shift(slot, n_keep, n_keep + (len(slot.tokens) - 1 - n_keep) // 2)
        self.drafting.open_text(slot)

    def _keep_prompt(self, slot: Slot, n: int, *, prompt: bool = True) -> None:
        """Cut back to n tokens, and note how many of them a later request may build on. What is not left of them is
        computed again; where nothing is, as a prompt."""
        self.memory.keep(slot, n)
        slot.n_again = n - slot.n_computed if slot.n_computed else 0
        if not self.exact:
            slot.n_reusable = slot.n_computed
        elif prompt:
            slot.n_reusable = n

    def _reason_to_end(self, slot: Slot, tokens: list[int]) -> str | None:
        """Why the request ends with this step, if it does; tokens past the end are dropped from the list."""
        assert slot.active
        stop = slot.active.stop
        for i, token in enumerate(tokens):
            if token in self._eog or (stop and stop(token)):
                del tokens[i + 1 :]
                return "stop"
        if len(tokens) >= self._n_left(slot):
            return "length"
        return "stop" if slot.active.over else None

    @staticmethod
    def _tick(slot: Slot, *, first: bool) -> None:
        now = perf_counter()
        slot.n_steps += not first
        slot.clock.last_token = now
        if first:
            slot.clock.first_token = now

    def emit(self, slot: Slot, tokens: list[int], n_accepted: int, rows: Floats) -> None:
        assert slot.active
        slot.active.emit(Emitted(slot.spoken(tokens, n_accepted, rows), slot.timings()))

    def fail_all(self, error: Exception) -> None:
        """Nothing can be computed any more; everyone hears why."""
        self.endings.fail_all(error)

    def close(self) -> None:
        self.drafting.close()


def memory_of(target: Target, slots: list[Slot], params: EngineParams, border: int) -> Memory:
    n_bytes = None if params.cache_ram < 0 else MIB * params.cache_ram
    return Memory(
        target,
        slots,
        shared=target.kv_unified,
        border=border,
        similarity=params.slot_similarity,
        cache=PromptCache(n_bytes) if params.cache_ram else None,
        aside=params.cache_idle_slots,
    )


def nth(tokens: list[int], n: int) -> int | None:
    return tokens[n] if n < len(tokens) else None
