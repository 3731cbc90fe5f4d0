"""What a head drafts while the engine writes is what the slow reference drafts from the same text, whatever came
before: rejected drafts, other requests in the slot, cancellation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tests.heads.kinds import KINDS, Files, write_files
from tests.heads.recording import Stage, staged
from tests.heads.reference import Reference

pytestmark = pytest.mark.model


@dataclass
class Scene:
    files: Files
    stage: Stage
    reference: Reference


@pytest.fixture(scope="module", params=KINDS, ids=str)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_files(tmp_path_factory.mktemp("files"), request.param)


@pytest.fixture(scope="module")
def reference(files: Files) -> Iterator[Reference]:
    reference = Reference(files.target, files.head)
    yield reference
    reference.close()


@pytest.fixture(scope="module", params=[1, 4], ids=["one slot", "four slots"])
def scene(request: pytest.FixtureRequest, files: Files, reference: Reference) -> Iterator[Scene]:
    with staged(files.target, files.head, files.type, n_slots=request.param) as stage:
        yield Scene(files, stage, reference)


def text(seed: int, n: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 256, n)]


def test_drafts_of_all_slots(scene: Scene) -> None:
    """Prompts of several batches and of a few tokens, and answers beside prompts that are still read."""
    stage = scene.stage
    for i, n in enumerate((40, 3, 21, 70)):
        stage.submit(text(i, n), 9)
    stage.run()
    assert len({noted.seq for noted in stage.drafts}) == len(stage.core.slots)
    assert stage.check_rows(scene.reference) > 60
    assert stage.check_drafts(scene.reference, most=6) > 8


def test_drafts_after_prompts_that_begin_alike(scene: Scene) -> None:
    """One that shares half of the prompt, one that goes on after the answer, and one that ends within it."""
    stage, prompt = scene.stage, text(10, 40)
    whole = [*prompt, *stage.write(prompt, 8), *text(11, 2)]
    stage.drafts.clear()
    for again in ([*prompt[:20], *text(12, 9)], whole, whole[:44]):
        stage.write(again, 6)
        assert stage.check_drafts(scene.reference, most=2) > 1
    assert stage.check_rows(scene.reference) > 40


def test_drafts_after_cancelling(scene: Scene) -> None:
    stage, prompt = scene.stage, text(20, 30)
    cancelled = stage.submit(prompt, 50)
    while len(cancelled.tokens) < 5:
        stage.step()
    cancelled.cancel()
    stage.run()
    assert cancelled.reason == "cancelled"
    stage.drafts.clear()
    stage.write([*prompt, *cancelled.tokens[:4], 7, 8], 5)
    assert stage.check_drafts(scene.reference, most=2) > 1


def test_drafts_after_requests_without_the_head(scene: Scene) -> None:
    """What they have computed nobody has read: the head goes on from what it knows, or starts afresh."""
    stage, prompt = scene.stage, text(30, 24)
    stage.write(prompt, 5, slot=0)
    other = [*prompt[:12], *text(31, 20)]
    other += stage.write(other, 5, slot=0, types=())
    stage.drafts.clear()
    for again in (other, [*prompt, 1, 2, 3]):
        stage.write(again, 5, slot=0)
        assert stage.check_drafts(scene.reference, most=1) > 0
    assert stage.check_rows(scene.reference) > 3
