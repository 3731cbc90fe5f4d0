"""From `ModelParams` to libllama's struct: which devices, which memory, which metadata. Knows nothing of models."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from paceline.config import LAZY_MODES, NUMA_STRATEGIES, SPLIT_MODES, ModelParams
from paceline.errors import ConfigError
from paceline.llama.lib import c, ggml, ggml_devices

LOADS = {"auto": -1, "none": 0, "mmap": 1, "mlock": 2, "mmap+mlock": 3, "dio": 4}
LONGEST_ENTRY = 127  # bytes
METADATA: dict[str, tuple[int, str, Callable[[str], object]]] = {
    "int": (c.LLAMA_KV_OVERRIDE_TYPE_INT, "val_i64", int),
    "float": (c.LLAMA_KV_OVERRIDE_TYPE_FLOAT, "val_f64", float),
    "bool": (c.LLAMA_KV_OVERRIDE_TYPE_BOOL, "val_bool", {"true": True, "false": False}.__getitem__),
    "str": (c.LLAMA_KV_OVERRIDE_TYPE_STR, "val_str", str.encode),
}
CPU = 0
PLACED = ("devices", "split_mode", "tensor_split", "main_gpu", "tensors", "no_host")
GPU_FLAGS = {"devices": "-dev", "split_mode": "-sm", "tensor_split": "-ts", "main_gpu": "-mg"}
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
        raw.use_extra_bufts = params.use_extra_bufts
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
        if params.devices is not None:
            found = [device_named(name) for name in params.devices if name != "none"]
            self._devices = (ctypes.c_void_p * (len(found) + 1))(*found)
            raw.devices = ctypes.cast(self._devices, ctypes.c_void_p)
        if params.tensor_split:
            shares = params.tensor_split[: c.llama_max_devices()]
            raw.tensor_split = self._shares = (ctypes.c_float * c.llama_max_devices())(*shares)
        if params.tensors:
            rows = [BufferOverride(pattern.encode(), buffer_named(name)) for pattern, name in params.tensors]
            self._buffers = (BufferOverride * (len(rows) + 1))(*rows)
            raw.tensor_buft_overrides = ctypes.cast(self._buffers, ctypes.c_void_p)


def placement(params: ModelParams) -> dict[str, Any]:
    """Where the user puts things, beside the usual way."""
    chosen = {name: getattr(params, name) for name in (*PLACED, "metadata", "adapters")}
    return {name: value for name, value in chosen.items() if value != getattr(DEFAULTS, name)}


def idle_flags(params: ModelParams) -> list[str]:
    """Those the user gave that only a GPU could obey, where there is none."""
    if c.llama_supports_gpu_offload():
        return []
    layers = [f"-ngl {params.n_gpu_layers}"] if params.n_gpu_layers > 0 else []
    return layers + [flag for name, flag in GPU_FLAGS.items() if getattr(params, name) != getattr(DEFAULTS, name)]


@cache
def start_numa(strategy: str) -> None:
    """Once for the process."""
    c.llama_numa_init(1 + NUMA_STRATEGIES.index(strategy))


def describe(name: str) -> Callable[[int], str]:
    """One of ggml's functions from a handle to a name."""
    function = ggml(name, [ctypes.c_void_p], ctypes.c_char_p)
    return lambda handle: bytes(function(handle)).decode("utf-8", "replace")


def device_lines() -> list[str]:
    """What could hold a model beside the processor, with its memory."""
    kind = ggml("ggml_backend_dev_type", [ctypes.c_void_p], ctypes.c_int)
    memory = ggml("ggml_backend_dev_memory", [ctypes.c_void_p] + 2 * [ctypes.POINTER(ctypes.c_size_t)], None)
    name, about = describe("ggml_backend_dev_name"), describe("ggml_backend_dev_description")
    lines = []
    for device in ggml_devices():
        if kind(device) == CPU:
            continue
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        memory(device, ctypes.byref(free), ctypes.byref(total))
        lines.append(f"{name(device)}: {about(device)} ({total.value >> 20} MiB, {free.value >> 20} MiB free)")
    return lines


def device_named(name: str) -> int:
    kind = ggml("ggml_backend_dev_type", [ctypes.c_void_p], ctypes.c_int)
    named = describe("ggml_backend_dev_name")
    others = {named(device): device for device in ggml_devices() if kind(device) != CPU}
    if name not in others:
        raise ConfigError(
            f"there is no device {name}; this build of libllama has {', '.join(others) or 'the CPU alone'}"
        )
    return others[name]


def buffer_named(name: str) -> int:
    memory_of = ggml("ggml_backend_dev_buffer_type", [ctypes.c_void_p], ctypes.c_void_p)
    named = describe("ggml_backend_buft_name")
    kinds = {named(kind): kind for device in ggml_devices() if (kind := memory_of(device))}
    if name not in kinds:
        raise ConfigError(f"there is no memory called {name} for -ot; here there is {', '.join(kinds)}")
    return int(kinds[name])


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
