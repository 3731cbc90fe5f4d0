"""The tiny heads load, draft by the text, and are right where they must be: what the drafters' tests build upon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.heads.heads import write_dflash, write_dspark, write_eagle3
from tests.heads.reference import Reference
from tests.heads.right import (
    write_right_dflash,
    write_right_dspark,
    write_right_eagle3,
    write_right_gemma4,
    write_right_gemma4_assistant,
    write_right_llama,
    write_right_step35,
)
from tests.heads.targets import write_gemma4, write_gemma4_assistant, write_qwen2, write_step35
from tests.tiny import write_model

Writer = Callable[[Path], str]
SOME = sorted(int(token) for token in np.random.default_rng(5).permutation(256)[:100])
"""The tokens that a head with a smaller vocabulary knows."""


def write_llama(path: Path) -> str:
    return write_model(path, seed=1, n_layer=4, scale=4.0)


PAIRS: dict[str, tuple[Writer, Writer | None]] = {
    "eagle3": (write_llama, write_eagle3),
    "eagle3 without a norm": (write_llama, lambda path: write_eagle3(path, normed=False)),
    "eagle3 of some tokens": (write_llama, lambda path: write_eagle3(path, d2t=SOME)),
    "eagle3 with borrowed embeddings": (write_llama, lambda path: write_eagle3(path, own_embeddings=False)),
    "eagle3 with borrowed output": (write_llama, lambda path: write_eagle3(path, own_output=False)),
    "eagle3 of the last row": (write_gemma4, lambda path: write_eagle3(path, layers=(1, 2, 4))),
    "dflash": (write_llama, write_dflash),
    "dflash, all borrowed": (write_llama, lambda path: write_dflash(path, own_embeddings=False, own_output=False)),
    "dflash of some tokens": (write_llama, lambda path: write_dflash(path, d2t=SOME)),
    "dflash with selector": (write_llama, lambda path: write_dflash(path, selector=True)),
    "dflash, causal": (write_llama, lambda path: write_dflash(path, causal=True)),
    "dspark": (write_llama, write_dspark),
    "dspark without confidence": (write_llama, lambda path: write_dspark(path, confidence=False, anchor=True)),
    "dspark behind its anchor": (write_llama, lambda path: write_dspark(path, anchor=False)),
    "dspark of some tokens": (write_llama, lambda path: write_dspark(path, d2t=SOME, anchor=True)),
    "mtp": (write_step35, None),
    "mtp, chained": (lambda path: write_step35(path, n_heads=3), None),
    "mtp, a file of its own": (
        lambda path: write_step35(path, blocks=False),
        lambda path: write_step35(path, trunk=False),
    ),
    "mtp, shared memory": (write_gemma4, write_gemma4_assistant),
}
RIGHT: dict[str, tuple[Writer, Writer | None]] = {
    "eagle3": (write_right_llama, write_right_eagle3),
    "mtp": (write_right_step35, None),
    "mtp, chained": (lambda path: write_right_step35(path, n_heads=3), None),
    "mtp, shared memory": (write_right_gemma4, write_right_gemma4_assistant),
    "dflash": (write_right_llama, write_right_dflash),
    "dspark": (write_right_llama, write_right_dspark),
}
SURE = {"dflash": 1, "dspark": 2}
"""How many tokens of a draft must be right, where not all."""


def opened(folder: Path, target: Writer, head: Writer | None) -> Reference:
    return Reference(target(folder / "target.gguf"), head and head(folder / "head.gguf"))


@pytest.fixture(scope="module", params=PAIRS, ids=str)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    reference = opened(tmp_path_factory.mktemp("pair"), *PAIRS[request.param])
    yield reference
    reference.close()


def texts(n: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [[int(token) for token in rng.integers(0, 256, rng.integers(2, 60))] for _ in range(n)]


def test_drafts_are_the_texts_alone(pair: Reference) -> None:
    """The same again for the same text, and mostly others for others; no draft is one token over and over."""
    drafts = [pair.draft(text, 3) for text in texts(8)]
    assert pair.draft(texts(1)[0], 3) == drafts[0]
    assert len({draft.tokens[0] for draft in drafts}) > 4
    assert len({token for draft in drafts for token in draft.tokens}) > 6
    assert all(len(draft.tokens) == 3 for draft in drafts)
    assert all(0 < chance <= 1 for draft in drafts for chance in draft.chances)
    assert np.median([lead for draft in drafts for lead in draft.leads]) > 0.2


def test_a_draft_hears_every_part_of_its_text(pair: Reference) -> None:
    """The last token, which the target has not computed, the one before, and earlier ones."""
    text = texts(1)[0][:12]
    chances = [pair.draft(text, 3).chances]
    for i in (2, -2, -1):
        changed = text.copy()
        changed[i] = (text[i] + 100) % 256
        chances.append(pair.draft(changed, 3).chances)
    assert all(not np.allclose(chances[0], other, atol=1e-4) for other in chances[1:])


@pytest.mark.parametrize("kind", [kind for kind in PAIRS if "some tokens" in kind])
def test_a_head_of_some_tokens_drafts_only_these(kind: str, tmp_path: Path) -> None:
    reference = opened(tmp_path, *PAIRS[kind])
    drafted = {token for text in texts(5) for token in reference.draft(text, 5).tokens}
    reference.close()
    assert drafted <= set(SOME)


def test_blocks_in_a_file_of_their_own_draft_the_same(tmp_path: Path) -> None:
    together = opened(tmp_path, *PAIRS["mtp"])
    drafts = [together.draft(text, 4) for text in texts(4)]
    together.close()
    apart = opened(tmp_path, *PAIRS["mtp, a file of its own"])
    assert [apart.draft(text, 4) for text in texts(4)] == drafts
    apart.close()


def test_no_more_tokens_than_heads_or_rows(tmp_path: Path) -> None:
    lengths = {"mtp, chained": 3, "dflash": 7, "dspark": 8, "dspark behind its anchor": 7, "mtp": 20, "eagle3": 20}
    for kind, longest in lengths.items():
        reference = opened(tmp_path, *PAIRS[kind])
        assert len(reference.draft([1, 2, 3], 20).tokens) == longest, kind
        reference.close()


@pytest.mark.parametrize("kind", RIGHT)
def test_right_heads_draft_what_the_target_writes(kind: str, tmp_path: Path) -> None:
    reference = opened(tmp_path, *RIGHT[kind])
    for text in texts(6):
        drafted = reference.draft(text, 4).tokens[: SURE.get(kind, 4)]
        assert drafted == reference.write(text, len(drafted))
    reference.close()


@pytest.mark.parametrize("kind", RIGHT)
def test_right_heads_need_the_right_row(kind: str, tmp_path: Path) -> None:
    """Another token before the last: another draft. So rows that are off by one are not right."""
    reference = opened(tmp_path, *RIGHT[kind])
    firsts = {reference.draft([7, 8, token, 9], 1).tokens[0] for token in range(12)}
    reference.close()
    assert len(firsts) > 7


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (lambda path: write_eagle3(path, target_width=32), "reads rows of 32"),
        (lambda path: write_dflash(path, width=48), "reads rows of 48"),
        (lambda path: write_step35(path, trunk=False, width=32), "reads rows of 32"),
        (lambda path: write_eagle3(path, layers=(1, 2, 5)), "a target that has 4"),
        (lambda path: write_eagle3(path, layers=(1, 2, 4)), "no such rows"),
        (lambda path: write_step35(path, trunk=False), "no such rows"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(head: Writer, says: str, tmp_path: Path) -> None:
    """A llama hands out its layers' inputs, but not its last row."""
    with pytest.raises(ValueError, match=says):
        opened(tmp_path, write_llama, head).draft([1, 2, 3], 1)


def test_qwen2_gives_no_layer_inputs(tmp_path: Path) -> None:
    """libllama ends the process: whoever switches them on must have tried it elsewhere first."""
    target, head = write_qwen2(tmp_path / "target.gguf"), write_eagle3(tmp_path / "head.gguf")
    script = "import sys; from tests.heads.reference import Reference; Reference(*sys.argv[1:]).draft([1, 2, 3], 1)"
    quietly = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    died = subprocess.run([sys.executable, "-c", script, target, head], env=quietly, capture_output=True, timeout=300)
    assert died.returncode == -signal.SIGABRT
