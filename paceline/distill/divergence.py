"""How far a head's guesses are from what the target says, without ever holding all logits.

Logits of many positions and thousands of tokens are the largest numbers of a step. They are made for some positions at
a time, and what the gradient needs of them is taken at once, going forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from paceline.distill.compiling import faster

CHUNK = 8192
"""Positions at a time."""


@dataclass(frozen=True, slots=True)
class Guess:
    """The sum of the weighted divergences, and at which positions the likeliest token is the target's."""

    loss: Tensor
    right: Tensor


def divergence(states: Tensor, output: Tensor, chances: Tensor, best: Tensor, weights: Tensor) -> Guess:
    """Kullback-Leibler from `chances` (whose sum may be less than one: the rest is unknown to the head, and the
    position counts less) to the softmax of `states @ output.T`; rows are positions."""
    loss, right = Divergence.apply(states, output, chances, best, weights)
    return Guess(loss, right)


class Divergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, output: Tensor, chances: Tensor, best: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        matrix = output.to(states.dtype)
        wanted = any(ctx.needs_input_grad)
        loss = torch.zeros((), device=states.device)
        right = torch.empty(len(states), device=states.device)
        to_states = torch.empty_like(states) if wanted else None
        to_output = torch.zeros_like(output, dtype=torch.float32) if wanted else None
        for first in range(0, len(states), CHUNK):
            part = slice(first, first + CHUNK)
            logits = states[part] @ matrix.T
            added, right[part], slope = compared(states.device.type)(logits, chances[part], best[part], weights[part])
            loss += added
            if to_states is not None and to_output is not None:
                to_states[part] = slope @ matrix
                to_output += (slope.T @ states[part]).float()
        ctx.save_for_backward(to_states, to_output)
        ctx.mark_non_differentiable(right)
        return loss, right

    @staticmethod
    def backward(ctx: Any, by: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        to_states, to_output = ctx.saved_tensors
        return (to_states * by).to(to_states.dtype), to_output * by, None, None, None


def compare(logits: Tensor, chances: Tensor, best: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sum, which are right, and the slope of the sum by each logit."""
    told = chances.float()
    mass = told.sum(-1, keepdim=True)
    sure = torch.log_softmax(logits.float(), -1)
    apart = (told * (told.clamp(min=1e-30).log() - sure)).sum(-1) - (mass * mass.clamp(min=1e-30).log())[:, 0]
    slope = (weights[:, None] * (mass * sure.exp() - told)).to(logits.dtype)
    right = ((logits.argmax(-1) == best) & (best >= 0)).float()
    return (apart * weights).sum(), right, slope


@cache
def compared(device: str) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Fused where a compiler pays."""
    return faster(compare, device)
