"""From tokens to vectors: a context of its own that pools what the model makes of each token. Knows no text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.config import MAX_TEXTS, ContextParams
from paceline.errors import ContextFull, DecodeError, ModelError
from paceline.llama.context import NO_POOLING, RANK_POOLING, Context
from paceline.llama.lib import Floats, c
from paceline.llama.model import Model

MAX_INT16 = 32760.0


class Embedder:
    """Vectors, or a score where the pooling is `rank`. Several texts are computed at once, each whole in one
    micro-batch, since pooling sees no further."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        n = params.n_ubatch
        n_seqs = MAX_TEXTS if model.can_roll_back else 1
        params = replace(params, n_ctx=n, n_batch=n, n_seqs=n_seqs, kv_unified=True)
        self._context = Context(model, params, pooled=True)
        if params.pooling is None and self._kind == NO_POOLING:
            self._context.close()
            self._context = Context(model, replace(params, pooling="mean"), pooled=True)
        if self._kind == RANK_POOLING and params.pooling != "rank":
            self._context.close()
            raise ModelError(f"{model.path} ranks texts and has no embeddings; start it with --reranking")
        n_trained = n if self._context.has_memory else model.n_ctx_train or n
        self.n_most = min(n, n_trained, self._context.n_ctx_seq)
        self._advice = "raise -ub" if n <= n_trained else "the model knows no further positions"
        self._n_seqs = n_seqs
        self._n_values = int(c.llama_model_n_embd_out(model.handle))
        if self._kind == RANK_POOLING:
            self._n_values = int(c.llama_model_n_cls_out(model.handle))
        self._batch = self._context.new_batch()

    @property
    def _kind(self) -> int:
        return int(c.llama_pooling_type(self._context.handle))

    def embed(self, texts: Sequence[Sequence[int]], normalize: int = 2, n_values: int | None = None) -> list[Floats]:
        """Each text's vectors, one a row: as many as it has tokens where nothing is pooled, else one. `n_values` keeps
        the first so many of each; `normalize` is llama-server's number for a norm. All texts fit in one batch."""
        for tokens in texts:
            self.check(len(tokens))
        n = self._n_seqs
        found = [vectors for first in range(0, len(texts), n) for vectors in self._compute(texts[first : first + n])]
        if self._kind == NO_POOLING:
            normalize = -1
        return [normalized(vectors[:, :n_values], normalize) for vectors in found]

    def check(self, n: int) -> None:
        if n > self.n_most:
            raise ContextFull(
                f"a text of {n} tokens is too large: {self.n_most} can be embedded at once; {self._advice}"
            )

    def _compute(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        context, batch = self._context, self._batch
        context.clear()
        batch.clear()
        rows = [batch.add(seq, tokens, 0, n_outputs=len(tokens)) for seq, tokens in enumerate(texts)]
        context.decode(batch)
        if self._kind != NO_POOLING:
            return [self._row(c.llama_get_embeddings_seq(context.handle, seq)) for seq in range(len(texts))]
        return [
            np.concatenate([self._row(c.llama_get_embeddings_ith(context.handle, row + i)) for i in range(len(tokens))])
            for row, tokens in zip(rows, texts, strict=True)
        ]

    def _row(self, found: Sequence[float]) -> Floats:
        """A copy: the next batch overwrites it."""
        if not found:
            raise DecodeError("libllama has no embedding for a text")
        return np.array(found[: self._n_values], np.float32)[None]

    def close(self) -> None:
        self._context.close()


def normalized(vectors: Floats, kind: int) -> Floats:
    """llama-server's numbers: -1 as they are, 0 the largest is 32760, 1 and more the p-norm of that number is 1."""
    if kind < 0:
        return vectors
    sizes = np.abs(vectors.astype(np.float64))
    if kind == 0:
        scale = sizes.max(axis=1, keepdims=True) / MAX_INT16
    else:
        scale = (sizes**kind).sum(axis=1, keepdims=True) ** (1 / kind)
    out: Floats = (vectors / np.maximum(scale, 1e-12)).astype(np.float32)
    return out
