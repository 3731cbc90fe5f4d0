"""What a head would draft, computed the slow way: raw libllama calls, the whole text from its first token, nothing
carried over from one draft to the next. Knows nothing of paceline; that is its use."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as c
import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]
MTP = 1
SIZE = 256
"""Cells and batch of every context: texts are shorter."""
LIBRARY: ctypes.CDLL = c._lib
FLOATS = ctypes.POINTER(ctypes.c_float)


def exported(name: str, result: Any, *arguments: Any) -> Any:
    """A function that libllama exports under its C++ name only."""
    function = LIBRARY[name]
    function.restype, function.argtypes = result, arguments
    return function


POINTER, INT, BOOL = ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool
set_nextn = exported("_Z26llama_set_embeddings_nextnP13llama_contextbb", None, POINTER, BOOL, BOOL)
get_nextn = exported("_Z26llama_get_embeddings_nextnP13llama_context", FLOATS, POINTER)
set_layer = exported("_Z30llama_set_embeddings_layer_inpP13llama_contextjb", None, POINTER, INT, BOOL)
get_layer = exported("_Z30llama_get_embeddings_layer_inpP13llama_contextj", FLOATS, POINTER, INT)
set_offset = exported("_Z28llama_set_nextn_layer_offsetP13llama_contexti", None, POINTER, INT)
layer_ids = exported("_Z28llama_model_target_layer_idsPK11llama_model", ctypes.POINTER(INT), POINTER)
n_layer_ids = exported("_Z30llama_model_target_layer_ids_nPK11llama_model", INT, POINTER)
selector_top_k = exported("_Z33llama_model_dflash_selector_top_kPK11llama_model", INT, POINTER)


@dataclass
class Drafted:
    """Tokens, how likely the head holds each (or its own confidence, where it says one), and how narrowly each won:
    the lead over the second best logit."""

    tokens: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    leads: list[float] = field(default_factory=list)

    def add(self, token: int, scores: Rows, chance: float | None = None) -> None:
        best = np.sort(scores)[-2:]
        self.tokens.append(token)
        self.chances.append(1 / float(np.exp(scores - best[1]).sum()) if chance is None else chance)
        self.leads.append(float(best[1] - best[0]))

    def after(self, n: int) -> Drafted:
        return Drafted(self.tokens[n:], self.chances[n:], self.leads[n:])


class Reference:
    """A target and its head; the head is None where it is in the target's own file."""

    def __init__(self, target: str, head: str | None = None) -> None:
        self._first, self._ahead = 0, list[int]()
        self.target = load(target)
        self.head = self.target if head is None else load(head)
        self.file = Path(head or target).read_bytes()
        if (reads := self._width()) != int(c.llama_model_n_embd_out(self.target)):
            raise ValueError(f"the head reads rows of {reads}, which the target's are not")

    def close(self) -> None:
        if self.head != self.target:
            c.llama_model_free(self.head)
        c.llama_model_free(self.target)

    def draft(self, text: Sequence[int], n: int, *, first: int = 0, ahead: Sequence[int] = ()) -> Drafted:
        """The last token of `text` is known but not computed, as in an engine that has just sampled it. Rows before
        `first` the head does not get; the draft comes after the tokens that are `ahead`."""
        self._first, self._ahead = first, list(ahead)
        arch = meta(self.head, "general.architecture")
        way = {"eagle3": self._eagle3, "dflash": self._dflash}.get(arch, self._mtp)
        with context(self.target) as target:
            return way(target, list(text), n + len(ahead)).after(len(ahead))

    def rows(self, text: Sequence[int]) -> Rows:
        """What the head would read of each token of the text."""
        with context(self.target) as target:
            if n_layer_ids(self.head) and self.head != self.target:
                return self._features(target, list(text))
            set_nextn(target, True, False)
            decode(target, list(text), None, range(len(text)))
            return nextn(target, self.target, len(text))

    def write(self, text: Sequence[int], n: int) -> list[int]:
        """What the target itself would go on with, greedily; each token from the whole text again."""
        tokens = list(text)
        for _ in range(n):
            with context(self.target) as target:
                decode(target, tokens, None, range(len(tokens)))
                tokens.append(int(logits(target, self.target, len(tokens) - 1).argmax()))
        return tokens[len(text) :]

    def _eagle3(self, target: Any, text: list[int], n: int) -> Drafted:
        features = self._features(target, text[:-1])
        with context(self.head, other=target) as head:
            set_nextn(head, True, True)
            encode(head, features)
            rows = nextn(head, self.head, len(features))[self._first :]
            return self._chain(head, text[self._first + 1 :], rows, list(range(self._first, len(text) - 1)), n)

    def _chain(self, head: Any, tokens: list[int], rows: Rows, positions: list[int], n: int) -> Drafted:
        """After these pairs the head goes on with its own rows. All logits: EAGLE-3 decoders and Qwen3.5's blocks given
        some flags only answer with the first rows, whichever they are."""
        drafted = Drafted()
        while len(drafted.tokens) < n:
            decode(head, tokens, rows, positions, logits="all")
            scores = logits(head, self.head, len(tokens) - 1)
            drafted.add(self._next(drafted, scores), scores)
            rows, tokens = nextn(head, self.head, len(tokens))[-1:], drafted.tokens[-1:]
            positions = [positions[-1] + 1]
        return drafted

    def _mtp(self, target: Any, text: list[int], n: int) -> Drafted:
        # The head's context comes first: one that shares the target's memory empties it when it is made.
        with context(self.head, other=target, kind=MTP) as head:
            set_nextn(target, True, False)
            decode(target, text[:-1], None, range(len(text) - 1))
            rows = nextn(target, self.target, len(text) - 1)
            set_nextn(head, True, True)
            if meta(self.head, "general.architecture") == "gemma4-assistant":
                return self._mtp_shared(head, text, rows, n)
            n_heads = int(c.llama_model_n_layer_nextn(self.head))
            return self._mtp_chained(head, text, rows, n) if n_heads > 1 else self._mtp_single(head, text, rows, n)

    def _mtp_single(self, head: Any, text: list[int], rows: Rows, n: int) -> Drafted:
        first = self._first
        return self._chain(head, text[first + 1 :], rows[first:], list(range(first + 1, len(text))), n)

    def _mtp_chained(self, head: Any, text: list[int], rows: Rows, n: int) -> Drafted:
        """Head i reads the text and the draft so far into its own layer, then drafts token i."""
        drafted = Drafted()
        rows, tokens = rows[self._first :], text[self._first + 1 :]
        for i in range(min(n, int(c.llama_model_n_layer_nextn(self.head)))):
            c.llama_memory_clear(c.llama_get_memory(head), True)
            set_offset(head, i)
            decode(head, tokens, rows, range(self._first + 1, self._first + 1 + len(tokens)), logits="last")
            scores = logits(head, self.head, len(tokens) - 1)
            drafted.add(self._next(drafted, scores), scores)
            rows = np.concatenate([rows, nextn(head, self.head, 1)])
            tokens = [*tokens, drafted.tokens[-1]]
        return drafted

    def _mtp_shared(self, head: Any, text: list[int], rows: Rows, n: int) -> Drafted:
        """The head looks at the target's cells; every drafted token stands where the last token will."""
        if int(c.llama_memory_seq_pos_max(c.llama_get_memory(head), 0)) != len(text) - 2:
            raise RuntimeError("the head does not see the target's cells")
        drafted = Drafted()
        token, row = text[-1], rows[-1:]
        while len(drafted.tokens) < n:
            decode(head, [token], row, [len(text) - 1], logits="last")
            scores = logits(head, self.head, 0)
            drafted.add(self._next(drafted, scores), scores)
            token, row = drafted.tokens[-1], nextn(head, self.head, 1)
        return drafted

    def _dflash(self, target: Any, text: list[int], n: int) -> Drafted:
        features = self._features(target, text[:-1])
        dspark = b"markov_w1.weight" in self.file
        first = 0 if dspark and meta(self.head, "dflash.sample_from_anchor", "true") == "true" else 1
        top_k = int(selector_top_k(self.head))
        n_block = min(n + first, int(meta(self.head, "dflash.block_size", "16")))
        mask = int(c.llama_vocab_mask(c.llama_model_get_vocab(self.head)))
        with context(self.head, other=target) as head:
            set_nextn(head, True, not top_k)
            c.llama_set_causal_attn(head, meta(self.head, "dflash.attention.causal", "false") == "true")
            decode(head, None, features[self._first :], range(self._first, len(features)), logits="none")
            block = [text[-1], *[mask] * (n_block - 1)]
            decode(head, block, None, range(len(text) - 1, len(text) - 1 + n_block), logits="none" if top_k else "all")
            if top_k:
                return walk(nextn(head, self.head, n_block)[1:], top_k)
            return self._block(head, range(first, n_block))

    def _block(self, head: Any, rows: range) -> Drafted:
        """A DSpark head with confidence says it in the first number of each nextn row."""
        drafted = Drafted()
        sure = nextn(head, self.head, rows.stop)[:, 0] if b"conf_proj.weight" in self.file else None
        for i in rows:
            scores = logits(head, self.head, i)
            drafted.add(int(scores.argmax()), scores, None if sure is None else float(sure[i]))
        return drafted

    def _next(self, drafted: Drafted, scores: Rows) -> int:
        n = len(drafted.tokens)
        return self._ahead[n] if n < len(self._ahead) else int(scores.argmax())

    def _width(self) -> int:
        """Of one row of the target; libllama would read past a shorter one."""
        return int(meta(self.head, "eagle3.target_hidden_size") or c.llama_model_n_embd_out(self.head))

    def _features(self, target: Any, text: list[int]) -> Rows:
        """The target's rows that the head wants, side by side, for each token of the text."""
        n_layer = int(c.llama_model_n_layer(self.target))
        wanted = [int(layer_ids(self.head)[i]) for i in range(n_layer_ids(self.head))]
        if not 0 <= min(wanted) <= max(wanted) <= n_layer:
            raise ValueError(f"the head reads layers {wanted} of a target that has {n_layer}")
        for layer in wanted:
            set_layer(target, layer, True) if layer < n_layer else set_nextn(target, True, False)
        decode(target, text, None, range(len(text)))
        return np.concatenate(
            [
                taken(get_layer(target, layer), len(text), int(c.llama_model_n_embd(self.target)))
                if layer < n_layer
                else nextn(target, self.target, len(text))
                for layer in wanted
            ],
            axis=1,
        )


