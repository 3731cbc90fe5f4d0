"""A head's graph cut short: the same bits as the whole of it, and no logits for what is only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from paceline.config import ContextParams, ModelParams
from paceline.errors import DecodeError
from paceline.llama.context import Context
from paceline.llama.devices import can_offload
from paceline.llama.head import HeadContext
from paceline.llama.lib import Floats, Ints
from paceline.llama.model import Model
from paceline.llama.shortcut import Shortcut
from tests.heads.heads import write_eagle3
from tests.heads.test_reference import SOME, write_llama
from tests.tiny import TOKENS

pytestmark = [pytest.mark.model, pytest.mark.skipif(can_offload(), reason="on a GPU nothing is cut short")]
SHAPE = ContextParams(n_ctx=256, n_batch=64, n_threads=2)
KNOWN: dict[str, list[int]] = {"some words": SOME, "all words": []}


@pytest.fixture(scope="module", params=KNOWN, ids=str)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Ints]:
    folder, words = tmp_path_factory.mktemp("files"), KNOWN[request.param]
    head = write_eagle3(folder / "head.gguf", d2t=words or None)
    return write_llama(folder / "target.gguf"), head, np.array(words, np.int32)


@contextmanager
def opened(target: str, head: str, *words: Ints | None) -> Iterator[list[HeadContext]]:
    """Contexts of one head."""
    with ExitStack() as stack:
        beside = stack.enter_context(Context(stack.enter_context(Model(ModelParams(path=target))), SHAPE))
        model = stack.enter_context(Model(ModelParams(path=head, head=True)))
        found = [stack.enter_context(HeadContext(model, SHAPE, beside, words=each)) for each in words]
        for context in found:
            context.try_shortcut()
        yield found


def said(context: HeadContext, n: int, position: int, n_outputs: int) -> tuple[Floats, Floats]:
    """Logits and own rows of n pairs."""
    batch = context.pair_batch()
    rng = np.random.default_rng(position)
    rows = rng.standard_normal((n, batch.width), np.float32)
    batch.add_rows(0, [int(token) for token in rng.integers(0, 256, n)], position, n_outputs, rows)
    return context.decode(batch).copy(), context.own_rows(n_outputs)


def test_a_text_in_pieces_has_the_same_bits(files: tuple[str, str, Ints]) -> None:
    """Read, asked one by one and several at once, over more cells than the trial had."""
    target, head, words = files
    with opened(target, head, None, words) as (whole, short):
        assert short.reads_apart
        assert not whole.reads_apart
        position = 0
        for n, n_outputs in ((40, 0), (1, 1), (1, 1), (5, 5), (64, 0), (2, 2), (1, 1)):
            (logits, own), (found, found_own) = (said(each, n, position, n_outputs) for each in (whole, short))
            known = slice(None) if short.words is None else short.words
            assert not n_outputs or np.array_equal(logits[:, known], found)
            assert np.array_equal(own, found_own)
            assert np.isfinite(logits).sum() == n_outputs * (len(words) or len(TOKENS))
            position += n
        assert list(short.words if short.words is not None else ()) == list(words)


def test_other_bits_are_given_up(files: tuple[str, str, Ints], monkeypatch: pytest.MonkeyPatch) -> None:
    right = Shortcut.logits
    monkeypatch.setattr(Shortcut, "logits", lambda self, n: right(self, n) + np.float32(1))
    target, head, words = files
    with opened(target, head, words) as (short,):
        assert not short.reads_apart
        assert said(short, 2, 0, 2)[0].shape == (2, len(TOKENS))


def test_a_graph_without_such_a_place_is_computed_whole(files: tuple[str, str, Ints]) -> None:
    """These words are not the file's."""
    target, head, _ = files
    with opened(target, head, np.arange(7, dtype=np.int32)) as (short,):
        assert not short.reads_apart


def test_a_graph_that_is_another_one_later_is_an_error(
    files: tuple[str, str, Ints], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, head, words = files
    with opened(target, head, words) as (short,):
        shortcut: Any = short._shortcut
        monkeypatch.setattr(shortcut, "_n_nodes", 3)
        with pytest.raises(DecodeError, match="logits for 1 tokens"):
            said(short, 1, 0, 1)
