"""Stand-ins behind the llama seam: a context that computes by rule and checks what it is fed, and a tiny vocabulary."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from paceline.config import EngineParams, SamplingParams
from paceline.drafters.base import Draft, Drafter, DraftRequest
from paceline.engine.active import ActiveRequest, StopCheck
from paceline.engine.core import Core
from paceline.engine.drafting import Drafting
from paceline.engine.exactness import Layout
from paceline.engine.request import Emitted, Event, Failed, Finished, Request, Started, Tokens
from paceline.errors import DecodeError, PacelineError, named
from paceline.llama.context import Batch
from paceline.llama.lib import Floats
from paceline.llama.saved import Bytes
from paceline.planner.fixed import FixedPolicy

N_VOCAB = 50
EOG = N_VOCAB - 1
GREEDY = SamplingParams(temperature=0)
IDS = count(1)


class FakeVocab:
    handle = 0
    n_tokens = N_VOCAB
    add_bos = False
    eog = frozenset({EOG})


def next_token(history: Sequence[int]) -> int:
    """The fake model: the last three tokens decide. It never ends by itself."""
    return hash(tuple(history[-3:])) % (N_VOCAB - 1)


def continuation(prompt: Sequence[int], n: int) -> list[int]:
    """What the fake model writes, one token at a time: the reference for everything the engine does."""
    history = list(prompt)
    for _ in range(n):
        history.append(next_token(history))
    return history[len(prompt) :]


class FakeContext:
    """Keeps the cells of every sequence and refuses a batch that does not continue them."""

    def __init__(
        self,
        n_ctx: int = 256,
        n_batch: int = 64,
        n_ubatch: int = 16,
        n_seqs: int = 1,
        exact: bool = False,
        layout: Layout | None = None,
    ) -> None:
        self.layout = layout or (Layout(2, n_ubatch) if exact else None)
        exact = self.layout is not None
        self.n_ctx = n_ctx
        self.n_ctx_seq = n_ctx // n_seqs if exact else n_ctx
        self.n_batch = n_batch
        self.n_ubatch = n_ubatch
        self.n_seqs = n_seqs
        self.n_vocab = N_VOCAB
        self.exact = exact
        self.kv_unified = not exact
        self.cells: list[list[int]] = [[] for _ in range(n_seqs)]
        self.batches: list[list[tuple[int, int]]] = []
        self.fail_next = False
        self.ends_after: int | None = None
        self.broken: int | None = None
        self.spoilt = False

    def use_adapters(self, scales: str | None) -> None:
        self.adapters = scales

    def new_batch(self) -> Batch:
        return Batch(self.n_batch, self.n_seqs, self.n_ctx)

    def decode(self, batch: Batch) -> Floats:
        if self.fail_next:
            self.fail_next = False
            raise DecodeError("told to fail")
        rows = []
        entries = []
        for i in range(batch.n_tokens):
            seq = (int(batch._seq_pointers[i]) - batch._seq_address[0]) // 4
            cells, position = self.cells[seq], int(batch._positions[i])
            assert position == len(cells), f"seq {seq} has {len(cells)} cells, batch puts a token at {position}"
            cells.append(int(batch._tokens[i]))
            entries.append((seq, cells[-1]))
            if batch._outputs[i]:
                rows.append(self._logits(cells))
        self._check(entries)
        self.batches.append(entries)
        return np.array(rows, np.float32).reshape(len(rows), N_VOCAB)

    def _logits(self, cells: list[int]) -> Floats:
        row = np.zeros(N_VOCAB, np.float32)
        self.spoilt = self.spoilt or self.broken in cells
        if self.spoilt:
            row[7] = np.nan
        row[EOG if self.ends_after is not None and len(cells) >= self.ends_after else next_token(cells)] = 9.0
        return row

    def _check(self, entries: list[tuple[int, int]]) -> None:
        used = [len(cells) for cells in self.cells]
        assert sum(used) <= self.n_ctx, f"{used} cells used of {self.n_ctx}"
        assert max(used) <= self.n_ctx_seq
        if self.layout:
            assert len({seq for seq, _ in entries}) == 1, "exact mode computes one sequence per call"
            assert len(entries) >= self.layout.least, f"exact mode pads {len(entries)} to {self.layout}"

    def remove(self, seq: int, start: int, end: int = -1) -> bool:
        del self.cells[seq][start : None if end < 0 else end]
        return True

    can_shift = True
    n_rollback: int | None = None

    def mark(self, seq: int, state: Bytes | None = None) -> Bytes:
        return self.get_state(seq)

    def go_back(self, seq: int, state: Bytes, n: int) -> bool:
        self.set_state(seq, state)
        return len(self.cells[seq]) == n

    def shift(self, seq: int, start: int, delta: int) -> None:
        """The list has no holes: removing has shifted already."""
        assert delta < 0 <= start + delta <= len(self.cells[seq])

    def state_size(self, seq: int) -> int:
        return 4 * len(self.cells[seq])

    def get_state(self, seq: int) -> Bytes:
        return np.array(self.cells[seq], np.int32).view(np.uint8)

    def set_state(self, seq: int, state: Bytes) -> None:
        self.cells[seq] = [int(token) for token in state.view(np.int32)]

    def clear(self) -> None:
        self.spoilt = False
        self.cells = [[] for _ in range(self.n_seqs)]


class RecurrentContext(FakeContext):
    """Forgets everything, or once up to `n_rollback` tokens of the latest batch but its first; else goes back to marks
    only. Removing from the middle says nothing: a state has none."""

    def __init__(self, n_rollback: int, **options: Any) -> None:
        super().__init__(**options)
        self.n_rollback = n_rollback
        self.n_marks = self.n_returns = self.n_emptied = 0
        self._first: dict[int, int] = {}

    def decode(self, batch: Batch) -> Floats:
        self._first = batch.starts.copy() if batch.is_even(self.n_ubatch) else {}
        return super().decode(batch)

    def remove(self, seq: int, start: int, end: int = -1) -> bool:
        n_removed = len(self.cells[seq]) - start
        cuts = end < 0 and start and n_removed > 0
        if cuts and (n_removed > (self.n_rollback or 0) or start <= self._first.pop(seq, start)):
            return False
        self.n_emptied += start == 0 and bool(self.cells[seq])
        return super().remove(seq, start, end)

    def mark(self, seq: int, state: Bytes | None = None) -> Bytes:
        self.n_marks += 1
        return super().mark(seq, state)

    def go_back(self, seq: int, state: Bytes, n: int) -> bool:
        self.n_returns += 1
        self._first.pop(seq, None)
        return super().go_back(seq, state, n)


class Prophet(Drafter):
    """Drafts what the fake model will write, wrong now and then."""

    name = "prophet"

    def __init__(self, p_right: float, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.p_right = p_right
        self.accepted: list[tuple[int, int]] = []
        self.live: dict[int, int] = {}

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        assert seq not in self.live
        self.live[seq] = len(tokens)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        tokens = continuation(request.tokens, self.random.randint(0, request.n_max))
        tokens = [t if self.random.random() < self.p_right else (t + 1) % N_VOCAB for t in tokens]
        return Draft(tokens, self.name, [self.p_right] * len(tokens))

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        self.accepted.append((len(draft), n_accepted))

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        del self.live[seq]

    def close(self) -> None: ...


class Client:
    """One request and what was heard of it."""

    def __init__(
        self,
        prompt: list[int],
        max_tokens: int | None = 20,
        stop: StopCheck | None = None,
        sampling: SamplingParams = GREEDY,
        **more: object,
    ) -> None:
        self.all_events: list[Event] = []
        self.request = Request(
            id=next(IDS),
            prompt=(Tokens(prompt),),
            sampling=sampling,
            max_tokens=max_tokens,
            **more,  # type: ignore[arg-type]
        )
        self.active = ActiveRequest(self.request, self.all_events.append, stop)

    @property
    def events(self) -> list[Event]:
        """Without the first, which says that it has a slot."""
        return [event for event in self.all_events if not isinstance(event, Started)]

    def cancel(self) -> None:
        self.active.cancelled = True

    @property
    def tokens(self) -> list[int]:
        return [token.id for event in self.events if isinstance(event, Emitted) for token in event.tokens]

    @property
    def sources(self) -> list[str | None]:
        return [token.source for event in self.events if isinstance(event, Emitted) for token in event.tokens]

    @property
    def reason(self) -> str:
        last = self.events[-1]
        assert isinstance(last, Finished), last
        return last.reason

    @property
    def error(self) -> PacelineError:
        last = self.events[-1]
        assert isinstance(last, Failed), last
        return named(last.kind, last.message)


def make_engine(context: FakeContext, *drafters: Drafter, similarity: float = 0.1, **options: Any) -> Core:
    params = EngineParams(n_slots=context.n_seqs, exact=context.exact, slot_similarity=similarity, **options)
    drafting = Drafting(drafters, FixedPolicy())
    return Core(context, FakeVocab(), drafting, params, context.layout)  # type: ignore[arg-type]


def run(engine: Core, *clients: Client, n_steps: int = 2000) -> None:
    for client in clients:
        engine.submit(client.active)
    for _ in range(n_steps):
        if not engine.busy:
            return
        engine.step()
    raise AssertionError(f"still busy after {n_steps} steps")
