"""Heads stay with their text, or start afresh: after anything that can happen to a slot, each row that is kept is the
one the target has for the text as it is now, and drafts are the reference's of those rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.drafters.base import Draft, DraftRequest
from paceline.process.gguf_check import check_gguf
from tests.heads.files import WIDTH
from tests.heads.kinds import WIDE, Files, write_files
from tests.heads.recording import CLOSE, Stage, near, staged
from tests.heads.reference import Reference
from tests.tiny import write_out

pytestmark = pytest.mark.model

PROMPT = [int(token) for token in np.random.default_rng(1).integers(0, 256, 40)]


@pytest.fixture(scope="module", params=WIDE, ids=str)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_files(tmp_path_factory.mktemp("files"), request.param, wide=True)


@pytest.fixture(scope="module")
def reference(files: Files) -> Iterator[Reference]:
    reference = Reference(files.target, files.head)
    yield reference
    reference.close()


def check(stage: Stage, reference: Reference, *, n_rows: int = 1) -> None:
    """At least so many rows are kept, all of them right, and so are the drafts."""
    assert stage.check_rows(reference) >= n_rows
    assert stage.check_drafts(reference, most=3) > 0


def test_a_saved_slot_comes_back(files: Files, reference: Reference, tmp_path: Path) -> None:
    """Another text was in the slot meanwhile, or nothing at all."""
    saved = str(tmp_path / "slot.bin")
    with staged(files.target, files.head, files.type, n_slots=2) as stage:
        answer = stage.write(PROMPT, 8, slot=0)
        stage.engine.save_slot(0, saved)
        stage.write(PROMPT[20:], 5, slot=0)
        for erased in (False, True):
            if erased:
                stage.engine.erase_slot(0)
            stage.engine.restore_slot(0, saved)
            stage.drafts.clear()
            again = stage.submit([*PROMPT, *answer, 9], 5, slot=0)
            stage.run()
            assert stage.timings(again).cache_n >= len(PROMPT)
            check(stage, reference)


def test_a_prompt_that_was_set_aside_comes_back(files: Files, reference: Reference) -> None:
    with staged(files.target, files.head, files.type, cache_ram=16) as stage:
        answer = stage.write(PROMPT, 8)
        stage.write(PROMPT[::-1], 8)
        stage.drafts.clear()
        again = stage.submit([*PROMPT, *answer, 9], 6)
        stage.run()
        assert stage.timings(again).cache_n >= len(PROMPT)
        check(stage, reference)


@pytest.mark.parametrize("n_written", [0, 3])
def test_rows_of_a_prompt_that_was_only_read_are_there(files: Files, reference: Reference, n_written: int) -> None:
    """Also of one that was cancelled: who goes on from there has all of them to draft by."""
    with staged(files.target, files.head, files.type) as stage:
        first = stage.submit(PROMPT, 50 if n_written else 0)
        while stage.core.busy:
            first.active.cancelled = bool(n_written) and len(first.tokens) >= n_written
            stage.step()
        stage.drafts.clear()
        again = stage.submit([*PROMPT, *first.tokens, 9], 4)
        stage.run()
        assert stage.timings(again).cache_n >= len(PROMPT)
        check(stage, reference, n_rows=len(PROMPT) + n_written)


def test_a_text_that_outgrows_its_slot_is_drafted_on(files: Files, reference: Reference) -> None:
    """In exact mode what is left of it is read again, so that its rows are those of the text as it is."""
    with staged(
        files.target, files.head, files.type, shape={"n_ctx_slot": 64}, exact=True, context_shift=True
    ) as stage:
        client = stage.submit(PROMPT, 50)
        while not stage.core.slots[0].n_dropped:
            stage.step()
        stage.drafts.clear()
        n_rows = 0
        while stage.core.busy:
            stage.step()
            n_rows = max(n_rows, stage.check_rows(reference))
        assert len(client.tokens) == 50
        assert n_rows > 40
        assert any(noted.draft.tokens for noted in stage.drafts)


def test_each_slot_with_cells_of_its_own(files: Files, reference: Reference) -> None:
    """libllama computes such batches in another order: rows are still given to whom they belong."""
    with staged(files.target, files.head, files.type, n_slots=4, shape={"kv_unified": False, "n_ubatch": 16}) as stage:
        for n in (5, 40, 12, 33):
            stage.submit(PROMPT[:n], 9)
        stage.run()
        assert stage.check_rows(reference) > 90
        assert stage.check_drafts(reference) > 10


def test_a_full_cache(files: Files, reference: Reference) -> None:
    """Four texts of which three have room: the newest pauses, and is read again. Where a sliding window keeps the slots
    apart, nobody has to."""
    shape = {"n_ctx_slot": 128, "kv_unified": True}
    with staged(files.target, files.head, files.type, n_slots=4, n_ctx=64, shape=shape) as stage:
        for i in range(4):
            stage.submit([i, *PROMPT[:30]], 45)
        n_paused = 0
        while stage.core.busy:
            stage.step()
            n_paused = max(n_paused, sum(active.paused is not None for active in stage.core.queue))
        stage.check_rows(reference)
        assert n_paused or not stage.core.memory.shared
        assert all(len(client.tokens) == 45 for client in stage.clients)
        assert stage.check_drafts(reference, most=20) > 20


def test_rows_of_other_adapters_are_not_used(files: Files, tmp_path: Path) -> None:
    """The text is the same, what the target computed of it is not. Nobody has read that in between."""
    adapters = ((write_lora(tmp_path / "lora.gguf", check_gguf(files.target).architecture), 0.0),)
    with staged(files.target, files.head, files.type, adapters=adapters) as stage:
        stage.write(PROMPT, 4)
        stage.write(PROMPT, 4, types=(), adapter="1.0")
        stage.write([*PROMPT[:30], 7, 8], 3, adapter="1.0")
        trace = stage.heads[0]._traces[0]
        found, tokens = trace.rows(trace.start, trace.end).copy(), trace.text
    with staged(files.target, files.head, files.type, adapters=adapters) as stage:
        stage.write([*tokens, 9], 1, adapter="1.0")
        right = stage.heads[0]._traces[0].rows(trace.start, trace.end)
        assert near(found, right, CLOSE)


def write_lora(path: Path, architecture: str) -> str:
    """On what the first layer hands on."""
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 1.0)
    writer.add_tensor("blk.0.attn_output.weight.lora_a", np.eye(1, WIDTH, dtype=np.float32))
    writer.add_tensor("blk.0.attn_output.weight.lora_b", np.ones((WIDTH, 1), np.float32))
    write_out(writer)
    return str(path)


Step = tuple[str, int, int]
ACTIONS = ["new", "half", "near", "near", "go on", "other", "cancel"]
STEPS = st.one_of(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(1, 30)),
    st.tuples(st.just("step"), st.integers(1, 3), st.just(0)),
)


class Sequence:
    """Random requests in four slots. A quarter of what the head drafts is replaced by what the target will write, and
    so accepted; the rest is as it comes."""

    def __init__(self, stage: Stage, reference: Reference) -> None:
        self.stage, self.reference = stage, reference
        self.n = 0

    def play(self, steps: list[Step]) -> None:
        for action, which, n in steps:
            if action == "step":
                self._step(which)
            elif action == "cancel":
                self._cancel(which)
            else:
                self._submit(action, which, n)
        self._step(1)
        for slot in range(4):
            self._cancel(slot)
        self.stage.run()
        self.stage.drafts.clear()
        self.stage.clients.clear()

    def _step(self, n: int) -> None:
        for _ in range(n):
            self.stage.step()
        self.stage.check_rows(self.reference)
        self.stage.check_drafts(self.reference, most=1)

    def _cancel(self, slot: int) -> None:
        active = self.stage.core.slots[slot].active
        if active:
            active.cancelled = True

    def _submit(self, action: str, slot: int, n: int) -> None:
        """A prompt of its own, or one that shares half of what the slot has, nearly all or all of it; or does without
        the head."""
        held = self.stage.core.slots[slot].tokens
        self.n += 1
        new = [int(token) for token in np.random.default_rng((self.n, n)).integers(0, 256, n)]
        near = len(held) - 1 - n % 4
        kept = {"half": len(held) // 2, "near": near, "go on": len(held), "other": len(held) // 2}.get(action, 0)
        types = ("suffix",) if action == "other" else None
        self.stage.submit([*held[: max(0, kept)], *new][:100], n % 8, slot=slot, types=types, n_max=1 + n % 5)


@pytest.fixture(scope="module")
def sequence(files: Files, reference: Reference) -> Iterator[Sequence]:
    """Windows of twelve rows: they slide with every answer."""
    right = random.Random(1)
    texts: dict[tuple[int, ...], list[int]] = {}

    def spoil(request: DraftRequest, draft: Draft) -> Draft:
        if not draft.tokens or right.random() < 0.5:
            return draft
        key = tuple(request.tokens)
        n = right.randint(1, len(draft))
        if key not in texts:
            texts[key] = reference.write(key, len(draft))
        return Draft([*texts[key][:n], *draft.tokens[n:]], draft.source, draft.confidence)

    options = {"n_slots": 4, "rows": 12, "spoil": spoil, "shape": {"n_ubatch": 16}}
    with staged(files.target, files.head, files.type, "suffix", **options) as stage:  # type: ignore[arg-type]
        yield Sequence(stage, reference)
        stats = stage.core.drafting.stats[files.type]
        assert 0 < stats.n_accepted_tokens < stats.n_tokens


@settings(max_examples=14, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=4, max_size=14))
def test_random_sequences_never_use_a_wrong_row(sequence: Sequence, steps: list[Step]) -> None:
    sequence.play(steps)
