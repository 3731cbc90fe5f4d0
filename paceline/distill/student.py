"""The draft to be: a small Llama that speaks the target's tokens and begins with the target's idea of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from paceline.distill.network import Network
from paceline.distill.reading import Hyperparameters
from paceline.distill.target import Teacher
from paceline.errors import ConfigError

HEAD_DIM = 64
FEED_FACTOR = 4
N_CTX = 2048
WEIGHT_SPREAD = 0.02
EMBEDDING_SPREAD = 0.04


@dataclass(frozen=True, slots=True)
class Size:
    """Width and depth; `agreement` is what a draft of this size comes to on people's prompts (docs/distill.md)."""

    width: int
    n_layers: int
    agreement: float | None = None


SIZES = {"s": Size(128, 2, 0.56), "m": Size(192, 4, 0.65), "l": Size(256, 6, 0.67), "xl": Size(320, 5, 0.688)}
"""The last is measured, the others are estimates after the distances that sizes had in an earlier recipe."""


def size_of(text: str) -> Size:
    """A name, or width and layers as in 320:6."""
    if text in SIZES:
        return SIZES[text]
    width, _, layers = text.partition(":")
    try:
        size = Size(int(width), int(layers))
    except ValueError:
        raise ConfigError(f"--size is auto, {', '.join(SIZES)} or WIDTH:LAYERS as in 256:6, not {text!r}") from None
    if size.width < 32 or size.width % 32 or size.n_layers < 1:
        raise ConfigError(f"the width of a draft is a multiple of 32 and it has at least one layer, got {text!r}")
    return size


def shape_of(size: Size, target: Hyperparameters, n_ctx: int = N_CTX) -> Hyperparameters:
    """A draft of this size for that target."""
    head_dim = HEAD_DIM if size.width % HEAD_DIM == 0 else 32
    n_head = size.width // head_dim
    return Hyperparameters(
        n_vocab=target.n_vocab,
        n_embd=size.width,
        n_layer=size.n_layers,
        n_head=n_head,
        n_head_kv=n_head,
        head_dim=head_dim,
        n_ff=FEED_FACTOR * size.width,
        n_ctx=n_ctx,
    )


class Student(Network):
    """Weights are float32 and trained; multiplications are as precise as the context they run in."""

    def stored_small(self) -> list[nn.Module]:
        """What the file rounds to its kind."""
        return list(self.modules())

    @classmethod
    def fresh(cls, shape: Hyperparameters, teacher: Teacher, seed: int = 0) -> Student:
        torch.manual_seed(seed)
        student = cls(shape)
        for name, weight in student.named_parameters():
            if weight.dim() > 1:
                is_last = name.endswith(("attention.out.weight", "feed.down.weight"))
                nn.init.normal_(weight, std=WEIGHT_SPREAD / (math.sqrt(2 * shape.n_layer) if is_last else 1.0))
        with torch.no_grad():
            student.embedding.weight.copy_(reduced(teacher.output.float().cpu(), shape.n_embd))
        student.to(teacher.device)
        return student


def reduced(embeddings: torch.Tensor, width: int) -> torch.Tensor:
    """The target's embeddings in fewer dimensions: its strongest directions, turned so that all dimensions weigh
    alike. A student that is wider than its target gets noise beside them."""
    kept = min(width, embeddings.shape[1])
    _, directions = torch.linalg.eigh(embeddings.T @ embeddings)
    found = embeddings @ directions[:, -kept:]
    found = torch.cat((found, torch.randn(len(found), width - kept) * found.std()), dim=1)
    turned = found @ torch.linalg.qr(torch.randn(width, width)).Q
    return turned * (EMBEDDING_SPREAD / turned.std())
