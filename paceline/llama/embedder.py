"""From tokens to one vector: a context of its own that pools what the model makes of each token. Knows no text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.config import ContextParams
from paceline.errors import ContextFull, ModelError
from paceline.llama.context import NO_POOLING, POOLING_TYPES, Context
from paceline.llama.lib import Floats, c
from paceline.llama.model import Model


class Embedder:
    """Vectors of length one. A text is computed in one micro-batch, since pooling sees no further."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        n = params.n_ubatch
        params = replace(params, n_ctx=n, n_batch=n, n_seqs=1)
        self._context = Context(model, params, pooled=True)
        if params.pooling is None and c.llama_pooling_type(self._context.handle) == NO_POOLING:
            self._context.close()
            self._context = Context(model, replace(params, pooling="mean"), pooled=True)
        if c.llama_pooling_type(self._context.handle) not in POOLING_TYPES.values():
            self._context.close()
            raise ModelError(f"{model.path} ranks texts and has no embeddings")
        self.n_most = min(n, self._context.n_ctx_seq)
        self.n_values = int(c.llama_model_n_embd_out(model.handle))
        self._batch = self._context.new_batch()

    def embed(self, tokens: Sequence[int]) -> Floats:
        if len(tokens) > self.n_most:
            raise ContextFull(f"the text has {len(tokens)} tokens, {self.n_most} can be embedded at once; raise -ub")
        context, batch = self._context, self._batch
        context.clear()
        batch.clear()
        batch.add(0, tokens, 0, n_outputs=len(tokens))
        context.decode(batch)
        vector = np.array(c.llama_get_embeddings_seq(context.handle, 0)[: self.n_values], np.float32)
        return vector / max(1e-12, float(np.linalg.norm(vector)))

    def close(self) -> None:
        self._context.close()
