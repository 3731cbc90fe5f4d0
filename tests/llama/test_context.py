"""A context's size: the total, and what one sequence may hold of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paceline.config import ContextParams, ModelParams
from paceline.llama.context import Context
from paceline.llama.model import Model

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def model(target: str) -> Iterator[Model]:
    with Model(ModelParams(path=target)) as model:
        yield model


@pytest.mark.parametrize(
    ("params", "n_ctx", "n_ctx_seq"),
    [
        (ContextParams(n_ctx=512, n_seqs=2), 512, 256),
        (ContextParams(n_ctx=512, n_seqs=2, kv_unified=True), 512, 512),
        (ContextParams(n_ctx=512, n_seqs=2, kv_unified=False), 512, 256),
        (ContextParams(n_ctx=700, n_seqs=2), 1024, 512),
        (ContextParams(n_seqs=2), 512, 256),
        (ContextParams(n_ctx=1024, n_seqs=2, kv_unified=True, n_ctx_slot=300), 1024, 300),
    ],
)
def test_each_sequence_has_a_part_of_the_whole(model: Model, params: ContextParams, n_ctx: int, n_ctx_seq: int) -> None:
    with Context(model, params) as context:
        assert (context.n_ctx, context.n_ctx_seq) == (n_ctx, n_ctx_seq)
        assert context.kv_unified is (params.kv_unified is not False)
