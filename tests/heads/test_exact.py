"""The text is the same to the byte whatever a head drafts, in exact mode; and greedily in any mode, on these files
whose choices are clear."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.config import SamplingParams
from paceline.drafters.base import Draft, DraftRequest
from paceline.llama.model import quantize
from tests.heads.kinds import KINDS, Files, write_files
from tests.heads.recording import ENDLESS, Spoil, Stage, staged

pytestmark = pytest.mark.model

SAMPLINGS = [ENDLESS, SamplingParams(temperature=0.8, seed=7, ignore_eos=True)]
PROMPTS = [[int(token) for token in np.random.default_rng(n).integers(0, 256, n)] for n in (3, 40)]
N = 15


def written(stage: Stage) -> list[list[int]]:
    """Prompts and what follows them, all at once; and the first one again, whose beginning is still known."""
    clients = [stage.submit(prompt, N, sampling=sampling) for prompt in PROMPTS for sampling in SAMPLINGS]
    stage.run()
    clients.append(stage.submit(PROMPTS[1][:36], N))
    stage.run()
    return [[*client.request.tokens, *client.tokens] for client in clients]


def mixed(texts: list[list[int]]) -> Spoil:
    """Drafts are right for a while and wrong after that, by knowledge of the text."""
    dice = random.Random(1)

    def spoil(request: DraftRequest, draft: Draft) -> Draft:
        n, here = dice.randint(0, len(draft)), len(request.tokens)
        text = next((text for text in texts if text[:here] == request.tokens), [])
        wrong = [(token + 1) % 256 for token in draft.tokens[n:]] if dice.random() < 0.5 else draft.tokens[n:]
        return Draft([*text[here : here + n], *wrong][: len(draft)], draft.source, draft.confidence)

    return spoil


Expected = Callable[..., list[list[int]]]


@pytest.fixture(scope="module")
def expected() -> Expected:
    """What each target writes when nothing is drafted; the same from files of other names."""
    found: dict[tuple[Any, ...], list[list[int]]] = {}

    def of(files: Files, **how: Any) -> list[list[int]]:
        key = (hash(Path(files.target).read_bytes()), *how.items())
        if key not in found:
            with staged(files.target, None, **how) as stage:
                found[key] = written(stage)
        return found[key]

    return of


@pytest.fixture(scope="module", params=KINDS, ids=str)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_files(tmp_path_factory.mktemp("files"), request.param)


def drafted(files: Files, plain: list[list[int]], **how: Any) -> list[list[int]]:
    """The same with a head; some of what it drafts is accepted, some is not."""
    with staged(files.target, files.head, files.type, spoil=mixed(plain), **how) as stage:
        texts = written(stage)
        stats = stage.core.drafting.stats[files.type]
    assert stats.n_accepted_tokens > 5
    assert stats.n_tokens - stats.n_accepted_tokens > 2
    return texts


@pytest.mark.parametrize("n_slots", [1, 4])
def test_exact_text_is_the_same_to_the_byte(files: Files, expected: Expected, n_slots: int) -> None:
    how = {"n_slots": n_slots, "exact": True, "precise": False}
    plain = expected(files, **how)
    assert drafted(files, plain, **how) == plain


def test_greedy_text_is_the_same_where_choices_are_clear(files: Files, expected: Expected) -> None:
    plain = expected(files, n_slots=4)
    texts = drafted(files, plain, n_slots=4)
    assert texts[: -1 : len(SAMPLINGS)] == plain[: -1 : len(SAMPLINGS)]


@pytest.mark.parametrize(
    ("kind", "precision"),
    [("eagle3", "Q8_0"), ("eagle3", "Q4_0"), ("mtp", "Q8_0"), ("mtp", "Q4_0"), ("mtp, chained", "Q4_0")],
)
def test_exact_text_of_quantised_models_is_the_same(
    kind: str, precision: str, expected: Expected, tmp_path: Path
) -> None:
    files = write_files(tmp_path, kind)
    small = str(tmp_path / "small.gguf")
    quantize(files.target, small, precision, n_threads=1)
    files = Files(small, files.head, files.type)
    how = {"n_slots": 4, "exact": True, "precise": False}
    plain = expected(files, **how)
    assert drafted(files, plain, **how) == plain
