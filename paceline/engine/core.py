"""The engine: requests in, events out, one `step()` at a time. Knows tokens, never text. One thread only."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Protocol

import numpy as np

from paceline.config import EngineParams
from paceline.drafters.base import Draft
from paceline.drafters.proposal import Proposal
from paceline.engine.active import ActiveRequest
from paceline.engine.drafting import Drafting
from paceline.engine.exactness import Layout
from paceline.engine.memory import Cells, Memory
from paceline.engine.request import Emitted, Finished, Limits, Started, Timings, Token, failed
from paceline.engine.scheduler import Queue, Scheduler, Work
from paceline.engine.slot import Clock, Slot
from paceline.engine.synthetic import Synthetic
from paceline.engine.verify import log_probabilities, verify
from paceline.errors import ContextFull, DecodeError, NoNumbers, PacelineError
from paceline.llama.context import Batch
from paceline.llama.lib import Floats
from paceline.llama.model import Vocab
from paceline.llama.sampler import Sampler

log = logging.getLogger("paceline")

AGAIN = "again"  # the source of tokens that an earlier engine has written
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
    def clear(self) -> None: ...


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
        self.slots = [Slot(seq) for seq in range(target.n_seqs)]
        border = target.n_ubatch if layout else 1
        self.memory = Memory(
            target, self.slots, shared=target.kv_unified, border=border, similarity=params.slot_similarity
        )
        self.scheduler = Scheduler(target.n_batch, target.n_ubatch, layout)
        self.queue = Queue()
        self.n_steps = 0
        self.n_finished = 0
        self.seconds = 0.0  # spent in steps that went on with an answer
        self._spoilt = False  # by logits that are no numbers
        self._short = False  # of memory for somebody who waits
        self._synthetic = Synthetic.of(params)
        self._batch = target.new_batch()
        self._eog = vocab.eog

    @property
    def busy(self) -> bool:
        return bool(len(self.queue)) or any(slot.busy for slot in self.slots)

    @property
    def limits(self) -> Limits:
        return Limits(self.n_room, self.vocab.n_tokens, len(self.slots))

    def submit(self, active: ActiveRequest) -> None:
        """Queue a request that is within the limits; its events come from `step()`."""
        self.limits.check(active.request)
        self.queue.push(active)

    def step(self) -> None:
        """One round for everybody: admit, draft and plan, then for each batch decode, verify, commit and emit."""
        start = perf_counter()
        generating = any(slot.generating for slot in self.slots)
        self.admit()
        self.draft()
        for works in self.scheduler.lay_out(self.slots):
            self.compute(works)
        self.n_steps += 1
        self.seconds += perf_counter() - start if generating else 0.0

    def compute(self, works: list[Work]) -> None:
        """One batch: decode, verify, commit, emit; then the planner hears what it cost."""
        start = perf_counter()
        n_tokens = sum(len(work.tokens) for work in works)
        n_prompt = sum(len(work.tokens) for work in works if work.slot.known or not work.slot.generating)
        n_drafted = sum(len(work.slot.draft) for work in works)
        self._pad(works, alone=not n_prompt)
        rows = self.decode(works)
        n_emitted = sum(self.commit(work, rows) for work in works)
        if self._spoilt:
            self._start_afresh()
        seconds = perf_counter() - start
        if n_prompt < n_tokens and works:
            self.scheduler.prompts.observe(n_prompt, seconds)
        size = self._batch.n_tokens
        if works and n_prompt:
            self.drafting.policy.passed(size)
        elif works:
            self.drafting.policy.observe_step(size, n_emitted, n_drafted, seconds)

    # -- admit

    def admit(self) -> None:
        self._short = False
        self.queue.offer(self._place)
        for slot in self.slots:
            if slot.active and slot.active.cancelled:
                self.finish(slot, "cancelled")

    def _place(self, active: ActiveRequest) -> bool:
        if active.cancelled:
            active.emit(Finished("cancelled", active.paused.timings() if active.paused else Timings()))
            return True
        tokens = active.paused.tokens if active.paused else active.request.tokens
        slot = self.memory.choose(tokens, active.request.slot)
        # Nobody overtakes a request that waits for memory, or it might wait for ever.
        self._short = self._short or (slot is not None and not self._may_come(active, len(tokens)))
        if slot is None or self._short:
            return False
        try:
            self._start(slot, active)
        except Exception as error:
            if slot.busy:
                self.fail(slot, error)
            else:
                active.emit(failed(error))
        return True

    def _may_come(self, active: ActiveRequest, n_tokens: int) -> bool:
        running = [slot.active for slot in self.slots if slot.active]
        if running and (active.suspect or any(other.suspect for other in running)):
            return False
        return self.memory.has_room(n_tokens)

    def _start(self, slot: Slot, active: ActiveRequest) -> None:
        if active.paused:
            self._go_on(slot, active, active.paused)
            return
        request, prompt = active.request, active.request.tokens
        sampler = Sampler(self.vocab, request.sampling, self.target.n_ctx_seq)
        sampler.prime(prompt)
        self.memory.keep(slot, self.memory.reusable(slot, prompt) if request.cache_prompt else 0)
        slot.active, slot.sampler, slot.draft = active, sampler, Proposal()
        slot.tokens, slot.known = list(prompt), []
        slot.n_prompt, slot.n_cached, slot.n_steps = len(prompt), slot.n_computed, 0
        slot.clock = Clock(request.submitted, perf_counter())
        self.drafting.begin(slot)
        active.emit(Started(slot.seq))
        if request.resume:
            slot.resume(request.resume)
        if request.max_tokens == 0:
            self.finish(slot, "length")

    def _go_on(self, slot: Slot, active: ActiveRequest, paused: Slot) -> None:
        """What was written before the pause is computed again like a prompt, as far as it is not in memory."""
        self.memory.keep(slot, self.memory.reusable(slot, paused.tokens))
        slot.take_over(paused)
        slot.active, active.paused = active, None
        self.drafting.begin(slot)
        slot.add_stats(paused.stats.values())
        active.emit(Started(slot.seq))

    def _pause(self, slot: Slot) -> None:
        """No room: the request waits with all it has, before everybody else. Its memory may be forgotten."""
        assert slot.active
        slot.active.paused = slot.copy()
        self.queue.push_front(slot.active)
        self.drafting.end(slot)
        slot.candidates.clear()
        slot.active = slot.sampler = None

    def _start_afresh(self) -> None:
        """Forgotten cells still hold what was computed: empty all memory, and everybody's text is read again."""
        for slot in sorted(self.slots, key=lambda slot: -slot.clock.admitted):
            if slot.busy:
                self._pause(slot)
        self.memory.clear()
        self.target.clear()
        self._spoilt = False

    # -- draft and plan

    def draft(self) -> None:
        generating = [slot for slot in self.slots if slot.generating]
        if self.drafting.rests and not any(slot.known for slot in generating):
            return
        room = self.scheduler.draft_room(len(generating))
        slots = [slot for slot in generating if not self._repeat(slot, room)]
        if slots:
            self.drafting.propose(slots, [self._n_drafts(slot, room) for slot in slots])
        n_drafted = sum(len(slot.draft) for slot in generating)
        n_pending = sum(len(slot.tokens) - slot.n_computed for slot in self.slots if slot.busy)
        if n_drafted and self.memory.make_room(n_drafted + n_pending):
            for slot in generating:
                slot.draft = Proposal()

    def _repeat(self, slot: Slot, room: int) -> bool:
        """What is known to come is the draft, where there is such: its batches are those it would be written by."""
        if slot.known:
            slot.draft = Proposal()
            slot.draft.add(Draft(slot.known[: max(0, self._n_drafts(slot, room))], AGAIN))
        return bool(slot.known)

    def _n_drafts(self, slot: Slot, room: int) -> int:
        """The longest draft for the slot, where the batch has this much room for it."""
        room = min(room, self._n_left(slot) - 1)
        return min(room, self.layout.n_drafts(slot.n_computed)) if self.layout else room

    def _n_left(self, slot: Slot) -> int:
        """Tokens the request may still write, by its own limit and by the context."""
        by_context = self.n_room - len(slot.tokens)
        limit = slot.request.max_tokens
        return by_context if limit is None else min(by_context, limit - slot.n_generated)

    # -- decode

    def decode(self, works: list[Work]) -> Floats:
        """Logits of the batch. Work that could not be computed is taken out of the list; its requests have failed."""
        works[:] = self._that_fit(works)
        if not works:
            return NO_ROWS
        batch = self._batch
        batch.clear()
        for work in works:
            padded = work.padded()
            work.row = batch.add(work.slot.seq, padded.tokens, work.slot.n_computed, padded.n_outputs)
        try:
            return self.target.decode(batch)
        except DecodeError as error:
            for work in works:
                self.fail(work.slot, error)
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
            if 0 < n <= min(free, self.target.n_ctx_seq - len(slot.tokens) - len(slot.draft)):
                works[-1].n_padding = n

    def _that_fit(self, works: list[Work]) -> list[Work]:
        """The newest requests pause until the rest fits the shared memory; one that is alone and does not fit fails."""
        while works and self.memory.make_room(sum(len(work.tokens) for work in works)):
            busy = sorted((slot for slot in self.slots if slot.busy), key=lambda slot: slot.clock.admitted)
            if len(busy) > 1:
                self._pause(busy[-1])
            else:
                message = f"the cache of {self.target.n_ctx} tokens is full; this request had {len(busy[0].tokens)}"
                self.fail(busy[0], ContextFull(f"{message}; raise -c"))
            works = [work for work in works if work.slot.busy]
        return works

    # -- verify, commit, emit

    def commit(self, work: Work, rows: Floats) -> int:
        """Bring the slot to where the text now stands; returns how many tokens were emitted."""
        slot = work.slot
        n_before = slot.n_computed
        slot.n_computed = n_before + len(work.tokens) + work.n_padding
        if not work.n_outputs:
            self._keep_prompt(slot, n_before + len(work.tokens))
            return 0
        if slot.active is None or slot.active.cancelled:
            self.memory.keep(slot, n_before)
            self.finish(slot, "cancelled")
            return 0
        try:
            return self._verify(slot, rows[work.row : work.row + work.n_outputs])
        except NoNumbers as error:
            return self._spoil(slot, error)
        except Exception as error:
            self.fail(slot, error)
            return 0

    def _spoil(self, slot: Slot, error: NoNumbers) -> int:
        """In a shared memory one text's NaN can reach another's logits: who has them in company goes on alone."""
        self._spoilt = self.memory.shared
        if self.memory.shared and sum(slot.busy for slot in self.slots) > 1:
            assert slot.active
            slot.active.suspect = True
        else:
            self.fail(slot, error)
        return 0

    def _verify(self, slot: Slot, rows: Floats) -> int:
        draft, draws = slot.draft.tokens, slot.draws()
        if self._synthetic and not slot.known:
            draft, draws = self._synthetic.checked(slot, self._eog)
        tokens = verify(draws, rows, draft, len(slot.tokens), self._eog)
        self._settle(slot, tokens, draft, rows)
        return len(tokens)

    def _settle(self, slot: Slot, tokens: list[int], draft: list[int], rows: Floats) -> None:
        """Bring slot, memory and drafters to the new text, of which `draft` was guessed; then tell the client."""
        n_before, n_again = len(slot.tokens), min(len(slot.known), len(tokens))
        n_accepted = len(tokens) - (tokens[-1] != nth(draft, len(tokens) - 1))
        if slot.candidates:
            self.drafting.settled(slot, n_accepted, tokens)
            slot.candidates.clear()
        reason = self._reason_to_end(slot, tokens)
        self.drafting.observe(slot, tokens, rows)
        slot.tokens.extend(tokens)
        del slot.known[:n_again]
        first = slot.n_generated == len(tokens)
        self._keep_prompt(slot, n_before + min(n_accepted, len(tokens) - 1), prompt=first)
        if n_again < len(tokens):
            self._tick(slot, first=first and not n_again)
            self.emit(slot, tokens[n_again:], n_accepted - n_again, rows[n_again:])
        slot.draft = Proposal()
        if reason:
            self.finish(slot, reason)

    def _keep_prompt(self, slot: Slot, n: int, *, prompt: bool = True) -> None:
        """Cut back to n tokens, and note how many of them a later request may build on."""
        self.memory.keep(slot, n)
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
        n_logprobs = slot.request.n_logprobs
        out = []
        sources = slot.draft.sources()
        for i, token in enumerate(tokens):
            source = sources[i] if i < n_accepted else None
            if n_logprobs is None:
                out.append(Token(token, source))
            else:
                out.append(Token(token, source, *log_probabilities(rows[i], token, n_logprobs)))
        slot.active.emit(Emitted(tuple(out), slot.timings()))

    # -- endings

    def finish(self, slot: Slot, reason: str) -> None:
        active = self._release(slot)
        self._end_group(active)
        active.emit(Finished(reason, slot.timings()))

    def fail(self, slot: Slot, error: Exception) -> None:
        """One request's trouble: its slot is emptied, the others go on."""
        if not isinstance(error, PacelineError):
            log.error("a request failed", exc_info=error)
        active = self._release(slot)
        self.memory.keep(slot, 0)
        slot.tokens = []
        active.emit(failed(error, slot.timings()))

    def fail_all(self, error: Exception) -> None:
        """Nothing can be computed any more; everyone hears why, and the memory starts afresh."""
        for slot in self.slots:
            if slot.busy:
                self.fail(slot, error)
        self.memory.clear()
        for active in self.queue.drain():
            active.emit(failed(error))
        self.target.clear()

    def _release(self, slot: Slot) -> ActiveRequest:
        assert slot.active and slot.sampler
        self.drafting.end(slot)
        active, slot.active = slot.active, None
        self.n_finished += 1
        slot.sampler.close()
        slot.sampler = None
        return active

    def _end_group(self, done: ActiveRequest) -> None:
        """With the first of a group the others end too, as soon as they have written something."""
        if done.request.group is not None:
            written = [active for active in self.queue if active.paused]
            for active in [*written, *(slot.active for slot in self.slots if slot.active)]:
                if active.request.group == done.request.group:
                    active.over = True

    def close(self) -> None:
        self.drafting.close()


def nth(tokens: list[int], n: int) -> int | None:
    return tokens[n] if n < len(tokens) else None
