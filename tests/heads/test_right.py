"""Heads that must agree with their target: what they draft is accepted, greedily and at a temperature, from the first
token of an answer to long after the context has shifted; and several drafters work together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from paceline.config import SamplingParams
from paceline.config.drafters import DrafterSettings, DraftModelParams
from paceline.drafters.base import Draft, DraftRequest
from paceline.engine.stats import DrafterStats
from paceline.planner.policy import AutoPolicy
from tests.heads.kinds import KINDS, Files, Writer, write_files, write_hybrid
from tests.heads.recording import ENDLESS, Stage, staged
from tests.heads.reference import Reference
from tests.heads.right import (
    write_right_eagle3,
    write_right_llama,
    write_right_step35,
)

pytestmark = pytest.mark.model

RIGHT = ["eagle3, right", "mtp, right", "mtp, chained, right", "mtp, shared memory, right"]
SAMPLED = SamplingParams(temperature=0.8, seed=3, ignore_eos=True)


class Deep(Protocol):
    def __call__(self, path: Path, *, n_layer: int) -> str: ...


def text(seed: int, n: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 256, n)]


@pytest.fixture(scope="module", params=RIGHT, ids=str)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_files(tmp_path_factory.mktemp("files"), request.param)


def written(stage: Stage, sampling: SamplingParams, n: int = 40) -> DrafterStats:
    """What became of the head's drafts in several texts at once."""
    for i in range(4):
        stage.submit(text(i, 5 + 9 * i), n, sampling=replace(sampling, seed=i))
    stage.run()
    return next(iter(stage.core.drafting.stats.values()))


def rate(stats: DrafterStats) -> float:
    return stats.n_accepted_tokens / stats.n_tokens


@pytest.mark.parametrize("n_slots", [1, 4])
def test_a_right_head_is_accepted(files: Files, n_slots: int) -> None:
    with staged(files.target, files.head, files.type, n_slots=n_slots) as stage:
        stats = written(stage, ENDLESS)
        n_steps = sum(stage.timings(client).n_steps for client in stage.clients)
    assert stats.n_tokens > 80
    assert rate(stats) >= 0.95
    assert n_steps < 4 * 40 / 3, "drafts of three tokens and more"


def test_the_same_noise_makes_a_right_head_right_at_a_temperature(files: Files) -> None:
    with staged(files.target, files.head, files.type, n_slots=4) as stage:
        with_noise = rate(written(stage, SAMPLED))
    with staged(files.target, files.head, files.type, n_slots=4) as stage:
        deaf(stage)
        without = rate(written(stage, SAMPLED))
    assert with_noise >= 0.9
    assert without < with_noise - 0.2


def deaf(stage: Stage) -> None:
    """The head hears nothing of the noise by which the target draws."""
    drafter = stage.heads[0]
    make = drafter.draft

    def draft(requests: Sequence[DraftRequest]) -> list[Draft]:
        return make([replace(request, noise=None) for request in requests])

    drafter.draft = draft  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("target", "head", "type"),
    [
        (write_right_llama, write_right_eagle3, "draft-eagle3"),
        (write_right_step35, None, "draft-mtp"),
    ],
)
def test_the_planner_uses_a_right_head(target: Deep, head: Writer | None, type: str, tmp_path: Path) -> None:
    """The target has many layers, which say nothing but take their time; its head has one. They are right without being
    sure of it: the planner hears of that as it would from a test text."""
    agreements = [(confidence / 50, True) for confidence in range(1, 50)]
    path = target(tmp_path / "target.gguf", n_layer=150)
    with staged(path, head(tmp_path / "head.gguf") if head else None, type, spec_policy="auto") as stage:
        policy = stage.engine.parts.policy
        assert isinstance(policy, AutoPolicy)
        policy.set_agreement(type, agreements, stage.core.drafting.token_seconds(type, 1))
        stats = stage.core.drafting.stats[type]
        for i in range(12):
            stage.submit(text(i, 20), 40)
            stage.run()
            if stats.n_accepted_tokens > 30:
                break
    assert stats.n_accepted_tokens > 30
    assert rate(stats) > 0.9


def test_a_head_goes_on_after_the_context_has_shifted(files: Files) -> None:
    """Cells that have moved are the same to these targets, so what is drafted is as right as before."""
    with staged(files.target, files.head, files.type, n_ctx=256, shape={"n_ctx_slot": 64}, context_shift=True) as stage:
        stage.submit(text(1, 40), 80)
        while not stage.core.slots[0].n_dropped:
            stage.step()
        stats = stage.core.drafting.stats[files.type]
        n_tokens, n_accepted = stats.n_tokens, stats.n_accepted_tokens
        stage.run()
    assert stats.n_tokens - n_tokens > 20
    assert stats.n_accepted_tokens - n_accepted >= 0.95 * (stats.n_tokens - n_tokens)


def test_idle_measuring_finds_a_place_after_the_text(files: Files) -> None:
    with staged(files.target, files.head, files.type, spec_policy="auto") as stage:
        prompt = text(1, 30)
        answer = stage.write(prompt, 8)
        idle = stage.engine.loop.idle
        assert idle
        while idle.turn(1):
            pass
        plain = stage.write([*prompt, *answer], 8)
        assert plain == stage.write([*prompt, *answer], 8, cache_prompt=False)


# -- several at once


def test_a_head_goes_on_after_a_look_up(tmp_path: Path) -> None:
    """What the look-up says is taken as it is: the head computes on from it with rows of its own."""
    for kind in ("eagle3", "mtp", "mtp, chained"):
        files = write_files(tmp_path, kind)
        reference = Reference(files.target, files.head)
        with staged(files.target, files.head, "ngram-simple", files.type, n_slots=2) as stage:
            for i in range(2):
                stage.submit([int(token) for token in np.random.default_rng(i).permutation(256)[:100]], 20)
            stage.run()
            stage.drafts = [noted for noted in stage.drafts if noted.ahead]
            assert stage.check_drafts(reference, most=8) > 5
        reference.close()


def test_two_heads_of_one_target(tmp_path: Path) -> None:
    """Each drafts two tokens at most: so the second goes on after the first, and reads the same batches."""
    short = DrafterSettings(draft_model=DraftModelParams(n_max=2))
    target = write_hybrid(tmp_path / "target.gguf")
    head = KINDS["eagle3, hybrid"][1]
    assert head
    eagle = head(tmp_path / "head.gguf")
    references = {"draft-mtp": Reference(target), "draft-eagle3": Reference(target, eagle)}
    with staged(target, eagle, "draft-mtp", "draft-eagle3", n_slots=2, drafters=short) as stage:
        for i in range(3):
            stage.submit(text(i, 20), 8)
        stage.run()
        noted = stage.drafts
        for name, reference in references.items():
            stage.drafts = list(noted)
            assert stage.check_drafts(reference, name, most=6) > 5
    for reference in references.values():
        reference.close()


def test_a_head_beside_suffixes(tmp_path: Path) -> None:
    files = write_files(tmp_path, "eagle3")
    reference = Reference(files.target, files.head)
    with staged(files.target, files.head, "suffix", files.type, n_slots=2) as stage:
        for i in range(2):
            stage.submit(text(i, 9) * 4, 10)
        stage.run()
        assert stage.check_rows(reference) > 40
        assert stage.check_drafts(reference, most=6) > 5
    reference.close()
