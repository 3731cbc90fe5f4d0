"""Heads of random weights for a model that is there, as large as trained ones: they guess nothing and cost the same.

And a target of random weights that has MTP blocks in its own file, since no small one is at hand that was trained so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

BLOCK = 16  # tokens that a block head writes at once
RANK = 64
N_LAYERS = 3  # of the target, that a head reads


class HeadFile:
    """One in the making; its shape and its vocabulary are the target's."""

    def __init__(self, path: Path, architecture: str, target: str, n_layer: int, seed: int = 0) -> None:
        self.path = path
        self._reader = gguf.GGUFReader(target)
        self._rng = np.random.default_rng(seed)
        self.name = architecture
        self.n_embd, self.n_ff = self.number("embedding_length"), self.number("feed_forward_length")
        self.n_head, self.n_kv = self.number("attention.head_count"), self.number("attention.head_count_kv")
        self.n_layer = self.number("block_count")
        self.head = self.number("attention.key_length", self.n_embd // self.n_head)
        self.writer = gguf.GGUFWriter(str(path), architecture)
        self._shape(n_layer)
        self._vocabulary()

    def number(self, key: str, default: int = 0) -> int:
        return int(self._field(f"{self._field('general.architecture')}.{key}", default))

    def _field(self, key: str, default: Any = None) -> Any:
        return self._reader.fields[key].contents() if key in self._reader.fields else default

    def _shape(self, n_layer: int) -> None:
        writer = self.writer
        writer.add_context_length(self.number("context_length"))
        writer.add_embedding_length(self.n_embd)
        writer.add_block_count(n_layer)
        writer.add_feed_forward_length(self.n_ff)
        writer.add_head_count(self.n_head)
        writer.add_head_count_kv(self.n_kv)
        writer.add_key_length(self.head)
        writer.add_value_length(self.head)
        writer.add_rope_dimension_count(self.head)
        writer.add_layer_norm_rms_eps(1e-5)

    def _vocabulary(self) -> None:
        names = [key for key in self._reader.fields if key.startswith("tokenizer.")]
        for key in names:
            field = self._reader.fields[key]
            self.writer.add_key_value(key, field.contents(), field.types[0], *field.types[1:2])

    @property
    def n_vocab(self) -> int:
        return len(self._reader.fields["tokenizer.ggml.tokens"].data)

    def matrix(self, name: str, rows: int, columns: int, kind: type = np.float16) -> None:
        values = self._rng.standard_normal((rows, columns), np.float32) / np.sqrt(columns)
        self.writer.add_tensor(f"{name}.weight", values.astype(kind))

    def ones(self, *names: str, width: int | None = None) -> None:
        for name in names:
            self.writer.add_tensor(f"{name}.weight", np.ones(width or self.n_embd, np.float32))

    def block(self, i: int, n_read: int) -> None:
        self.ones(f"blk.{i}.attn_norm", f"blk.{i}.ffn_norm")
        self.matrix(f"blk.{i}.attn_q", self.n_head * self.head, n_read)
        self.matrix(f"blk.{i}.attn_k", self.n_kv * self.head, n_read)
        self.matrix(f"blk.{i}.attn_v", self.n_kv * self.head, n_read)
        self.matrix(f"blk.{i}.attn_output", self.n_embd, self.n_head * self.head)
        self.matrix(f"blk.{i}.ffn_gate", self.n_ff, self.n_embd)
        self.matrix(f"blk.{i}.ffn_up", self.n_ff, self.n_embd)
        self.matrix(f"blk.{i}.ffn_down", self.n_embd, self.n_ff)

    def reads(self) -> list[int]:
        """A low, a middle and a high layer, as EAGLE-3's authors chose them."""
        return [2, self.n_layer // 2, self.n_layer - 3]

    def done(self) -> str:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return str(self.path)


def eagle3(path: Path, target: str) -> str:
    """One layer; token embeddings and output are the target's."""
    file = HeadFile(path, "eagle3", target, 1)
    file.writer.add_array("eagle3.target_layers", file.reads())
    file.writer.add_uint32("eagle3.target_hidden_size", file.n_embd)
    file.matrix("fc", file.n_embd, N_LAYERS * file.n_embd)
    file.ones("output_norm", "blk.0.attn_norm_2")
    file.block(0, 2 * file.n_embd)
    return file.done()


def dflash(path: Path, target: str, *, markov: bool = False) -> str:
    """Three layers; token embeddings and output are the target's."""
    file = HeadFile(path, "dflash", target, 3)
    file.writer.add_array("dflash.target_layers", file.reads())
    file.writer.add_uint32("dflash.block_size", BLOCK)
    file.writer.add_mask_token_id(0)
    file.matrix("fc", file.n_embd, N_LAYERS * file.n_embd)
    file.ones("output_norm", "enc.output_norm")
    for i in range(3):
        file.block(i, file.n_embd)
        file.ones(f"blk.{i}.attn_q_norm", f"blk.{i}.attn_k_norm", width=file.head)
    if markov:
        file.matrix("markov_w1", file.n_vocab, RANK)
        file.matrix("markov_w2", file.n_vocab, RANK)
        file.matrix("conf_proj", 1, file.n_embd + RANK, np.float32)
    return file.done()


def dspark(path: Path, target: str) -> str:
    return dflash(path, target, markov=True)


def with_mtp(path: Path, like: str) -> str:
    """A whole model of random weights with one MTP block, of the shape of another."""
    shape = HeadFile(path, "step35", like, 0)
    file = HeadFile(path, "step35", like, shape.n_layer + 1)
    file.writer.add_uint32("step35.attention.sliding_window", 512)
    file.writer.add_array("step35.attention.sliding_window_pattern", [False] * file.n_layer + [True])
    file.writer.add_uint32("step35.expert_feed_forward_length", file.n_ff)
    file.writer.add_uint32("step35.nextn_predict_layers", 1)
    file.matrix("token_embd", file.n_vocab, file.n_embd)
    file.matrix("output", file.n_vocab, file.n_embd)
    file.ones("output_norm")
    for i in range(file.n_layer + 1):
        file.block(i, file.n_embd)
    own = f"blk.{file.n_layer}.nextn"
    file.matrix(f"{own}.eh_proj", file.n_embd, 2 * file.n_embd)
    file.ones(f"{own}.enorm", f"{own}.hnorm")
    return file.done()


HEADS: dict[str, Callable[[Path, str], str]] = {"draft-eagle3": eagle3, "draft-dflash": dflash, "draft-dspark": dspark}
