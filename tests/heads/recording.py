"""An engine whose steps the test takes itself, and what its heads do in them: each draft, and the rows it came from.

Everything is compared with the slow reference, which computes the whole text again and carries nothing over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from paceline.config import ContextParams, EngineParams, ModelParams, SamplingParams, Settings, SpeculativeParams
from paceline.config.drafters import DrafterSettings, NgramParams
from paceline.drafters.base import Draft, DraftRequest
from paceline.drafters.reader import HeadDrafter
from paceline.drafters.trace import RowTrace
from paceline.engine.core import Core
from paceline.engine.request import Failed, Finished, Timings
from paceline.engine.worker import WORKER
from paceline.llama.lib import Floats
from paceline.process import heads
from paceline.process.local import LocalEngine
from tests.fakes import Client
from tests.heads.reference import Drafted, Reference

CLOSE, ROUNDED = 2e-3, 0.05
"""How far rows may be from those of another batch size, beside the largest of them; with flash attention, which exact
mode has."""
NARROW = 0.05
"""A lead that rounding may turn around."""
N_MAX = 5
ENDLESS = SamplingParams(temperature=0, ignore_eos=True)
Spoil = Callable[[DraftRequest, Draft], Draft]


@dataclass(frozen=True, slots=True)
class Noted:
    """A draft as it was made: after this text and what was `ahead`, from the target's rows from `first` on."""

    name: str
    seq: int
    text: list[int]
    ahead: list[int]
    draft: Draft
    first: int


