"""What distilling needs beyond the rest of the house, imported when it is needed, and what to say without it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from paceline.errors import LibraryError

INSTALL = "pip install 'paceline[distill]'"
CPU_BUILD = "for a small build without CUDA, install torch first from PyTorch's CPU index"


def gguf() -> Any:
    return _imported("gguf")


def torch() -> Any:
    return _imported("torch")


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        why = " ".join(str(error).split())
        raise LibraryError(f"distill needs {name} ({why}): {INSTALL}; {CPU_BUILD}") from None