def walk(lattice: Rows, top_k: int) -> Drafted:
    """Each row: the ids of `top_k` candidates, then for each candidate of the row before, how well these follow it."""
    drafted, before = Drafted(), 0
    for row in lattice:
        scores = row[top_k + before * top_k :][:top_k]
        before = int(scores.argmax())
        drafted.add(int(row[before]), scores)
    return drafted


def load(path: str) -> Any:
    params = c.llama_model_default_params()
    params.load_mtp, params.n_gpu_layers = True, 0
    model = c.llama_model_load_from_file(path.encode(), params)
    if not model:
        raise ValueError(f"libllama does not load {path}")
    return model


@contextmanager
def context(model: Any, *, other: Any = None, kind: int = 0) -> Iterator[Any]:
    params = c.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = SIZE
    params.n_threads = params.n_threads_batch = 1
    params.ctx_type, params.ctx_other = kind, other
    params.type_k = params.type_v = params.flash_attn_type = 0  # float32, which rounds least
    handle = c.llama_init_from_model(model, params)
    if not handle:
        raise ValueError("libllama makes no context of this model")
    try:
        yield handle
    finally:
        c.llama_free(handle)


def encode(ctx: Any, rows: Rows) -> None:
    with batch(None, rows, range(len(rows)), "all") as full:
        check(c.llama_encode(ctx, full))


