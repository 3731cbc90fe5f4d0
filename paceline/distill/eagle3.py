"""An EAGLE-3 head in torch: the very arithmetic of libllama's, so that what is trained here drafts the same there.

At position P it computes a pair: the token at P + 1, and one row made of what three layers of the target read at P. Out
comes a guess of the token at P + 2, and a row with which the head goes on by itself. Tokens' embeddings are the
target's; of the target's tokens it knows the most frequent ones, in the order of `tokens`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from paceline.distill.compiling import faster

Memory = list[tuple[Tensor, Tensor]]
"""Keys and values of each step so far."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    width: int
    """Of a row, the target's too."""
    layers: tuple[int, int, int]
    """Whose inputs are read."""
    n_tokens: int
    """That it knows."""
    n_head: int
    n_kv: int
    head_width: int
    n_ff: int
    eps: float = 1e-5
    rope_base: float = 10_000.0
    n_ctx: int = 2048
    norm_first: bool = True
    """Whether what it reads of the target passes a norm before anything else."""
    norm_residual: bool = True
    """Whether a row goes on past the attention with its norm or without."""


def usual_layers(n_layer: int) -> tuple[int, int, int]:
    """One low, one in the middle, one high: what published heads read."""
    return min(2, n_layer - 1), n_layer // 2, max(n_layer - 3, n_layer // 2)


class Eagle3Head(nn.Module):
    """Parameters bear the names of the GGUF file's tensors, with `_` for `.`."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        width, reads = shape.width, len(shape.layers) * shape.width
        self.enc_output_norm = nn.Parameter(torch.ones(reads)) if shape.norm_first else None
        self.fc = linear(reads, width)
        self.attn_norm, self.attn_norm_2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.attn_q = linear(2 * width, shape.n_head * shape.head_width)
        self.attn_k = linear(2 * width, shape.n_kv * shape.head_width)
        self.attn_v = linear(2 * width, shape.n_kv * shape.head_width)
        self.attn_output = linear(shape.n_head * shape.head_width, width)
        self.ffn_norm, self.output_norm = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.ffn_gate, self.ffn_up = linear(width, shape.n_ff), linear(width, shape.n_ff)
        self.ffn_down = linear(shape.n_ff, width)
        self.output = linear(width, shape.n_tokens)
        self.register_buffer("tokens", torch.arange(shape.n_tokens))
        self._before, self._after = self.before, self.after

    tokens: Tensor

    def with_tokens(self, tokens: Tensor) -> Self:
        """The target's ids of what it knows, each once."""
        self.tokens.copy_(tokens)
        return self

    def read(self, features: Tensor) -> Tensor:
        """Rows of three layers, side by side, made into one."""
        if self.enc_output_norm is not None:
            features = norm(features, self.enc_output_norm, self.shape.eps)
        fused: Tensor = self.fc(features)
        return fused

    def forward(self, embedded: Tensor, rows: Tensor, memory: Memory, mask: Tensor | None, turns: Tensor) -> Tensor:
        """One step for all positions [B, T, width]; its keys and values join `memory`. `mask` [T, keys] says which of
        all of these each position sees, None: those before it, where there is but one step. The row that comes back
        is fed to the next step, and to `scores`."""
        query, key, value, past = self._before(embedded, rows, turns)
        memory.append((key, value))
        keys, values = (
            torch.cat(parts, 2).repeat_interleave(self.shape.n_head // self.shape.n_kv, 1)
            for parts in zip(*memory, strict=True)
        )
        heard = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=mask is None)
        return self._after(heard, past)

    def before(self, embedded: Tensor, rows: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, key and value of each pair, and what goes on past the attention."""
        shape = self.shape
        known = norm(rows, self.attn_norm_2, shape.eps)
        pair = torch.cat([norm(embedded, self.attn_norm, shape.eps), known], -1)
        query, key, value = (
            part(pair).unflatten(-1, (-1, shape.head_width)).transpose(1, 2)
            for part in (self.attn_q, self.attn_k, self.attn_v)
        )
        query, key = turned(query, turns).to(value.dtype), turned(key, turns).to(value.dtype)
        return query, key, value, known if shape.norm_residual else rows

    def after(self, heard: Tensor, past: Tensor) -> Tensor:
        rows = past + self.attn_output(heard.transpose(1, 2).flatten(2))
        inner = norm(rows, self.ffn_norm, self.shape.eps)
        added: Tensor = self.ffn_down(functional.silu(self.ffn_gate(inner)) * self.ffn_up(inner))
        return rows + added

    def hasten(self, device: str) -> None:
        """Compiled, around the attention: that changes with every step."""
        self._before, self._after = faster(self.before, device), faster(self.after, device)

    def stored_small(self) -> list[nn.Module]:
        """What the file rounds to its kind."""
        return [module for module in self.modules() if isinstance(module, nn.Linear)]

    def scores(self, rows: Tensor) -> Tensor:
        """Logits of the tokens it knows."""
        logits: Tensor = self.output(norm(rows, self.output_norm, self.shape.eps))
        return logits

    def turns(self, first: int, n: int) -> Tensor:
        """Of positions `first` on: as complex numbers' parts [n, head_width / 2, 2]."""
        device = self.fc.weight.device
        steps = torch.arange(0, self.shape.head_width, 2, device=device, dtype=torch.float32)
        speeds = self.shape.rope_base ** (-steps / self.shape.head_width)
        angles = torch.arange(first, first + n, device=device, dtype=torch.float32)[:, None] * speeds
        return torch.stack([angles.cos(), angles.sin()], -1)


def linear(n_in: int, n_out: int) -> nn.Linear:
    return nn.Linear(n_in, n_out, bias=False)


def norm(values: Tensor, weight: Tensor, eps: float) -> Tensor:
    """In float32: the target's rows are large."""
    return functional.rms_norm(values.float(), weight.shape, weight.float(), eps)


def turned(values: Tensor, turns: Tensor) -> Tensor:
    """Neighbouring numbers are turned together, as libllama does for this architecture. [B, H, T, width]"""
    even, odd = values.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = turns.unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
