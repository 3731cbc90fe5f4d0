"""`torch.compile` where it pays and works; a machine without a compiler is slower, not broken."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

OFF = "PACELINE_NO_COMPILE"
MOST_SHAPES = 32  # teacher and student, short rows and long ones, learning and measuring


def worthwhile(device: str) -> bool:
    return device.startswith("cuda") and not os.environ.get(OFF)


def faster(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """The same function, compiled on its first call on a GPU; as it is where that fails, or on a CPU."""
    if not worthwhile(device):
        return function
    tolerate()
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
    return compiled


def compile_layers(layers: Any, device: str) -> None:
    """Layer by layer: all run the same code, so one compilation serves them all."""
    if worthwhile(device):
        tolerate()
        for layer in layers:
            layer.compile(dynamic=False)


def tolerate() -> None:
    """What cannot be compiled runs as it is."""
    from torch import _dynamo

    _dynamo.config.suppress_errors = True
    _dynamo.config.cache_size_limit = MOST_SHAPES
