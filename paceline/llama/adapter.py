"""A LoRA adapter in memory, and what its file says of it. It is freed with its model."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from paceline.errors import ModelError
from paceline.llama.lib import c, log

LONGEST = 1024  # bytes of an entry
ACTIVATED = "it counts from its invocation tokens on (aLoRA), and here adapters count for whole texts"


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """`task` and `prefix` are for people and programs who use it: what it is for, how its prompts begin."""

    handle: Any
    task: str
    prefix: str


def load_adapter(model: int, path: str) -> LoraAdapter:
    """One that has to be applied otherwise is refused: half applied, it would write something else."""
    log.clear()
    handle = c.llama_adapter_lora_init(model, path.encode())
    if not handle:
        raise ModelError(f"cannot use the adapter {path}: {log.reason()}")
    if c.llama_adapter_get_alora_n_invocation_tokens(handle):
        raise ModelError(f"cannot use the adapter {path}: {ACTIVATED}")
    return LoraAdapter(handle, entry(handle, "adapter.lora.task_name"), entry(handle, "adapter.lora.prompt_prefix"))


def entry(handle: Any, key: str) -> str:
    """Of its file's metadata; empty where there is none."""
    buffer = ctypes.create_string_buffer(LONGEST)
    c.llama_adapter_meta_val_str(handle, key.encode(), buffer, LONGEST)
    return buffer.value.decode("utf-8", "replace")