def decode(
    ctx: Any, tokens: Sequence[int] | None, rows: Rows | None, positions: Sequence[int], *, logits: str = "all"
) -> None:
    with batch(tokens, rows, positions, logits) as full:
        check(c.llama_decode(ctx, full))


def check(result: int) -> None:
    if result:
        raise RuntimeError(f"libllama computes nothing: {result}")


@contextmanager
def batch(
    tokens: Sequence[int] | None, rows: Rows | None, positions: Sequence[int], logits: str
) -> Iterator[c.llama_batch]:
    """Tokens, rows or both, of sequence 0; `logits` of "all", of the "last" or of "none"."""
    n = len(positions)
    seq = ctypes.pointer(ctypes.c_int32(0))
    values = None if rows is None else np.ascontiguousarray(rows, np.float32)
    yield c.llama_batch(
        n_tokens=n,
        token=None if tokens is None else (ctypes.c_int32 * n)(*tokens),
        embd=None if values is None else values.ctypes.data_as(FLOATS),
        pos=(ctypes.c_int32 * n)(*positions),
        n_seq_id=(ctypes.c_int32 * n)(*[1] * n),
        seq_id=(ctypes.POINTER(ctypes.c_int32) * n)(*[seq] * n),
        logits=(ctypes.c_int8 * n)(*[logits == "all" or (logits == "last" and i == n - 1) for i in range(n)]),
    )


def logits(ctx: Any, model: Any, i: int) -> Rows:
    n_vocab = int(c.llama_vocab_n_tokens(c.llama_model_get_vocab(model)))
    return taken(c.llama_get_logits_ith(ctx, i), 1, n_vocab).ravel()


def nextn(ctx: Any, model: Any, n: int) -> Rows:
    return taken(get_nextn(ctx), n, int(c.llama_model_n_embd_out(model)))


def taken(pointer: Any, n: int, width: int) -> Rows:
    """A copy: rows live until the next decode. Zeros are what an architecture leaves that makes no such rows."""
    rows = np.ctypeslib.as_array(pointer, (n, width)).copy() if pointer else np.zeros((n, width), np.float32)
    if not rows.any():
        raise ValueError("the target hands out no such rows")
    return rows


def meta(model: Any, key: str, otherwise: str = "") -> str:
    buffer = ctypes.create_string_buffer(256)
    length = int(c.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer)))
    return otherwise if length < 0 else buffer.value.decode()
