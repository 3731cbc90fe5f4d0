"""Training for the file as it will be: towards the end weights are rounded as the file will round them, and the student
learns around that. The gradient passes through as if nothing had been rounded."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.utils import parametrize

BLOCK = 32
KINDS = ("Q4_0",)
"""Others round so little that it is not worth learning around."""
ORIGINAL = ".parametrizations.weight.original"


def q4_0(weight: torch.Tensor) -> torch.Tensor:
    """What is left of a weight in ggml's Q4_0: sixteen steps in each block, the largest number on one of them."""
    blocks = weight.unflatten(-1, (-1, BLOCK))
    largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    step = largest / -8
    steps = torch.where(step == 0, 0.0, blocks / torch.where(step == 0, 1.0, step))
    return (((steps + 8.5).floor().clamp(0, 15) - 8) * step.half().float()).flatten(-2)


class Rounded(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + (q4_0(weight) - weight).detach()


def round_weights(modules: Iterable[nn.Module], kind: str) -> None:
    """From now on these compute with rounded weights; once is enough."""
    if kind not in KINDS:
        return
    for module in modules:
        if parametrize.is_parametrized(module) or not isinstance(module, nn.Linear | nn.Embedding):
            continue
        if module.weight.shape[-1] % BLOCK == 0:
            parametrize.register_parametrization(module, "weight", Rounded())


def plain_state(student: nn.Module) -> dict[str, torch.Tensor]:
    """Its weights by their usual names, not rounded."""
    return {name.replace(ORIGINAL, ".weight"): value for name, value in student.state_dict().items()}
