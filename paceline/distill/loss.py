"""How far a student's chances are from the teacher's, and which way is down.

Logits of a batch may fill a GPU (131,072 positions of 49,152 words are 13 GB at half precision, four times over), so
positions are taken in groups, and the gradient, which is known in closed form, is computed at once instead of kept for
later: for KL + b * CE(teacher's argmax) it is (1 + b) q - p - b * argmax.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.nn import functional

from paceline.distill.compiling import faster

GROUP_BYTES = 1 << 30
"""How large one matrix of logits may be; a handful of them exist at a time."""


def gradient_of(
    logits: torch.Tensor, wanted: torch.Tensor, weight: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of positions [n, vocabulary]: the gradient of the weighed loss by the logits, the loss, and where both have the
    same favourite."""
    own, teacher = logits.float().log_softmax(-1), wanted.float().log_softmax(-1)
    chances = teacher.exp()
    favourite = wanted.argmax(-1, keepdim=True)
    loss = (chances * (teacher - own)).sum(-1) - b * own.gather(-1, favourite)[:, 0]
    words = torch.arange(logits.shape[-1], device=logits.device)
    gradient = (1 + b) * own.exp() - chances - b * (words == favourite)
    agreed = logits.argmax(-1) == favourite[:, 0]
    return (gradient * weight[:, None]).to(logits.dtype), (loss * weight).sum(), agreed


@cache
def compiled(device: str) -> Any:
    return faster(gradient_of, device)


def group_size(output: torch.Tensor) -> int:
    """How many positions are looked at together: a power of two, so that groups are of one size."""
    fitting = max(1, GROUP_BYTES // (output.shape[0] * output.element_size()))
    return 1 << (int(fitting).bit_length() - 1)


class Distance(torch.autograd.Function):
    """The mean loss over all weight. Students' hidden states and output matrix get gradients, nothing else."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        output: torch.Tensor,
        teacher_hidden: torch.Tensor,
        teacher_output: torch.Tensor,
        weight: torch.Tensor,
        b: torch.Tensor,
    ) -> torch.Tensor:
        dtype = teacher_output.dtype
        matrix, n = output.to(dtype), len(hidden)
        by_hidden, by_output = torch.empty_like(hidden), torch.zeros_like(output)
        total, share = hidden.new_zeros(()), weight / weight.sum().clamp(min=1e-6)
        step, group = compiled(str(hidden.device)), group_size(teacher_output)
        for start in range(0, n, group):
            some = slice(start, start + group)
            states = hidden[some].to(dtype)
            wanted = functional.linear(teacher_hidden[some].to(dtype), teacher_output)
            gradient, loss, _ = step(functional.linear(states, matrix), wanted, share[some], b)
            by_hidden[some] = gradient @ matrix
            by_output += gradient.T @ states
            total += loss
        ctx.save_for_backward(by_hidden, by_output)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        by_hidden, by_output = ctx.saved_tensors
        return by_hidden * gradients[0], by_output * gradients[0], None, None, None, None