class Stage:
    """`drafts` has every draft that was made. Nothing is computed but in `step`. What the heads say is passed through
    `spoil`, so that those that are always right are rejected now and then, and those that never are accepted."""

    def __init__(self, engine: LocalEngine, spoil: Spoil | None = None) -> None:
        self.engine = engine
        self._spoil = spoil or (lambda request, draft: draft)
        self.drafts: list[Noted] = []
        self.clients: list[Client] = []
        WORKER.leave(engine.loop._turn)
        for drafter in self.heads:
            self._watch(drafter)

    @property
    def core(self) -> Core:
        return self.engine.core

    @property
    def heads(self) -> list[HeadDrafter]:
        return [drafter for drafter in self.engine.parts.drafters if isinstance(drafter, HeadDrafter)]

    def _watch(self, drafter: HeadDrafter) -> None:
        """What a head has read is known best just before it trims its window, at the end of a draft."""
        first: dict[int, int] = {}
        memory, make = drafter.memories[0], drafter.draft
        have_read = memory.have_read

        def note_first(seq: int, end: int, n_most: int) -> None:
            first[seq] = memory._held[seq].start
            have_read(seq, end, n_most)

        def note_drafts(requests: Sequence[DraftRequest]) -> list[Draft]:
            first.clear()
            drafts = make(requests)
            for request, draft in zip(requests, drafts, strict=True):
                text, ahead, start = list(request.tokens), list(request.ahead), first.get(request.seq, 0)
                self.drafts.append(Noted(drafter.name, request.seq, text, ahead, draft, start))
            return [self._spoil(request, draft) for request, draft in zip(requests, drafts, strict=True)]

        memory.have_read = note_first  # type: ignore[method-assign]
        drafter.draft = note_drafts  # type: ignore[method-assign]

    # -- what happens

    def submit(self, prompt: Sequence[int], max_tokens: int = 12, *, n_max: int = N_MAX, **more: Any) -> Client:
        """Greedy and never at its end by itself, unless told otherwise, with drafts however unsure the head is."""
        more.setdefault("sampling", ENDLESS)
        wishes = SpeculativeParams(types=more.pop("types", None), n_max=n_max, p_min=0.0)
        client = Client(list(prompt), max_tokens, speculative=wishes, **more)
        self.clients.append(client)
        self.core.submit(client.active)
        return client

    def step(self) -> None:
        self.core.step()

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        while self.core.busy:
            self.step()
            between()
        for client in self.clients:
            assert not isinstance(client.events[-1], Failed), client.events[-1]
        assert len(self.core.drafting.drafters) == len(self.engine.parts.drafters), "a drafter has failed"

    def write(self, prompt: Sequence[int], max_tokens: int = 12, **more: Any) -> list[int]:
        client = self.submit(prompt, max_tokens, **more)
        self.run()
        return client.tokens

    def timings(self, client: Client) -> Timings:
        last = client.events[-1]
        assert isinstance(last, Finished), last
        return last.timings

    def close(self) -> None:
        self.engine.close()

    # -- whether it was right

    def check_rows(self, reference: Reference) -> int:
        """Every row that is kept is the one the target has for its text; says how many there are."""
        most = ROUNDED if self.core.exact else CLOSE
        return sum(check_trace(trace, reference, most) for drafter in self.heads for trace in drafter._traces)

    def check_drafts(self, reference: Reference, name: str | None = None, most: int = 10) -> int:
        """Drafts since the last time, `most` of them evenly chosen, are the reference's of the same rows; says how many
        tokens were compared."""
        noted = [each for each in self.drafts if each.draft.tokens and name in (None, each.name)]
        chosen = noted[:: max(1, len(noted) // most)]
        n = sum(same_tokens(each, drafted(each, reference)) for each in chosen)
        self.drafts.clear()
        return n


def check_trace(trace: RowTrace, reference: Reference, most: float) -> int:
    n = trace.end - trace.start
    if n:
        expected = reference.rows(trace.text)[trace.start :]
        assert near(trace.rows(trace.start, trace.end), expected, most), (
            f"rows {trace.start} to {trace.end} of {trace.text}"
        )
    return n


def near(rows: Floats, expected: Floats, most: float) -> bool:
    return rows.shape == expected.shape and bool(np.abs(rows - expected).max() <= most * np.abs(expected).max())


def drafted(noted: Noted, reference: Reference) -> Drafted:
    """A block is computed whole, however much of it is wanted."""
    block = noted.name in ("draft-dflash", "draft-dspark")
    n = 16 if block else len(noted.draft)
    return reference.draft(noted.text, n, first=noted.first, ahead=noted.ahead)


def same_tokens(noted: Noted, expected: Drafted) -> int:
    """As far as no choice was a narrow one: after that drafts may part."""
    clear = [lead > NARROW for lead in expected.leads[: len(noted.draft)]]
    n = clear.index(False) if False in clear else len(clear)
    assert noted.draft.tokens[:n] == expected.tokens[:n], noted
    assert np.allclose(noted.draft.confidence[:n], expected.chances[:n], atol=0.02), (noted, expected)
    return n


def settings_of(
    target: str,
    head: str | None,
    *types: str,
    n_slots: int = 1,
    n_ctx: int = 128,
    precise: bool = True,
    adapters: tuple[tuple[str, float], ...] = (),
    shape: Mapping[str, Any] | None = None,
    **more: Any,
) -> Settings:
    """`precise` are float32 caches without flash attention: what is left are the rounding errors of batch sizes.
    `shape` is more of the target's context."""
    numbers: dict[str, Any] = {"flash_attn": False, "cache_type_k": "f32", "cache_type_v": "f32"} if precise else {}
    drafters = DrafterSettings(ngram_simple=NgramParams(size_n=1, size_m=2))
    context = {"n_ctx": n_ctx * n_slots, "n_ubatch": 32, "n_threads": 1, **numbers, **(shape or {})}
    return Settings(
        model=ModelParams(path=target, adapters=adapters),
        draft=ModelParams(path=head) if head else None,
        context=ContextParams(**context),
        draft_context=ContextParams(n_threads=1, **numbers),
        engine=EngineParams(
            **{"n_slots": n_slots, "spec_types": types, "spec_policy": "fixed", "drafters": drafters, **more}
        ),
    )


@contextmanager
def untried() -> Iterator[None]:
    """Heads that are known to fit need no process that finds out."""
    with patch.object(heads, "try_out", lambda target, head: None):
        yield


@contextmanager
def staged(
    target: str, head: str | None, *types: str, rows: int | None = None, spoil: Spoil | None = None, **more: Any
) -> Iterator[Stage]:
    """Of a text heads keep so many `rows`: fewer than the flags allow, so that windows slide soon."""
    with untried():
        stage = Stage(LocalEngine(settings_of(target, head, *types, **more)), spoil)
    try:
        for drafter in stage.heads if rows else ():
            drafter.window = rows or 0
            drafter._traces = [RowTrace(drafter.window) for _ in drafter._traces]
        yield stage
    finally:
        stage.close()
