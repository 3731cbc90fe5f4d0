"""Who moves which weights, and how fast: matrices by Muon where torch has it (it learns as much from fewer tokens),
tables of tokens and norms by AdamW."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

DECAY = 0.01


def optimizers(
    student: nn.Module, tables: Iterable[torch.Tensor], *, rate: float, table_rate: float, device: str
) -> list[torch.optim.Optimizer]:
    """Each group has its `rate`, to be multiplied by the pace of the hour."""
    apart = {id(table) for table in tables}
    matrices = [p for p in student.parameters() if p.dim() > 1 and id(p) not in apart]
    own = [p for p in student.parameters() if id(p) in apart]
    vectors = [p for p in student.parameters() if p.dim() == 1]
    slow = [
        {"params": vectors, "rate": rate, "weight_decay": 0.0},
        {"params": own, "rate": table_rate, "weight_decay": 0.0},
    ]
    shared = {"params": matrices, "rate": rate, "weight_decay": DECAY}
    fused = device.startswith("cuda")
    if not hasattr(torch.optim, "Muon"):
        return [torch.optim.AdamW([*slow, shared], lr=rate, betas=(0.9, 0.95), fused=fused)]
    muon = torch.optim.Muon([shared], lr=rate, adjust_lr_fn="match_rms_adamw")
    return [torch.optim.AdamW(slow, lr=rate, betas=(0.9, 0.95), fused=fused), muon]
