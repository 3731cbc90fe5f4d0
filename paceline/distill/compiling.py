"""`torch.compile` where it pays and works; a machine without a compiler is slower, not broken."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

OFF = "PACELINE_NO_COMPILE"
MOST_SHAPES = 64  # teacher and student, short rows and long ones, learning and measuring


def worthwhile(device: str) -> bool:
    return device.startswith("cuda") and not os.environ.get(OFF)


def faster(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """The same function, compiled on its first call on a GPU; as it is where that fails, or on a CPU."""
    if not worthwhile(device):
        return function
    tolerate()
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
    return compiled


def tolerate() -> None:
    """What cannot be compiled runs as it is; rows and lengths differ between writing, training and measuring."""
    from torch import _dynamo

    _dynamo.config.suppress_errors = True
    _dynamo.config.recompile_limit = MOST_SHAPES
