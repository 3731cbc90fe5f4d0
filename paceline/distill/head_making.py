"""A new EAGLE-3 head for a target: which tokens it knows, and what it starts from."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from paceline.distill.eagle3 import Eagle3Head, HeadShape, usual_layers
from paceline.distill.target import Teacher

N_KNOWN = 16_384
"""Tokens that a head knows, unless told otherwise: nearly all that a model of 49,152 ever writes."""

FAMILIAR = 3
"""Times that a token a head knows has occurred, as it were: learning another in its place costs some text."""


def frequent(tokens: Tensor, n_vocab: int, n: int, known: Tensor | None = None) -> Tensor:
    """The n tokens that occur most often, in the order of their ids; of those that never occur, the lowest ids. Those
    that a head knows already count as if they had occurred a few times more."""
    counts = torch.bincount(tokens.flatten().long().cpu(), minlength=n_vocab)
    if known is not None:
        counts[known.cpu()] += FAMILIAR
    order = torch.sort(counts, descending=True, stable=True).indices
    return order[: min(n, n_vocab)].sort().values


def coverage(tokens: Tensor, known: Tensor) -> float:
    """The share of a text's tokens that a head could guess."""
    return float(torch.isin(tokens, known.to(tokens.device)).float().mean())


def shape_for(teacher: Teacher, n_known: int, *, n_ff: int = 0, n_ctx: int = 2048) -> HeadShape:
    """`n_ff` 0: four times a row, in round numbers."""
    target = teacher.shape
    return HeadShape(
        width=target.n_embd,
        layers=usual_layers(target.n_layer),
        n_tokens=min(n_known, target.n_vocab),
        n_head=target.n_head,
        n_kv=target.n_head_kv,
        head_width=target.head_dim,
        n_ff=n_ff or -(-4 * target.n_embd // 256) * 256,
        eps=target.eps,
        rope_base=target.rope_base,
        n_ctx=n_ctx,
    )


@torch.no_grad()
def new_head(teacher: Teacher, shape: HeadShape, known: Tensor, sample: Tensor) -> Eagle3Head:
    """Untrained, but it starts in the target's own language: its output is the target's, the highest layer passes
    through as it is, and everything it reads is brought to one size, as measured on a `sample` of text."""
    head = Eagle3Head(shape).to(teacher.device).with_tokens(known.to(teacher.device))
    head.output.weight.copy_(teacher.output[head.tokens])
    head.output_norm.copy_(teacher.norm.weight)
    if head.enc_output_norm is not None:
        head.enc_output_norm.copy_(1 / typical(teacher, shape, sample))
    width = shape.width
    head.fc.weight.normal_(0, 0.5 / (3 * width) ** 0.5)
    head.fc.weight[:, -width:] += torch.eye(width, device=teacher.device)
    for last in (head.attn_output, head.ffn_down):
        last.weight.mul_(0.5)
    return head


@torch.no_grad()
def with_vocabulary(head: Eagle3Head, known: Tensor, teacher: Teacher) -> Eagle3Head:
    """The same head, which knows these tokens (in order): what it has learned of them stays, others begin anew."""
    widened = Eagle3Head(replace(head.shape, n_tokens=len(known))).to(teacher.device)
    tokens = known.to(teacher.device)
    rows = teacher.output[tokens].float()
    places = torch.searchsorted(tokens, head.tokens).clamp(max=len(tokens) - 1)
    kept = tokens[places] == head.tokens
    rows[places[kept]] = head.output.weight[kept].float()
    widened.load_state_dict(head.state_dict() | {"tokens": tokens, "output.weight": rows})
    return widened


def typical(teacher: Teacher, shape: HeadShape, sample: Tensor) -> Tensor:
    """How large each number is that the head reads, once a row as a whole has size one. The median: a few tokens, the
    first of all, have rows a thousand times as large as others."""
    with teacher.precision():
        rows = torch.cat(teacher(sample, layers=shape.layers).inputs, -1).float().flatten(0, 1)
    rows = rows / (rows.square().mean(-1, keepdim=True) + shape.eps).sqrt()
    return (rows.abs().median(0).values * 1.48).clamp(min=1e-3)
