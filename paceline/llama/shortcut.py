"""Where libllama's graph for a head may end: before the logits, of tokens that are only read, and before they are
spread over the target's vocabulary, where a head knows only some of its words.

libllama computes an EAGLE-3 head's logits for every token it reads. Those of a head with a vocabulary of its own are
then put into a row of the target's, number by number, which on a processor takes as long as the rest of the head.

Before each node libllama asks whether somebody wants to look at it, and computes no further if it is told so afterwards
(`cb_eval`). Which node has the logits is seen in a first batch, which is computed as a whole.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from paceline.errors import DecodeError
from paceline.llama.lib import Floats, Ints, c, ggml

NODE = [ctypes.c_void_p]
WHOLE = 0
LOGITS, SPREAD = b"MUL_MAT", b"SET_ROWS"


class Shortcut:
    """`words` are the target's tokens that the head knows, all of `n_vocab` if there are none. Good for batches that
    libllama computes in one piece."""

    def __init__(self, words: Ints, n_vocab: int) -> None:
        self.callback = c.ggml_backend_sched_eval_callback(self._on_node)
        self.words = words
        self._n_words = len(words) or n_vocab
        self._n_nodes = WHOLE  # until the logits are there; not known yet
        self._last = WHOLE  # how many nodes of the next batch are computed
        self._n_asked = 0
        self._shown: int | None = None  # the last one, computed
        self._seen: list[tuple[bytes, int]] | None = None  # of every node: what it does, and how many numbers it has
        self._describe = ggml("ggml_op_desc", NODE, ctypes.c_char_p)
        self._size = ggml("ggml_nelements", NODE, ctypes.c_int64)
        self._data = ggml("ggml_get_data", NODE, ctypes.c_void_p)

    def _on_node(self, node: int, ask: bool, _data: Any) -> bool:
        """libllama asks of each node whether somebody wants it, then shows it and asks whether to go on."""
        if not ask:
            self._shown = node
            return False
        self._n_asked += 1
        if self._seen is not None:
            self._seen.append((self._describe(node), self._size(node)))
        return self._n_asked == self._last

    @property
    def is_known(self) -> bool:
        return self._n_nodes > WHOLE

    @contextmanager
    def watching(self, n_tokens: int) -> Iterator[None]:
        """A batch is computed as a whole, and its logits are looked for: the only product of that size."""
        self._seen = []
        try:
            yield
            wanted = (LOGITS, n_tokens * self._n_words)
            n = self._seen.index(wanted) + 1 if self._seen.count(wanted) == 1 else WHOLE
            is_spread = any(what == SPREAD for what, _ in self._seen[n:])
            self._n_nodes = n if is_spread == bool(len(self.words)) else WHOLE
        finally:
            self._seen = None

    @contextmanager
    def taken(self, *, logits: bool) -> Iterator[None]:
        """A batch is computed up to its logits, or only up to what it remembers."""
        self._n_asked, self._shown = 0, None
        self._last = self._n_nodes - (not logits)
        try:
            yield
        finally:
            self._last = WHOLE

    def give_up(self) -> None:
        self._n_nodes = WHOLE

    def logits(self, n_tokens: int) -> Floats:
        """Of each token, for the words: a view that the next batch overwrites."""
        n_numbers = self._size(self._shown) if self._shown else 0
        if n_numbers != n_tokens * self._n_words:
            raise DecodeError(f"libllama has {n_numbers} logits for {n_tokens} tokens of {self._n_words} words")
        buffer: Any = (ctypes.c_float * n_numbers).from_address(self._data(self._shown))
        return np.frombuffer(buffer, np.float32).reshape(n_tokens, self._n_words)
