"""What can be found wrong before an hour of computing instead of after it."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from paceline.distill.exporting import KINDS
from paceline.distill.student import size_of
from paceline.errors import ConfigError, LibraryError


def check_output(path: str, target: str) -> None:
    """The folder has to be there, or ours to make, and to be written to."""
    if Path(path).exists() and Path(path).samefile(target):
        raise ConfigError(f"-o {path} is the target itself, which would be lost")
    folder = Path(path).absolute().parent
    while not folder.exists():
        folder = folder.parent
    if Path(path).is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"cannot write to {path}")


def check_kind(kind: str) -> None:
    """libllama knows more kinds than gguf can write."""
    known: tuple[str, ...] = KINDS
    try:
        from paceline.llama.model import QUANTIZATIONS
    except LibraryError:
        pass
    else:
        known = tuple(QUANTIZATIONS)
    if kind not in known:
        raise ConfigError(f"--quant: a draft can be {', '.join(known)}, not {kind!r}")


def check_size(size: str) -> None:
    if size != "auto":
        size_of(size)


def check_device(device: str | None) -> None:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"--device {device}: torch cannot use it: {str(error).splitlines()[0]}") from None
