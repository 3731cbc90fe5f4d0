"""How many tokens of an EAGLE-3 head's drafts a text confirms, by libllama: at every position the head drafts on from
what the target has computed before it, and goes on with its own rows as long as it is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from paceline.config import ContextParams, ModelParams
from paceline.distill.script import TextKind
from paceline.distill.texts import Rows
from paceline.llama.context import Context
from paceline.llama.head import HeadContext
from paceline.llama.hidden import Hidden, Source, target_layers
from paceline.llama.lib import Floats
from paceline.llama.model import Model

LONGEST = 8
"""Tokens of a draft."""
ROOM = 64
"""Cells beside those of the text, for what a head writes itself."""


class MeasuredHead:
    """A head beside a target's context."""

    def __init__(self, context: HeadContext, source: Source, target: Context) -> None:
        self.context = context
        self.source = source
        """The target's layers that it reads."""
        self._width = len(source) * target.model.n_embd
        self._batch = context.pair_batch()

    def stands(self, rows: Floats, text: Sequence[int], first: int, n_most: int = LONGEST) -> list[int]:
        """For each position of the text from `first` (2 or more) on: how many tokens of a draft that begins there are
        the text's. `rows` are the target's, of each token but the last."""
        own = self._encoded(rows)
        self.context.clear()
        self.decode(text[1 : first - 1], 0, own[: first - 2], n_outputs=0)
        found = []
        for position in range(first, len(text)):
            pair = position - 2
            logits = self.decode(text[position - 1 : position], pair, own[pair : pair + 1])
            found.append(self._chain(logits, text, position, n_most))
            self.context.remove(0, pair + 1)
        return found

    def firsts(self, rows: Floats, text: Sequence[int]) -> list[int]:
        """What it drafts first at each position of the text from 2 on, all in one batch."""
        self.context.clear()
        logits = self.decode(text[1:-1], 0, self._encoded(rows)[: len(text) - 2], n_outputs=len(text) - 2)
        return [int(token) for token in logits.argmax(-1)]

    def _chain(self, logits: Floats, text: Sequence[int], position: int, n_most: int) -> int:
        n_right = 0
        while int(logits[-1].argmax()) == text[position + n_right]:
            n_right += 1
            if n_right == n_most or position + n_right == len(text):
                break
            token, row = text[position + n_right - 1], self.context.own_rows(1)
            logits = self.decode([token], position + n_right - 2, row)
        return n_right

    def decode(self, tokens: Sequence[int], position: int, rows: Floats, n_outputs: int = 1) -> Floats:
        self._batch.clear()
        self._batch.add_rows(0, tokens, position, n_outputs, rows)
        return self.context.decode(self._batch) if tokens else rows

    def _encoded(self, rows: Floats) -> Floats:
        batch = self.context.row_batch(self._width)
        parts = []
        for first in range(0, len(rows), batch.capacity):
            part = rows[first : first + batch.capacity]
            batch.clear()
            batch.add_rows(0, [0] * len(part), 0, len(part), part)
            parts.append(self.context.encode(batch))
        return np.concatenate(parts)


@contextmanager
def measured_head(path: str, target: Context, n_threads: int = 0) -> Iterator[MeasuredHead]:
    n_ctx = target.n_ctx + ROOM
    params = ContextParams(n_ctx=n_ctx, n_batch=n_ctx, n_threads=n_threads, n_threads_batch=n_threads)
    with Model(ModelParams(path=path, head=True)) as model, HeadContext(model, params, target) as context:
        yield MeasuredHead(context, target_layers(model, target.model), target)


def read_text(target: Context, hidden: Hidden, source: Source, text: Sequence[int]) -> Floats:
    """The target's rows of a whole text, computed in one batch."""
    batch = target.new_batch()
    target.clear()
    batch.add(0, text, 0, 1)
    target.decode(batch)
    return hidden.rows(source, 0, len(text))


def head_agreement(target: str, head: str, rows: Rows, n_rows: int, n_threads: int = 0) -> float:
    """How often the first token of a draft is what the target wrote at temperature 0."""
    length = rows.tokens.shape[1]
    params = ContextParams(n_ctx=length + ROOM, n_batch=length, n_threads=n_threads, n_threads_batch=n_threads)
    right = []
    with (
        Model(ModelParams(path=target)) as model,
        Context(model, params) as context,
        measured_head(head, context, n_threads) as measured,
    ):
        hidden = Hidden(context.handle, model, [measured.source])
        for tokens, kinds in zip(rows.tokens[:n_rows].tolist(), rows.kinds[:n_rows], strict=True):
            stands = measured.stands(read_text(context, hidden, measured.source, tokens[:-1]), tokens, 2, n_most=1)
            right += [n for n, kind in zip(stands, kinds[2:], strict=True) if kind == TextKind.GREEDY]
    return sum(right) / max(1, len(right))
