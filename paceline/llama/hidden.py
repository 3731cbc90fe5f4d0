"""What a context hands out beside logits: rows of its hidden states, for drafters that read them. Knows no drafters.

Two kinds, each a row for every token of the batch: the input of chosen layers, and the last state before the output
norm ("nextn"). They are libllama's until the next decode: who keeps some copies them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from paceline.errors import LibraryError
from paceline.llama.context import Context
from paceline.llama.lib import Floats, c, raw
from paceline.llama.model import Model

POINTER, INT, BOOL, UINT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool, ctypes.c_uint32
NEXTN = -1  # where a layer's number is asked for: the last state
Source = tuple[int, ...]  # layers whose rows stand side by side in one


class Calls:
    """libllama's functions for it, which have C++ names only; another compiler spells them otherwise."""

    def __init__(self) -> None:
        try:
            self.set_nextn = raw("_Z26llama_set_embeddings_nextnP13llama_contextbb", [POINTER, BOOL, BOOL], None)
            self.get_nextn = raw("_Z26llama_get_embeddings_nextnP13llama_context", [POINTER], POINTER)
            self.set_layer = raw("_Z30llama_set_embeddings_layer_inpP13llama_contextjb", [POINTER, UINT, BOOL], None)
            self.get_layer = raw("_Z30llama_get_embeddings_layer_inpP13llama_contextj", [POINTER, UINT], POINTER)
            self.set_block = raw("_Z28llama_set_nextn_layer_offsetP13llama_contexti", [POINTER, INT], None)
            self.reserve = raw("_Z19llama_graph_reserveP13llama_contextjjj", [POINTER, UINT, UINT, UINT], POINTER)
            layers = ctypes.POINTER(INT)
            self.layers = raw("_Z28llama_model_target_layer_idsPK11llama_model", [POINTER], layers)
            self.n_layers = raw("_Z30llama_model_target_layer_ids_nPK11llama_model", [POINTER], UINT)
            self.selector = raw("_Z33llama_model_dflash_selector_top_kPK11llama_model", [POINTER], INT)
        except AttributeError as error:
            raise LibraryError(
                f"this build of libllama does not hand out its states ({error}): no head can read them"
            ) from None


@cache
def calls() -> Calls:
    return Calls()


@lru_cache(maxsize=64)
def floats(address: int, n_rows: int, width: int) -> Floats:
    """libllama's own memory as rows."""
    buffer: Any = (ctypes.c_float * (n_rows * width)).from_address(address) if address and n_rows else b""
    return np.frombuffer(buffer, np.float32).reshape(-1, width)


def target_layers(head: Model, target: Model) -> Source:
    """Which of the target's layers a head reads: the last one's output is the last state."""
    n = int(calls().n_layers(head.handle))
    return tuple(NEXTN if layer == target.n_layer else layer for layer in calls().layers(head.handle)[:n])


def n_heads(model: Model) -> int:
    """How many were trained with the model and are in its file."""
    return max(1, int(c.llama_model_n_layer_nextn(model.handle)))


def build_graph(handle: int | None) -> None:
    """What a context would compute for one token; libllama asserts where that cannot be."""
    calls().reserve(handle, 1, 1, 1)


def has_last_state(context: Context) -> bool:
    """Whether the model gives it at all: where not, libllama leaves zeros. Computes a token."""
    rows = Hidden(context.handle, context.model, [(NEXTN,)])
    rows.switch(on=True)
    batch = context.new_batch()
    batch.add(0, [1], 0, 1)
    context.decode(batch)
    return bool(rows.rows((NEXTN,), 0, 1).any())


class Hidden:
    """The rows of one context.

    Layers are switched seldom: it makes libllama reserve its memory again. The last state can be had for some batches
    and not for others: models that compute it only for rows with logits are slower with it. `is_free` says that nobody
    minds whether logits are the very same with it and without.
    """

    def __init__(self, handle: int | None, model: Model, sources: Iterable[Source]) -> None:
        self._handle = handle
        self._width = model.n_embd
        self._nextn_width = model.n_embd_out
        wanted = {layer for source in sources for layer in source}
        self.has_nextn = NEXTN in wanted
        self._layers = wanted - {NEXTN}
        self._is_awake = False
        self.is_free = True
        self._is_on = False
        self.wake(up=True)

    def wake(self, *, up: bool) -> None:
        """Whether any rows are handed out at all from now on."""
        if up != self._is_awake:
            self._is_awake = up
            for layer in self._layers:
                calls().set_layer(self._handle, layer, up)

    def switch(self, *, on: bool) -> None:
        """Whether the next batch gives its last states."""
        on = on and self._is_awake
        if self.has_nextn and on != self._is_on:
            calls().set_nextn(self._handle, on, False)
            self._is_on = on

    def covers(self, source: Source) -> bool:
        """Whether the last batch has given all of these."""
        return self._is_awake and (self._is_on or NEXTN not in source)

    def rows(self, source: Source, first: int, last: int) -> Floats:
        """Of these tokens of the last batch, in its order: a copy."""
        parts = [self._all(layer, last)[first:] for layer in source]
        return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0].copy()

    def _all(self, layer: int, n: int) -> Floats:
        if layer == NEXTN:
            return floats(calls().get_nextn(self._handle), n, self._nextn_width)
        return floats(calls().get_layer(self._handle, layer), n, self._width)


def metadata(model: Model, key: str) -> str | None:
    """An entry of the model's file, as text."""
    buffer = ctypes.create_string_buffer(128)
    n = c.llama_model_meta_val_str(model.handle, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if n >= 0 else None
