"""Taking tokens back from memories that are no list of cells, on the real libllama."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from paceline.config import ContextParams, ModelParams
from paceline.llama.context import Context
from paceline.llama.lib import Floats, c
from paceline.llama.model import Model
from tests.recurrent_files import write_each

pytestmark = pytest.mark.model

TOKENS = [(17 * i * i + 5 * i) % 256 for i in range(80)]
WRONG = [9, 8, 7, 6, 5, 4, 3, 2, 1]
NOISE = 0.02  # batches of other sizes round otherwise; another state is off by more than a hundred times as much
Opener = Callable[..., Context]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_each(tmp_path_factory.mktemp("recurrent"))


@pytest.fixture
def opened(files: dict[str, str]) -> Iterator[Opener]:
    with ExitStack() as stack:

        def of(name: str, n_snapshots: int = 8, n_ubatch: int = 64, n_seqs: int = 2) -> Context:
            model = stack.enter_context(Model(ModelParams(path=files[name])))
            shape = ContextParams(n_ctx=512, n_seqs=n_seqs, n_threads=1, n_snapshots=n_snapshots, n_ubatch=n_ubatch)
            return stack.enter_context(Context(model, shape))

        yield of


def rows(context: Context, tokens: list[int], at: int, seq: int = 0) -> Floats:
    batch = context.new_batch()
    batch.add(seq, tokens, at, len(tokens))
    return context.decode(batch).copy()


def plain(context: Context, seq: int = 1) -> Floats:
    """Of all tokens, one after the other."""
    return np.concatenate([rows(context, [token], i, seq) for i, token in enumerate(TOKENS)])


def differ(a: Floats, b: Floats) -> float:
    return float(np.abs(a - b).max())


def test_what_can_be_taken_back(opened: Opener) -> None:
    assert opened("gemma3").n_rollback is None
    assert opened("qwen35").n_rollback == opened("lfm2").n_rollback == 8
    assert opened("qwen35", n_snapshots=0).n_rollback == 0
    assert opened("mamba").n_rollback == 0


@pytest.mark.parametrize("n_ubatch", [2, 3, 8, 9])
def test_more_snapshots_than_a_micro_batch_holds_do_not_end_the_process(opened: Opener, n_ubatch: int) -> None:
    context = opened("qwen35", n_ubatch=n_ubatch)
    assert context.n_rollback == max(0, n_ubatch - 2)
    assert differ(rows(context, TOKENS, 0), plain(context)) < NOISE


@pytest.mark.parametrize("name", ["qwen35", "lfm2", "gemma3"])
def test_a_rejected_draft_leaves_nothing_behind(opened: Opener, name: str) -> None:
    context, at = opened(name), 0
    expected = plain(context)
    for n_kept, n_wrong in [(3, 0), (1, 8), (2, 5), (1, 0), (4, 3), (1, 1), (30, 8), (2, 0), (1, 7), (35, 2)]:
        kept = TOKENS[at : at + n_kept]
        found = rows(context, kept + WRONG[:n_wrong], at)[: len(kept)]
        assert differ(found, expected[at : at + len(kept)]) < NOISE
        at += len(kept)
        assert context.remove(0, at)
    assert at == len(TOKENS)


def test_only_the_latest_batch_can_be_taken_back_and_only_once(opened: Opener) -> None:
    context = opened("qwen35")
    expected = plain(context)
    rows(context, TOKENS[:20], 0)
    rows(context, TOKENS[20:22], 20)
    assert not context.remove(0, 19), "two batches back"
    assert not context.remove(0, 20), "the whole batch"
    assert context.remove(0, 21)
    assert not context.remove(0, 20)
    assert differ(rows(context, TOKENS[21:], 21), expected[21:]) < NOISE
    assert not context.remove(0, 71), "nine tokens, of eight that are kept"
    assert context.remove(0, 72)


def test_libllama_itself_goes_back_to_what_an_older_batch_left(opened: Opener) -> None:
    """Why we count: it says yes, and the text is another one from there on."""
    context = opened("qwen35")
    expected = plain(context)
    rows(context, TOKENS[:20], 0)
    rows(context, TOKENS[20:22], 20)
    assert c.llama_memory_seq_rm(c.llama_get_memory(context.handle), 0, 17, -1)
    assert differ(rows(context, TOKENS[17:], 17), expected[17:]) > 10 * NOISE


@pytest.mark.parametrize("name", ["qwen35", "mamba"])
@pytest.mark.parametrize("n_snapshots", [0, 4])
def test_going_back_to_a_mark(opened: Opener, name: str, n_snapshots: int) -> None:
    context = opened(name, n_snapshots)
    expected = plain(context)
    rows(context, TOKENS[:20], 0)
    mark = context.mark(0)
    for wrong in (WRONG, WRONG * 4):
        rows(context, [TOKENS[20], *wrong], 20)
        assert not context.remove(0, 21)
        assert context.go_back(0, mark, 20)
    assert not context.remove(0, 19)
    assert differ(rows(context, TOKENS[20:40], 20), expected[20:40]) < NOISE
    again = context.mark(0, mark)
    assert again is mark, "the same bytes serve again"
    rows(context, WRONG, 40)
    assert context.go_back(0, mark, 40)
    assert differ(rows(context, TOKENS[40:], 40), expected[40:]) < NOISE


def test_marks_are_smaller_than_states_and_do_not_grow(opened: Opener) -> None:
    context = opened("qwen35")
    rows(context, TOKENS[:10], 0)
    size, whole = context.mark(0).size, context.state_size(0)
    rows(context, TOKENS[10:60], 10)
    assert context.mark(0).size == size < whole < context.state_size(0)


def test_what_was_just_taken_back_is_saved_as_it_is_now(opened: Opener, tmp_path: Path) -> None:
    context = opened("qwen35")
    expected = plain(context)
    rows(context, TOKENS[:20] + WRONG[:6], 0)
    assert context.remove(0, 20)
    context.save(0, TOKENS[:20], str(tmp_path / "slot"))
    context.fill(1, context.read(str(tmp_path / "slot")))
    assert differ(rows(context, TOKENS[20:], 20, seq=1), expected[20:]) < NOISE
    assert differ(rows(context, TOKENS[20:], 20, seq=0), expected[20:]) < NOISE


def several(context: Context, tokens: dict[int, list[int]], at: dict[int, int]) -> None:
    batch = context.new_batch()
    for seq, each in tokens.items():
        batch.add(seq, each, at[seq], 1)
    context.decode(batch)


@pytest.mark.parametrize("seqs", [(0, 1, 2, 3), (0, 2), (1, 3), (3, 0)])
def test_sequences_of_one_batch_are_taken_back_each_by_its_own(opened: Opener, seqs: tuple[int, ...]) -> None:
    context = opened("qwen35", n_seqs=4)
    expected = plain(context)
    context.clear()
    at = dict.fromkeys(range(4), 1)
    several(context, dict.fromkeys(range(4), TOKENS[:1]), dict.fromkeys(range(4), 0))
    for n_kept in ((2, 5, 3, 4), (6, 1, 1, 2), (1, 1, 6, 3)):
        right = {seq: TOKENS[at[seq] :][:n] for seq, n in zip(seqs, n_kept, strict=False)}
        several(context, {seq: [*kept, *WRONG][:7] for seq, kept in right.items()}, at)
        for seq, kept in right.items():
            at[seq] += len(kept)
            assert context.remove(seq, at[seq])
    for seq in range(4):
        assert differ(rows(context, TOKENS[at[seq] :], at[seq], seq), expected[at[seq] :]) < NOISE


def test_batches_that_libllama_cuts_are_not_taken_back(opened: Opener) -> None:
    """It moves states when it computes some of the sequences first, and their snapshots stay where they were."""
    context = opened("qwen35", n_seqs=4)
    several(context, {seq: TOKENS[: 9 - seq] for seq in range(4)}, dict.fromkeys(range(4), 0))
    assert not any(context.remove(seq, 9 - seq - 1) for seq in range(4))
    several(context, dict.fromkeys(range(4), TOKENS[:20]), {seq: 9 - seq for seq in range(4)})
    assert not any(context.remove(seq, 28 - seq) for seq in range(4)), "more than a micro-batch"
    several(context, {0: TOKENS[:5]}, {0: 29})
    several(context, {1: TOKENS[:5]}, {1: 28})
    assert not context.remove(0, 33), "another batch came after it"
    assert context.remove(1, 31)
