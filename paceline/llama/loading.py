"""From `ModelParams` to libllama's struct: which devices, which memory, which metadata. Knows nothing of models."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from paceline.config import LAZY_MODES, NUMA_STRATEGIES, SPLIT_MODES, ModelParams, Settings
from paceline.errors import ConfigError
from paceline.llama import amx
from paceline.llama.devices import buffer_named, can_offload, device_named, processor_function
from paceline.llama.lib import c
from paceline.llama.rpc import WORKERS, local_gpus

logger = logging.getLogger("paceline")

LOADS = {"auto": -1, "none": 0, "mmap": 1, "mlock": 2, "mmap+mlock": 3, "dio": 4}
LONGEST_ENTRY = 127  # bytes
METADATA: dict[str, tuple[int, str, Callable[[str], object]]] = {
    "int": (c.LLAMA_KV_OVERRIDE_TYPE_INT, "val_i64", int),
    "float": (c.LLAMA_KV_OVERRIDE_TYPE_FLOAT, "val_f64", float),
    "bool": (c.LLAMA_KV_OVERRIDE_TYPE_BOOL, "val_bool", {"true": True, "false": False}.__getitem__),
    "str": (c.LLAMA_KV_OVERRIDE_TYPE_STR, "val_str", str.encode),
}
PLACED = ("devices", "rpc", "split_mode", "tensor_split", "main_gpu", "tensors", "no_host")
TARGET_FLAGS = {
    "devices": "-dev",
    "split_mode": "-sm",
    "tensor_split": "-ts",
    "main_gpu": "-mg",
    "tensors": "-ot/-cmoe/-ncmoe",
    "no_host": "--no-host",
}
CONTEXT_FLAGS = {"offload_kqv": "-nkvo", "op_offload": "--no-op-offload"}
DRAFT_FLAGS = {name: f"--draft-params {flag}" for name, flag in TARGET_FLAGS.items()}
DRAFT_FLAGS |= {"devices": "-devd", "tensors": "-otd/-cmoed/-ncmoed"}
DEFAULTS = ModelParams(path="-")


class BufferOverride(ctypes.Structure):
    """Tensors whose names match the pattern live in this memory."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer", ctypes.c_void_p))


class ModelStruct:
    """`raw` is what libllama wants; it points into what is kept here."""

    def __init__(self, params: ModelParams) -> None:
        raw = self.raw = c.llama_model_default_params()
        raw.n_gpu_layers = params.n_gpu_layers
        mode = params.load_mode
        raw.load_mode = LOADS[mode] if mode else params.use_mmap + 2 * params.use_mlock
        if params.lazy_mode is not None:
            raw.lazy_mode = LAZY_MODES.index(params.lazy_mode)
        raw.use_extra_bufts = params.use_extra_bufts and not amx.is_in_the_way()
        raw.vocab_only = params.vocab_only
        raw.check_tensors = params.check_tensors
        raw.load_mtp = params.mtp
        raw.no_host = params.no_host
        raw.split_mode = SPLIT_MODES.index(params.split_mode)
        raw.main_gpu = params.main_gpu
        if params.numa is not None:
            start_numa(params.numa)
        self._place(params)
        if params.metadata:
            entries = [metadata_entry(text) for text in params.metadata]
            raw.kv_overrides = self._metadata = (c.llama_model_kv_override * (len(entries) + 1))(*entries)

    def _place(self, params: ModelParams) -> None:
        raw = self.raw
        if (found := chosen_devices(params)) is not None:
            self._devices = (ctypes.c_void_p * (len(found) + 1))(*found)
            raw.devices = ctypes.cast(self._devices, ctypes.c_void_p)
        if params.tensor_split:
            shares = params.tensor_split[: c.llama_max_devices()]
            raw.tensor_split = self._shares = (ctypes.c_float * c.llama_max_devices())(*shares)
        if params.tensors:
            kinds = ((pattern, buffer_named(name, found)) for pattern, name in params.tensors)
            rows = [BufferOverride(pattern.encode(), kind) for pattern, kind in kinds if kind]
            self._buffers = (BufferOverride * (len(rows) + 1))(*rows)
            raw.tensor_buft_overrides = ctypes.cast(self._buffers, ctypes.c_void_p)


def chosen_devices(params: ModelParams) -> list[int] | None:
    """None leaves it to libllama, which would put every model on all the workers that were joined."""
    own = WORKERS.join(params.rpc)
    if params.devices is not None:
        return [handle for name in params.devices if (handle := device_named(name))]
    return own + local_gpus() if WORKERS else None


def has_devices(params: ModelParams) -> bool:
    """Whether there is anything but the processor for it."""
    found = chosen_devices(params)
    return bool(local_gpus() if found is None else found)


def placement(params: ModelParams) -> dict[str, Any]:
    """Where the user puts things, beside the usual way."""
    chosen = {name: getattr(params, name) for name in (*PLACED, "metadata", "adapters")}
    return {name: value for name, value in chosen.items() if value != getattr(DEFAULTS, name)}


def idle_flags(settings: Settings) -> list[str]:
    """Those the user gave that only a GPU could obey, where there is none."""
    if can_offload():
        return []
    found = idle_of(settings.model, DEFAULTS, "-ngl", TARGET_FLAGS)
    found += [flag for name, flag in CONTEXT_FLAGS.items() if not getattr(settings.context, name)]
    return found + (idle_of(settings.draft, settings.model, "-ngld", DRAFT_FLAGS) if settings.draft else [])


def idle_of(params: ModelParams, model: ModelParams, layers: str, flags: dict[str, str]) -> list[str]:
    """What is neither the usual, nor nothing (`-dev none`), nor taken over from another model."""
    given = [
        flag
        for name, flag in flags.items()
        if getattr(params, name) not in (getattr(DEFAULTS, name), getattr(model, name), ())
    ]
    return [f"{layers} {params.n_gpu_layers}", *given] if params.n_gpu_layers > 0 else given


@cache
def start_numa(strategy: str) -> None:
    """Once for the process."""
    c.llama_numa_init(1 + NUMA_STRATEGIES.index(strategy))
    if not is_numa():
        logger.warning("--numa %s cannot act here: libllama sees one memory node", strategy)


def is_numa() -> bool:
    """Whether the processor's back end knows of several memory nodes."""
    address = processor_function("ggml_backend_cpu_is_numa")
    return bool(ctypes.CFUNCTYPE(ctypes.c_bool)(address)()) if address else False


def metadata_entry(text: str) -> Any:
    """KEY=TYPE:VALUE, the type being int, float, bool or str."""
    key, _, typed = text.partition("=")
    kind, _, value = typed.partition(":")
    if not key or kind not in METADATA or max(len(key.encode()), len(value.encode())) > LONGEST_ENTRY:
        raise ConfigError(f"--override-kv {text!r} is not KEY=TYPE:VALUE with a type of {', '.join(METADATA)}")
    entry = c.llama_model_kv_override()
    entry.key = key.encode()
    entry.tag, field, convert = METADATA[kind]
    try:
        setattr(entry.value, field, convert(value))
    except (ValueError, KeyError):
        raise ConfigError(f"--override-kv {text!r}: {value!r} is no {kind}") from None
    return entry
