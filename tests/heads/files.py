"""A GGUF file in the making: random matrices, norms of ones, blocks. What `targets` and `heads` have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from tests.tiny import TOKENS, add_shape, add_vocab, write_out

Matrix = npt.NDArray[np.float32]
WIDTH, HEADS, HEAD_WIDTH, CONTEXT = 64, 2, 32, 512
MASK = 257
"""The token that stands for "not known yet" in the files of block drafters: <|start|>, which no text contains."""


class File:
    """`scale` 1 keeps a vector's length through a matrix; more makes attention and choices more decided."""

    def __init__(
        self,
        path: Path,
        arch: str,
        *,
        seed: int,
        width: int = WIDTH,
        n_layer: int = 1,
        n_head: int = HEADS,
        n_ff: int | None = None,
    ) -> None:
        self.path, self.arch, self.width = path, arch, width
        self.n_ff = n_ff or 2 * width
        self.rng = np.random.default_rng(seed)
        self.writer = gguf.GGUFWriter(str(path), arch)
        add_shape(self.writer, width, n_layer, n_head, CONTEXT, self.n_ff)

    def keys(self, values: Mapping[str, bool | int | float | list[int] | list[bool]]) -> None:
        """Of this architecture: {"block_size": 8}."""
        for name, value in values.items():
            key = f"{self.arch}.{name}"
            if isinstance(value, bool):
                self.writer.add_bool(key, value)
            elif isinstance(value, int):
                self.writer.add_uint32(key, value)
            elif isinstance(value, float):
                self.writer.add_float32(key, value)
            else:
                self.writer.add_array(key, value)

    def vocab(self, n_extra: int = 0) -> int:
        """The 266 tokens of all tiny models and `n_extra` unused ones; how many these are together."""
        tokens = [*TOKENS, *(f"[unused{i}]" for i in range(n_extra))]
        add_vocab(self.writer, tokens)
        return len(tokens)

    def tensor(self, name: str, values: npt.NDArray[np.generic]) -> None:
        self.writer.add_tensor(name, np.ascontiguousarray(values))

    def random(self, rows: int, columns: int, scale: float = 1.0) -> Matrix:
        values = self.rng.standard_normal((rows, columns)) * scale / np.sqrt(columns)
        return np.asarray(values, np.float32)

    def matrix(self, name: str, rows: int, columns: int, scale: float = 1.0) -> None:
        self.tensor(f"{name}.weight", self.random(rows, columns, scale))

    def ones(self, names: Iterable[str], width: int | None = None, value: float = 1.0) -> None:
        for name in names:
            self.tensor(f"{name}.weight", np.full(width or self.width, value, np.float32))

    def attention(self, block: str, n_read: int) -> None:
        """Queries and keys are large enough that a token listens to few others, and what it hears counts."""
        for name in ("attn_q", "attn_k", "attn_v"):
            self.matrix(f"{block}.{name}", HEADS * HEAD_WIDTH, n_read, 2.0)
        self.matrix(f"{block}.attn_output", self.width, HEADS * HEAD_WIDTH, 2.0)

    def feed_forward(self, block: str) -> None:
        self.matrix(f"{block}.ffn_gate", self.n_ff, self.width)
        self.matrix(f"{block}.ffn_up", self.n_ff, self.width)
        self.matrix(f"{block}.ffn_down", self.width, self.n_ff)

    def done(self) -> str:
        write_out(self.writer)
        return str(self.path)
