"""A decoder of the Llama family in torch: what the target is rebuilt with, and what a student is made of.

The residual stream is float32 always: activations of small models reach 25,000, where half precision cannot count.
Multiplications take their precision from `torch.autocast`, so one code serves a frozen bfloat16 target, a student
with float32 weights that trains in bfloat16, and plain float32 on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from paceline.distill.compiling import faster
from paceline.distill.reading import Hyperparameters


class Pass(NamedTuple):
    """One run over some tokens: the states after the last norm [rows, tokens, width], and the residual stream as it
    enters each of the layers that were asked for, in their order."""

    hidden: torch.Tensor
    inputs: tuple[torch.Tensor, ...]


class LayerMemory:
    """Keys and values of one layer [2, rows, heads, positions, width], of which the first `n` positions are in use."""

    def __init__(self, cells: torch.Tensor) -> None:
        self.cells = cells
        self.n = 0

    def extend(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes in the newest and gives all."""
        start, self.n = self.n, self.n + keys.shape[2]
        self.cells[0, :, :, start : self.n] = keys
        self.cells[1, :, :, start : self.n] = values
        return self.cells[0, :, :, : self.n], self.cells[1, :, :, : self.n]


class KeyValues:
    """Memory of rows that are written in lockstep: all stand at the same position, so no mask is needed and the
    part in use is a slice. How long it is lives on the host: nothing waits for the device."""

    def __init__(self, shape: Hyperparameters, n_rows: int, n_ctx: int, device: str, dtype: torch.dtype) -> None:
        size = (2, n_rows, shape.n_head_kv, n_ctx, shape.head_dim)
        self.layers = [LayerMemory(torch.zeros(size, device=device, dtype=dtype)) for _ in range(shape.n_layer)]

    @property
    def n(self) -> int:
        return self.layers[0].n

    def clear(self) -> None:
        self.stand_at(0)

    def stand_at(self, n: int) -> None:
        for layer in self.layers:
            layer.n = n


class Norm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), self.eps)


class Attention(nn.Module):
    """Queries, keys and values come from one matrix, in this order."""

    def __init__(self, shape: Hyperparameters, *, qkv_bias: bool = False, out_bias: bool = False) -> None:
        super().__init__()
        self.n_head, self.n_head_kv, self.head_dim = shape.n_head, shape.n_head_kv, shape.head_dim
        n_out = self.head_dim * (self.n_head + 2 * self.n_head_kv)
        self.qkv = nn.Linear(shape.n_embd, n_out, bias=qkv_bias)
        self.out = nn.Linear(self.n_head * self.head_dim, shape.n_embd, bias=out_bias)
        self.q_norm = Norm(self.head_dim, shape.eps) if shape.head_norms else nn.Identity()
        self.k_norm = Norm(self.head_dim, shape.eps) if shape.head_norms else nn.Identity()

    def heads(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values [rows, heads, tokens, head]."""
        heads = self.qkv(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        q, k, v = heads.split((self.n_head, self.n_head_kv, self.n_head_kv), dim=1)
        return rotate(self.q_norm(q), cos, sin).to(v.dtype), rotate(self.k_norm(k), cos, sin).to(v.dtype), v

    def joined(self, heard: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(heard.transpose(1, 2).flatten(2))
        return out


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions, halves against each other."""
    left, right = x.float().chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal; the queries are the last of the keys' positions."""
    n_rows, n_head, n_new, head_dim = q.shape
    n_head_kv, n_all = k.shape[1], k.shape[2]
    if n_new == 1:  # the queries that share a key take the place of positions: no copies of keys, and no mask
        shared = q.reshape(n_rows, n_head_kv, n_head // n_head_kv, head_dim)
        return functional.scaled_dot_product_attention(shared, k, v).reshape(q.shape)
    mask = None
    if n_all > n_new:
        mask = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).tril(n_all - n_new)
    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=n_head != n_head_kv
    )


class FeedForward(nn.Module):
    """Gate and up come from one matrix, in this order."""

    def __init__(self, shape: Hyperparameters) -> None:
        super().__init__()
        self.gate_up = nn.Linear(shape.n_embd, 2 * shape.n_ff, bias=False)
        self.down = nn.Linear(shape.n_ff, shape.n_embd, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, shape: Hyperparameters, *, qkv_bias: bool = False, out_bias: bool = False) -> None:
        super().__init__()
        self.attention_norm = Norm(shape.n_embd, shape.eps)
        self.attention = Attention(shape, qkv_bias=qkv_bias, out_bias=out_bias)
        self.feed_norm = Norm(shape.n_embd, shape.eps)
        self.feed = FeedForward(shape)
        self._before, self._after = self.before, self.after

    def forward(
        self, x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor], memory: LayerMemory | None
    ) -> torch.Tensor:
        q, k, v = self._before(x, *rotation)
        if memory is not None:
            k, v = memory.extend(k, v)
        return self._after(x, attend(q, k, v))

    def before(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.attention.heads(self.attention_norm(x), cos, sin)

    def after(self, x: torch.Tensor, heard: torch.Tensor) -> torch.Tensor:
        x = x + self.attention.joined(heard)
        return x + self.feed(self.feed_norm(x))

    def hasten(self, device: str) -> None:
        """Compiled, around the attention: a memory that grows would be compiled anew for every token."""
        self._before, self._after = faster(self.before, device), faster(self.after, device)


class Network(nn.Module):
    """Tokens [rows, tokens] to states; `logits` makes chances of those states for which somebody wants them."""

    def __init__(self, shape: Hyperparameters, *, qkv_bias: bool = False, out_bias: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.n_vocab, shape.n_embd)
        self.blocks = nn.ModuleList(Layer(shape, qkv_bias=qkv_bias, out_bias=out_bias) for _ in range(shape.n_layer))
        self.norm = Norm(shape.n_embd, shape.eps)
        self.own_output = None if shape.tied else nn.Linear(shape.n_embd, shape.n_vocab, bias=False)
        frequencies = shape.rope_base ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
        self.register_buffer("frequencies", frequencies.float())

    @property
    def output(self) -> torch.Tensor:
        """The matrix that turns states into logits [vocabulary, width]."""
        return self.embedding.weight if self.own_output is None else self.own_output.weight

    def forward(self, tokens: torch.Tensor, memory: KeyValues | None = None, layers: Sequence[int] = ()) -> Pass:
        """The layer after the last may be asked for too: its input is the stream before the last norm."""
        start = memory.n if memory is not None else 0
        rotation = self._rotation(start, tokens.shape[1])
        x = self.embedding(tokens).float()
        inputs: dict[int, torch.Tensor] = {}
        for layer, block in enumerate(self.blocks):
            if layer in layers:
                inputs[layer] = x
            x = block(x, rotation, memory.layers[layer] if memory is not None else None)
        inputs[len(self.blocks)] = x
        return Pass(self.norm(x), tuple(inputs[layer] for layer in layers))

    def hasten(self, device: str) -> None:
        """All layers run the same code, so one compilation serves them all."""
        for block in self.blocks:
            block.hasten(device)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.linear(hidden, self.output)

    def memory(self, n_rows: int, n_ctx: int, dtype: torch.dtype | None = None) -> KeyValues:
        device = self.embedding.weight.device
        return KeyValues(self.shape, n_rows, n_ctx, str(device), dtype or self.embedding.weight.dtype)

    def _rotation(self, start: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(start, start + n, device=self.frequencies.device, dtype=torch.float32)
        angles = positions[:, None] * self.frequencies
        return angles.cos(), angles.sin()
