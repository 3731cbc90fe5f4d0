"""A libllama context: batches in, logits out, and the memory of each sequence. Knows no requests.

Batches are numpy arrays that libllama reads in place; logits come back as a numpy view of libllama's own buffer,
valid until the next decode.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import numpy as np

from paceline.config import ROPE_SCALINGS, ContextParams, ModelParams, part
from paceline.errors import CannotWrite, DecodeError, ModelError, RequestError
from paceline.llama import saved
from paceline.llama.lib import Floats, build, c, devices, get_logits, log, system, tiled, versions
from paceline.llama.loading import placement
from paceline.llama.model import Model
from paceline.llama.rpc import WORKERS
from paceline.llama.saved import Bytes, Saved
from paceline.llama.threads import CoreBinding

GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}
BITS = {"f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5, "iq4_nl": 4.5}
FLASH_ATTN = {None: -1, False: 0, True: 1}
POOLING_TYPES = {None: -1, "none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
NO_POOLING, RANK_POOLING = 0, 4
ROPE_SCALING = {kind: ("rope_scaling_type", number) for number, kind in enumerate(ROPE_SCALINGS)}
NO_ROOM = 1
PARTIAL = 1  # of a sequence's state: without the cells of attention, which can be cut anywhere


def about(model: ModelParams, context: ContextParams) -> dict[str, Any]:
    """What the speed and the bits of a model file depend on: the machine, what is computed where, libllama."""
    file = Path(model.path)
    return {
        "model": [file.name, file.stat().st_size],
        "repacked": model.use_extra_bufts,
        "gpu_layers": model.n_gpu_layers,
        "devices": devices(),
        "system": system(),
        "libllama": [versions(), build(), tiled()],
        "threads": [context.threads, context.threads_batch],
        "cache_types": [context.cache_type_k, context.cache_type_v],
        "offload_kqv": context.offload_kqv,
        **({"cores": [context.cores, context.cores_batch]} if context.cores else {}),
        **({"workers": WORKERS.about()} if WORKERS else {}),
        **placement(model),
    }


def fingerprint(model: ModelParams, context: ContextParams, *more: object) -> str:
    """A short name for all that, and more."""
    text = repr((about(model, context), more))
    return f"{Path(model.path).stem}-{sha256(text.encode()).hexdigest()[:16]}"


class Batch:
    """Tokens to decode in one call."""

    def __init__(self, capacity: int, n_seqs: int, n_positions: int) -> None:
        self.capacity = capacity
        self.n_tokens = 0
        self.n_outputs = 0
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._outputs = np.zeros(capacity, np.int8)
        self._seq_pointers = np.zeros(capacity, np.uint64)
        self._n_seq_ids = np.ones(capacity, np.int32)
        self._seq_ids = np.arange(n_seqs, dtype=np.int32)
        self._seq_address = [self._seq_ids.ctypes.data + 4 * seq for seq in range(n_seqs)]
        self.starts: dict[int, int] = {}  # where the tokens of each sequence begin
        self._sizes: set[int] = set()
        self._counting = np.arange(n_positions + capacity, dtype=np.int32)
        self.raw = c.llama_batch(
            0,
            self._tokens.ctypes.data_as(ctypes.POINTER(c.llama_token)),
            None,
            self._positions.ctypes.data_as(ctypes.POINTER(c.llama_pos)),
            self._n_seq_ids.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            self._seq_pointers.ctypes.data_as(ctypes.POINTER(ctypes.POINTER(c.llama_seq_id))),
            self._outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def clear(self) -> None:
        self.n_tokens = self.n_outputs = 0
        self.starts.clear()
        self._sizes.clear()

    def add(self, seq: int, tokens: Sequence[int], position: int, n_outputs: int) -> int:
        """Append tokens of one sequence, logits wanted for the last `n_outputs`. Returns the first such row."""
        first, last = self.n_tokens, self.n_tokens + len(tokens)
        assert last <= self.capacity, f"batch of {last} tokens, room for {self.capacity}"
        self._tokens[first:last] = tokens
        self._positions[first:last] = self._counting[position : position + last - first]
        self._seq_pointers[first:last] = self._seq_address[seq]
        self.starts[seq] = position
        self._sizes.add(last - first)
        self._outputs[first:last] = 0
        self._outputs[last - n_outputs : last] = 1
        row = self.n_outputs
        self.n_tokens = last
        self.n_outputs = row + n_outputs
        return row

    def is_even(self, n_most: int) -> bool:
        """Whether there is one sequence, or as much of each and so many tokens at most."""
        return len(self.starts) == 1 or (len(self._sizes) == 1 and self.n_tokens <= n_most)


class Context:
    """One libllama context; `seconds` adds up the time spent inside it. A `pooled` one makes vectors, not logits. One
    with a `target` is a head's, which borrows what it lacks of the target's; with `mtp` it computes a model's heads and
    not the model. `on_node` is asked about every node of what is computed, and must outlive it.

    `n_rollback` is how many tokens of the latest batch can be removed again, once, all but its first at most, if every
    sequence had as many in it; None: any, at any time.
    """

    def __init__(
        self,
        model: Model,
        params: ContextParams,
        *,
        pooled: bool = False,
        target: Context | None = None,
        mtp: bool = False,
        on_node: Any = None,
    ) -> None:
        self.model = model
        self.n_vocab = model.vocab.n_tokens
        self._target, self._mtp, self._on_node = target, mtp, on_node
        self.handle: int | None = self._open(model, params, pooled)
        self.n_ctx = int(c.llama_n_ctx(self.handle))
        self.n_ctx_seq = self._n_ctx_seq(params)
        self.n_batch = int(c.llama_n_batch(self.handle))
        self.n_ubatch = int(c.llama_n_ubatch(self.handle))
        self.params = params
        self.n_seqs = params.n_seqs
        self.kv_unified = params.kv_unified is not False
        self.n_rollback = None if model.can_roll_back else int(c.llama_n_rs_seq(self.handle))
        self._starts: dict[int, int] = {}
        bits = (BITS[params.cache_type_k] + BITS[params.cache_type_v]) / 2
        self.n_bytes_cache = int(self.n_ctx * model.n_cache_values * bits / 8)
        self.seconds = 0.0
        self.n_decodes = 0
        self._binding = CoreBinding(self.handle, params) if params.cores else None
        self._scales: str | None = ""
        self.use_adapters(None)
        self._memory = c.llama_get_memory(self.handle)
        if not (self._memory or pooled):
            self.close()
            raise CannotWrite(f"{model.path} makes embeddings and cannot write text")
        self._view: tuple[int, int] = (0, 0)
        self._rows: Floats = np.zeros((0, self.n_vocab), np.float32)

    def _open(self, model: Model, params: ContextParams, pooled: bool) -> int:
        raw = c.llama_context_default_params()
        raw.ctx_other = self._target.handle if self._target else None
        raw.ctx_type = int(self._mtp)
        if self._on_node:
            raw.cb_eval = self._on_node
        raw.n_ctx = params.total
        raw.n_batch = params.n_batch
        raw.n_ubatch = min(params.n_ubatch, params.n_batch)
        raw.n_seq_max = params.n_seqs
        raw.n_rs_seq = max(0, min(params.n_snapshots, raw.n_ubatch - 2))  # with more libllama aborts at the first batch
        raw.n_threads = params.threads
        raw.n_threads_batch = params.threads_batch
        raw.flash_attn_type = FLASH_ATTN[params.flash_attn]
        raw.type_k = GGML_TYPES[params.cache_type_k]
        raw.type_v = GGML_TYPES[params.cache_type_v]
        raw.offload_kqv = params.offload_kqv
        raw.kv_unified = params.kv_unified is not False
        raw.embeddings = pooled
        raw.pooling_type = POOLING_TYPES[params.pooling] if pooled else NO_POOLING
        raw.op_offload = params.op_offload
        raw.swa_full = True
        for name, value in params.positions.items():
            setattr(raw, *ROPE_SCALING[value] if isinstance(value, str) else (name, value))
        raw.no_perf = True
        tiled()
        log.clear()
        handle = c.llama_init_from_model(model.handle, raw)
        if not handle:
            raise ModelError(f"cannot open a context of {params.total} tokens for {model.path}: {log.reason()}")
        return int(handle)

    @property
    def has_memory(self) -> bool:
        """Whether it can go on from what it has read; models that only embed cannot."""
        return bool(self._memory)

    def _n_ctx_seq(self, params: ContextParams) -> int:
        """What one sequence may hold: its part of the pool, or all of it."""
        n = int(c.llama_n_ctx_seq(self.handle))
        if params.kv_unified is None:
            n = min(n, part(self.n_ctx, params.n_seqs))
        return min(n, params.n_ctx_slot or n)

    @cached_property
    def about(self) -> dict[str, Any]:
        """What its speed depends on."""
        p = self.params
        shape = {"kv_unified": self.kv_unified, "flash_attn": p.flash_attn, "several_slots": p.n_seqs > 1}
        shape |= {"heads": True} if self._mtp else {}
        snapshots = {"n_rollback": self.n_rollback} if self.n_rollback else {}
        return {**about(self.model.params, p), **shape, **snapshots}

    @property
    def fingerprint(self) -> str:
        """Names what a cost curve depends on."""
        p = self.params
        heads = ("heads",) if self._mtp else ()
        return fingerprint(self.model.params, p, self.kv_unified, p.flash_attn, p.n_seqs > 1, *heads)

    def new_batch(self) -> Batch:
        return Batch(self.n_batch, self.n_seqs, self.n_ctx)

    def decode(self, batch: Batch) -> Floats:
        """Compute the batch. Returns one row of logits per output: a view that the next decode overwrites. A pooled
        context may have none."""
        batch.raw.n_tokens = batch.n_tokens
        if self._binding:
            self._binding.before(batch.n_tokens)
        start = perf_counter()
        code = c.llama_decode(self.handle, batch.raw)
        address = get_logits(self.handle) if code == 0 and batch.n_outputs else None
        self.seconds += perf_counter() - start
        self.n_decodes += 1
        self._starts = batch.starts.copy() if self.n_rollback and batch.is_even(self.n_ubatch) else {}
        if code != 0:
            reason = "no free cells in its memory" if code == NO_ROOM else log.reason()
            raise DecodeError(f"libllama could not decode {batch.n_tokens} tokens (code {code}): {reason}")
        return self._logits(address or 0, batch.n_outputs if address else 0)

    def use_adapters(self, scales: str | None) -> None:
        """How much each adapter counts from now on, as in "0.5,1.0"; None as the model's parameters have it."""
        if scales == self._scales or not self.model.adapters:
            return
        self._scales = scales
        counts = [scale for _, scale in self.model.params.adapters] if scales is None else map(float, scales.split(","))
        used = [(adapter.handle, scale) for adapter, scale in zip(self.model.adapters, counts, strict=True) if scale]
        handles = (c.llama_adapter_lora_p_ctypes * len(used))(*(handle for handle, _ in used))
        values = (ctypes.c_float * len(used))(*(scale for _, scale in used))
        c.llama_set_adapters_lora(self.handle, handles, len(used), values)

    def _logits(self, address: int, n_rows: int) -> Floats:
        if self._view != (address, n_rows):
            buffer: Any = (ctypes.c_float * (n_rows * self.n_vocab)).from_address(address) if n_rows else b""
            self._rows = np.frombuffer(buffer, np.float32).reshape(n_rows, self.n_vocab)
            self._view = (address, n_rows)
        return self._rows

    def remove(self, seq: int, start: int, end: int = -1) -> bool:
        """Forget positions start..end (-1: to the last). False where the memory cannot cut there."""
        if self.n_rollback and start > 0 and end < 0 and not self._has_snapshot(seq, start):
            return False
        done = bool(c.llama_memory_seq_rm(self._memory, seq, start, end))
        return done and (not self.model.n_swa or start == 0 or end >= 0 or self._has_window(seq, start))

    def _has_window(self, seq: int, n: int) -> bool:
        """Whether all is there that the token at position n looks at through a sliding window: what was saved or set
        aside comes back without what the window had left behind."""
        return 0 <= int(c.llama_memory_seq_pos_min(self._memory, seq)) <= max(0, n - self.model.n_swa)

    def _has_snapshot(self, seq: int, n: int) -> bool:
        """Whether a recurrent memory still knows how it was after n tokens: all it holds, or a part of the latest batch
        if that was computed in one piece. libllama itself counts tokens only, and would go back to what another batch
        or another sequence has left there."""
        first = self._starts.get(seq)
        return n > int(c.llama_memory_seq_pos_max(self._memory, seq)) or (first is not None and first < n)

    def shift(self, seq: int, start: int, delta: int) -> None:
        """Renumber everything from `start` on by `delta`."""
        self._starts.pop(seq, None)
        c.llama_memory_seq_add(self._memory, seq, start, -1, delta)

    @cached_property
    def owner(self) -> bytes:
        """Names what a sequence's memory is good for: this model wherever it lies, in a memory of this layout."""
        p, model = self.params, self.model
        shape = (model.description, model.n_params, self.n_vocab, p.cache_type_k, p.cache_type_v, p.flash_attn)
        adapters = [(saved.sample(path), scale) for path, scale in model.params.adapters]
        changed = [x for x in (p.positions, model.params.metadata, adapters) if x]
        return saved.digest(repr((shape, versions(), *changed)).encode(), saved.sample(model.path))

    def save(self, seq: int, tokens: Sequence[int], path: str) -> int:
        """Write a sequence's memory and these tokens to a file; returns its size in bytes."""
        return saved.write(path, self.owner, tokens, self.get_state(seq))

    def read(self, path: str) -> Saved:
        """What was saved in a file, if all of it is as it was and belongs here. Changes nothing."""
        return saved.read(path, self.owner)

    def fill(self, seq: int, found: Saved) -> None:
        """Put what was saved into a sequence, in place of what it holds."""
        self.set_state(seq, found.state)

    def state_size(self, seq: int) -> int:
        """Bytes that `get_state` would give."""
        return int(c.llama_state_seq_get_size(self.handle, seq))

    def get_state(self, seq: int) -> Bytes:
        """A sequence's memory, as libllama writes it down."""
        state = np.empty(self.state_size(seq), np.uint8)
        if (
            not state.size
            or int(c.llama_state_seq_get_data(self.handle, address(state), state.size, seq)) != state.size
        ):
            raise DecodeError(f"libllama could not give the memory of sequence {seq}")
        return state

    def set_state(self, seq: int, state: Bytes) -> None:
        """In place of what the sequence holds. libllama believes every byte: they must be its own."""
        self.remove(seq, 0)
        self._starts.pop(seq, None)
        log.clear()
        if int(c.llama_state_seq_set_data(self.handle, address(state), state.size, seq)) != state.size:
            self.remove(seq, 0)
            raise RequestError(f"libllama could not take {state.size} bytes of saved memory: {log.reason()}")

    def mark(self, seq: int, state: Bytes | None = None) -> Bytes:
        """What of a sequence's memory cannot be cut, as it is now; written into an earlier `state` if that fits."""
        n = int(c.llama_state_seq_get_size_ext(self.handle, seq, PARTIAL))
        state = np.empty(n, np.uint8) if state is None or state.size != n else state
        if not n or int(c.llama_state_seq_get_data_ext(self.handle, address(state), n, seq, PARTIAL)) != n:
            raise DecodeError(f"libllama could not give the state of sequence {seq}")
        return state

    def go_back(self, seq: int, state: Bytes, n: int) -> bool:
        """To a mark made after n tokens. Cells of later tokens are removed; those before must be as they were."""
        self._starts.pop(seq, None)
        taken = int(c.llama_state_seq_set_data_ext(self.handle, address(state), state.size, seq, PARTIAL))
        return taken == state.size and self.remove(seq, n)

    @property
    def can_shift(self) -> bool:
        return bool(c.llama_memory_can_shift(self._memory))

    def clear(self) -> None:
        c.llama_memory_clear(self._memory, True)

    def close(self) -> None:
        if self.handle:
            c.llama_free(self.handle)
            self.handle = None
            if self._binding:
                self._binding.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def address(data: Bytes) -> Any:
    """For libllama, while the array lives."""
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
