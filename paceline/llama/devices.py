"""What computes here: ggml's devices with their kind and memory, and the memories that tensors can be put into."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass

from paceline.config.granted import free_memory
from paceline.errors import ConfigError
from paceline.llama.lib import c, ggml, ggml_devices, system

KINDS = ("CPU", "GPU", "integrated GPU", "accelerator", "several GPUs")
PROCESSOR, HOLD_LAYERS = "CPU", ("GPU", "integrated GPU")
ELSEWHERE = re.compile(
    r"(cuda|rocm|hip|musa|vulkan|metal|mtl|sycl|cann|gpuopencl|opencl|webgpu|htp|openvino|rpc)([\d_\[].*)?"
)
"""How devices of other builds are called, small letters and without colons."""


@dataclass(frozen=True, slots=True)
class Device:
    """Something that computes, as libllama names it. Layers of a model can be offloaded to a GPU; an accelerator helps
    the processor. `family` is the back end, as in CUDA. Memory in bytes, 0 where nobody says."""

    name: str
    description: str
    kind: str
    family: str
    n_bytes: int
    n_free: int
    handle: int

    @property
    def offloads(self) -> bool:
        return self.kind in HOLD_LAYERS


def found_devices() -> list[Device]:
    """In libllama's own order."""
    return [device_of(handle) for handle in ggml_devices()]


def device_of(handle: int) -> Device:
    kind = ggml("ggml_backend_dev_type", [ctypes.c_void_p], ctypes.c_int)
    backend = ggml("ggml_backend_dev_backend_reg", [ctypes.c_void_p], ctypes.c_void_p)
    return Device(
        describe("ggml_backend_dev_name")(handle),
        describe("ggml_backend_dev_description")(handle),
        KINDS[kind(handle)],
        describe("ggml_backend_reg_name")(backend(handle)),
        *memory_of(handle, is_processor=KINDS[kind(handle)] == PROCESSOR),
        handle,
    )


def memory_of(handle: int, *, is_processor: bool) -> tuple[int, int]:
    """All and free. ggml calls all of the computer's own memory free, so the system is asked for that."""
    ask = ggml("ggml_backend_dev_memory", [ctypes.c_void_p] + 2 * [ctypes.POINTER(ctypes.c_size_t)], None)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ask(handle, ctypes.byref(free), ctypes.byref(total))
    known = free_memory() if is_processor else None
    return total.value, free.value if known is None else known


def describe(name: str) -> Callable[[int], str]:
    """One of ggml's functions from a handle to a name."""
    function = ggml(name, [ctypes.c_void_p], ctypes.c_char_p)
    return lambda handle: bytes(function(handle)).decode("utf-8", "replace")


def processor_function(name: str) -> int | None:
    """The address of a function that only the processor's back end has."""
    processor = next(device.handle for device in found_devices() if device.kind == PROCESSOR)
    backend = ggml("ggml_backend_dev_backend_reg", [ctypes.c_void_p], ctypes.c_void_p)(processor)
    find = ggml("ggml_backend_reg_get_proc_address", [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_void_p)
    address: int | None = find(backend, name.encode())
    return address


def features() -> dict[str, dict[str, str]]:
    """What each back end was built for and found here, as in {"CPU": {"AVX2": "1"}}."""
    found: dict[str, dict[str, str]] = {}
    backend = ""
    for entry in system().split("|"):
        before, colon, after = entry.rpartition(" : ")
        backend = before.strip() if colon else backend
        name, equals, value = after.partition("=")
        if equals:
            found.setdefault(backend, {})[name.strip()] = value.strip()
    return found


def can_offload() -> bool:
    """Whether there is a GPU, and this build of libllama can use it."""
    return bool(c.llama_supports_gpu_offload())


def device_lines() -> list[str]:
    """What could hold a model beside the processor, with its memory, as llama-server words it."""
    return [
        f"{device.name}: {device.description} ({device.n_bytes >> 20} MiB, {device.n_free >> 20} MiB free)"
        for device in found_devices()
        if device.kind != PROCESSOR
    ]


def plain(name: str) -> str:
    """`cuda:0`, as other programs write it, is libllama's CUDA0."""
    return name.lower().replace(":", "")


def is_out_of_reach(name: str) -> bool:
    """Whether it can only be a GPU's, where there is none: a command line that was written for another machine."""
    return not can_offload() and bool(ELSEWHERE.fullmatch(plain(name)))


def device_named(name: str) -> int | None:
    """None for a GPU where there is none."""
    others = {device.name: device.handle for device in found_devices() if device.kind != PROCESSOR}
    handle = {plain(known): handle for known, handle in others.items()}.get(plain(name))
    if handle is None and not is_out_of_reach(name):
        there = ", ".join(others) or "the CPU alone"
        raise ConfigError(f"there is no device {name}; this build of libllama has {there}")
    return handle


def buffer_named(name: str) -> int | None:
    """One of the memories that `-ot` can name; None for a GPU's where there is none."""
    memory_of = ggml("ggml_backend_dev_buffer_type", [ctypes.c_void_p], ctypes.c_void_p)
    named = describe("ggml_backend_buft_name")
    kinds = {named(kind): int(kind) for device in ggml_devices() if (kind := memory_of(device))}
    kind = {plain(known): kind for known, kind in kinds.items()}.get(plain(name))
    if kind is None and not is_out_of_reach(name):
        raise ConfigError(f"there is no memory called {name} for -ot; here there is {', '.join(kinds)}")
    return kind
