"""A head's context: a small network that goes on from the target's states. Knows rows and tokens, no texts.

A head computes pairs of a token and a row, or takes rows alone into its memory. What it has computed of a pair is a row
again, with which it goes on by itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from paceline.config import ContextParams
from paceline.errors import DecodeError
from paceline.llama.context import Batch, Context
from paceline.llama.devices import can_offload
from paceline.llama.hidden import calls, floats, metadata
from paceline.llama.lib import Floats, Ints, c, log
from paceline.llama.model import Model
from paceline.llama.shortcut import Shortcut

SHARED_MEMORY = "gemma4-assistant"  # the architecture of heads that look at the target's cells
PER_ROW = 4  # positions of a row, for models that count in several dimensions
TRIED = 3  # pairs


class RowBatch(Batch):
    """A batch in which every token has a row, of zeros where none is given; or rows without tokens."""

    def __init__(self, capacity: int, n_seqs: int, n_positions: int, width: int, *, tokens: bool = True) -> None:
        super().__init__(capacity, n_seqs, n_positions)
        self.width = width
        self._rows = np.zeros((capacity, width), np.float32)
        self.raw.embd = self._rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        if not tokens:
            self._by_row = np.zeros(PER_ROW * capacity, np.int32)
            self.raw.token = None
            self.raw.pos = self._by_row.ctypes.data_as(ctypes.POINTER(c.llama_pos))

    def add_rows(
        self, seq: int, tokens: Sequence[int], position: int, n_outputs: int, rows: Sequence[Floats] | Floats
    ) -> int:
        first = self.n_tokens
        row = self.add(seq, tokens, position, n_outputs)
        self._rows[first : self.n_tokens] = rows
        return row

    def spread_positions(self, by: int = 0) -> None:
        """Of rows without tokens libllama wants every dimension's positions, one dimension after the other."""
        n = self.n_tokens
        for dimension in range(PER_ROW - 1):
            self._by_row[dimension * n : (dimension + 1) * n] = self._positions[:n] + by
        self._by_row[(PER_ROW - 1) * n : PER_ROW * n] = 0


class HeadContext(Context):
    """Its own rows come for tokens with logits, with `all_rows` for all. Without `pairs` it takes tokens or rows alone;
    such a one looks back and forth, unless it is `causal`. `block` says which of several heads it computes. With
    `words`, the target's tokens that it knows (none: all of them), its graph may be cut short, once that was tried;
    then its rows have logits for those alone."""

    def __init__(
        self,
        model: Model,
        params: ContextParams,
        target: Context,
        *,
        mtp: bool = False,
        block: int = 0,
        pairs: bool = True,
        causal: bool = True,
        all_rows: bool = False,
        words: Ints | None = None,
    ) -> None:
        shortcut = Shortcut(words, model.vocab.n_tokens) if words is not None and not can_offload() else None
        super().__init__(model, params, target=target, mtp=mtp, on_node=shortcut.callback if shortcut else None)
        self._shortcut = shortcut
        self._pairs = pairs
        calls().set_nextn(self.handle, True, not all_rows)
        if block:
            calls().set_block(self.handle, block)
        if not causal:
            c.llama_set_causal_attn(self.handle, False)

    @property
    def words(self) -> Ints | None:
        """Whose logits its rows hold; None for all of the target's tokens, in order."""
        return (
            self._shortcut.words if self._shortcut and self._shortcut.is_known and len(self._shortcut.words) else None
        )

    @property
    def reads_apart(self) -> bool:
        """Whether no logits are computed of pairs that are only read."""
        return bool(self._shortcut and self._shortcut.is_known)

    def decode(self, batch: Batch) -> Floats:
        if not (self._shortcut and self._shortcut.is_known and batch.n_tokens <= self.n_ubatch):
            return super().decode(batch)
        with self._shortcut.taken(logits=bool(batch.n_outputs)):
            found = super().decode(batch)
        return self._shortcut.logits(batch.n_outputs) if batch.n_outputs else found

    def try_shortcut(self) -> None:
        """It is taken from now on if it leads to the very same bits, of pairs and of what follows pairs that were only
        read."""
        if self._shortcut is None:
            return
        n = TRIED
        known = self._shortcut.words if len(self._shortcut.words) else slice(None)
        wanted = [self._said(0, n, n, known), self._said(n, n + 1, 1, known)]
        with self._shortcut.watching(n):
            self._said(0, n, n)
        found = [self._said(0, n, n), self._said(n, n + 1, 1)]
        self._said(0, n, 0)
        if found != wanted or self._said(n, n + 1, 1) != wanted[1]:
            self._shortcut.give_up()
        self.remove(0, 0)

    def _said(self, first: int, last: int, n_outputs: int, known: Ints | slice = slice(None)) -> bytes:
        """Of some pairs, after as many as come before them: logits of what is known, and own rows."""
        self.remove(0, first)
        batch = self.pair_batch()
        rows = np.random.default_rng(first).standard_normal((last - first, batch.width), np.float32)
        batch.add_rows(0, list(range(first, last)), first, n_outputs, rows)
        return self.decode(batch)[:, known].tobytes() + self.own_rows(n_outputs).tobytes()

    def new_batch(self) -> Batch:
        return self.pair_batch() if self._pairs else Batch(self.n_batch, self.n_seqs, self._n_positions)

    def pair_batch(self) -> RowBatch:
        width = self.model.n_embd_out if self._mtp else self.model.n_embd
        return RowBatch(self.n_batch, self.n_seqs, self._n_positions, width)

    def row_batch(self, width: int) -> RowBatch:
        """For the target's rows, without tokens."""
        return RowBatch(min(self.n_ubatch, self.n_batch), self.n_seqs, self._n_positions, width, tokens=False)

    @property
    def _n_positions(self) -> int:
        """Texts are longer than what is kept of them here."""
        assert self._target
        return self._target.n_ctx + self.n_ctx

    @property
    def shares_memory(self) -> bool:
        """Whether it looks at the target's cells and has none of its own."""
        return metadata(self.model, "general.architecture") == SHARED_MEMORY

    def own_rows(self, n: int) -> Floats:
        """What the last batch computed, a row for each token that has one: a copy."""
        return floats(calls().get_nextn(self.handle), n, self.model.n_embd_out).copy()

    def next_position(self, seq: int) -> int:
        """After all that its memory has of the sequence, which may be the target's."""
        return 1 + int(c.llama_memory_seq_pos_max(self._memory, seq))

    def encode(self, batch: RowBatch) -> Floats:
        """Rows of the target's made into the head's own: a copy. Nothing is remembered of them, but libllama wants
        positions that come after those of the sequence."""
        batch.spread_positions(self.next_position(0))
        batch.raw.n_tokens = batch.n_tokens
        if self._binding:
            self._binding.before(batch.n_tokens)
        if c.llama_encode(self.handle, batch.raw) != 0:
            raise DecodeError(f"libllama could not encode {batch.n_tokens} rows: {log.reason()}")
        return self.own_rows(batch.n_tokens)

    def inject(self, batch: RowBatch) -> None:
        """Rows of the target's taken into the head's memory."""
        batch.spread_positions()
        self.decode(batch)


def says(model: Model, key: str, *, default: bool) -> bool:
    """A yes or no of the model's file."""
    found = metadata(model, key)
    return default if found is None else found == "true"
