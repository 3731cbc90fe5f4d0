"""Who is computed next and in which batch. Knows counts of tokens; nothing of sampling or drafting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from paceline.engine.active import ActiveRequest
from paceline.engine.exactness import Layout
from paceline.engine.slot import Slot

STRETCH = 2.5  # a step with prompt tokens in it may take so many times what it takes with hardly any
LEAST_CHUNK = 4.0
PLAIN_RATE = 0.1
PLAIN_WEIGHT = 0.02
KEPT = 0.95
FEWER = 0.7


@dataclass(slots=True)
class Work:
    """Consecutive tokens of one slot to compute; logits are wanted for the last `n_outputs`. Padding comes after.

    In the batch they begin with token `first`, their logits with `row`; in the text they begin at `start`.
    """

    slot: Slot
    tokens: list[int]
    n_outputs: int
    row: int = 0
    n_padding: int = 0
    start: int = 0
    first: int = 0

    def padded(self) -> Work:
        """Batches of other sizes take other kernels and graphs: a small one grows, the growth is cut off again."""
        n = self.n_padding
        return Work(self.slot, [*self.tokens, *self.tokens[-1:] * n], self.n_outputs + n) if n else self


def by_adapter(works: list[Work]) -> list[list[Work]]:
    """What can be computed together: adapters count the same for all of a batch."""
    groups: dict[str | None, list[Work]] = {}
    for work in works:
        groups.setdefault(work.slot.adapter, []).append(work)
    return list(groups.values())


def by_length(works: list[Work], n_ubatch: int) -> list[list[Work]]:
    """What libllama computes in one piece where a state follows from the one before: as many tokens of each sequence.
    It would cut another batch itself, and move states in between, but leave their snapshots behind."""
    groups: dict[int, list[Work]] = {}
    for work in works:
        groups.setdefault(len(work.tokens), []).append(work)
    most = {n: max(1, n_ubatch // n) for n in groups}
    return [group[i : i + most[n]] for n, group in groups.items() for i in range(0, len(group), most[n])]


class Queue:
    """Requests that wait for a slot, first come first served."""

    def __init__(self) -> None:
        self._waiting: deque[ActiveRequest] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, active: ActiveRequest) -> None:
        self._waiting.append(active)

    def push_front(self, active: ActiveRequest) -> None:
        self._waiting.appendleft(active)

    def __iter__(self) -> Iterator[ActiveRequest]:
        return iter(self._waiting)

    def offer(self, place: Callable[[ActiveRequest], bool]) -> None:
        """Offer everyone a place, in order; who finds none waits on."""
        if self._waiting:
            self._waiting = deque(active for active in self._waiting if not place(active))

    def drain(self) -> list[ActiveRequest]:
        """Everyone; nobody waits any more."""
        gone, self._waiting = list(self._waiting), deque()
        return gone


class PromptShare:
    """How many prompt tokens may join a step of running answers: as many as stretch it STRETCH times beyond what a step
    with any of them takes. On a GPU that is far more than a plain step, since its graph is built anew; smaller pieces
    would not be quicker there, only more.

    Learned from the steps themselves: a line through what they took by prompt tokens, old ones forgotten.
    """

    def __init__(self, n_max: int) -> None:
        self._n_max = n_max
        self._n = min(16.0, n_max)
        self._n_seen = 0
        self._plain = 0.0
        self._sums = [0.0] * 5  # of weights, tokens, seconds, tokens squared, tokens times seconds

    @property
    def n_prompt(self) -> int:
        """Now and then fewer: a line through steps that are all alike says nothing."""
        return max(1, int(FEWER * self._n)) if self._n_seen % 4 == 1 else int(self._n)

    def observe(self, n_prompt: int, seconds: float) -> None:
        """A step with running answers and so many prompt tokens took this long."""
        if not n_prompt:
            self._plain += (PLAIN_RATE if self._plain else 1.0) * (seconds - self._plain)
        elif self._plain:
            self._n_seen += 1
            seen = (1.0, n_prompt, seconds, n_prompt**2, n_prompt * seconds)
            self._sums = [KEPT * old + new for old, new in zip(self._sums, seen, strict=True)]
            least, per_token = self._line()
            fit = (STRETCH - 1) * least / per_token / self._n
            self._n = max(min(LEAST_CHUNK, self._n_max), min(self._n_max, self._n * max(0.8, min(1.25, fit))))

    def _line(self) -> tuple[float, float]:
        """Seconds of a step with hardly any prompt tokens, and of each of them. A plain step counts for little."""
        w, x, y, xx, xy = self._sums
        w, y = w + PLAIN_WEIGHT, y + PLAIN_WEIGHT * self._plain
        slope = (w * xy - x * y) / (w * xx - x * x)
        return max(self._plain, (y - slope * x) / w), max(slope, 1e-9)


class Scheduler:
    """Lays a step's tokens out in batches: decoding first, prompt chunks in what is left.

    In exact mode every slot has a batch of its own and prompts are cut at multiples of the micro-batch, so that the
    numbers depend on the text alone. `layout` is None in any other. With `snapshots` of recurrent states, batches are
    such that libllama computes each in one piece.
    """

    def __init__(self, n_batch: int, n_ubatch: int, layout: Layout | None = None, *, snapshots: bool = False) -> None:
        self.n_batch = n_batch
        self.n_ubatch = n_ubatch
        self.layout = layout
        self.exact = layout is not None
        self.snapshots = snapshots
        self.prompts = PromptShare(n_ubatch)

    def draft_room(self, n_generating: int, n_again: int = 0) -> int:
        """The longest draft a slot may have so that all generating slots fit one batch, with what is computed again."""
        if self.layout:
            return self.layout.most - 1
        return max(0, (self.n_batch - n_again) // max(1, n_generating) - 1)

    def lay_out(self, slots: list[Slot]) -> list[list[Work]]:
        """Batches to decode one after the other."""
        generating = self._fitting([self._decoding(slot) for slot in slots if slot.generating])
        prefilling = sorted((s for s in slots if s.busy and not s.generating), key=lambda s: s.clock.admitted)
        works = generating + self._prefills(prefilling, generating)
        if self.exact:
            return [[work] for work in works]
        batches = by_adapter(works)
        return [batch for each in batches for batch in by_length(each, self.n_ubatch)] if self.snapshots else batches

    @staticmethod
    def _decoding(slot: Slot) -> Work:
        return Work(slot, [*slot.tokens[slot.n_computed :], *slot.draft.tokens], 1 + len(slot.draft))

    def _fitting(self, works: list[Work]) -> list[Work]:
        """What is computed again may be too much for one batch; then some answers go on in the next one."""
        n_tokens = accumulate(len(work.tokens) for work in works)
        return works if self.exact else [work for work, n in zip(works, n_tokens, strict=True) if n <= self.n_batch]

    def _prefills(self, slots: list[Slot], generating: list[Work]) -> list[Work]:
        """Prompt chunks, oldest request first, until the step is long enough."""
        budget = self.n_ubatch if not generating or self.exact else self.prompts.n_prompt
        budget = min(budget, self.n_batch - sum(len(work.tokens) for work in generating))
        works = []
        for slot in slots:
            n = self._chunk(slot, budget)
            if n <= 0:
                break
            works.append(self._prefill(slot, n))
            budget -= n
        return works

    def _chunk(self, slot: Slot, budget: int) -> int:
        n_pending = len(slot.tokens) - slot.n_computed
        if not self.exact:
            return min(n_pending, budget)
        to_border = self.n_ubatch - slot.n_computed % self.n_ubatch
        n = min(n_pending, to_border)
        return n if n <= budget else 0

    @staticmethod
    def _prefill(slot: Slot, n: int) -> Work:
        start = slot.n_computed
        complete = start + n == len(slot.tokens)
        return Work(slot, slot.tokens[start : start + n], int(complete))
