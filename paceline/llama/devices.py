"""What computes here: ggml's devices with their kind and memory, and the memories that tensors can be put into."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.config.granted import free_memory
from paceline.errors import ConfigError
from paceline.llama.lib import ggml, ggml_devices, system

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

    def __str__(self) -> str:
        return f"{self.name}: {self.description} ({self.n_bytes >> 20} MiB, {self.n_free >> 20} MiB free)"


def found_devices() -> list[Device]:
    """In libllama's own order."""
    return [device_of(handle) for handle in ggml_devices()]


def kind_of(handle: int) -> str:
    return KINDS[ggml("ggml_backend_dev_type", [ctypes.c_void_p], ctypes.c_int)(handle)]


def device_of(handle: int) -> Device:
    backend = ggml("ggml_backend_dev_backend_reg", [ctypes.c_void_p], ctypes.c_void_p)
    return Device(
        describe("ggml_backend_dev_name")(handle),
        describe("ggml_backend_dev_description")(handle),
        kind_of(handle),
        describe("ggml_backend_reg_name")(backend(handle)),
        *memory_of(handle, is_processor=kind_of(handle) == PROCESSOR),
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
    """Whether there is a GPU, here or at a worker; a build with RPC says so of itself without either."""
    return any(kind_of(handle) in HOLD_LAYERS for handle in ggml_devices())


def device_lines() -> list[str]:
    """What could hold a model beside the processor, with its memory, as llama-server words it."""
    return [str(device) for device in found_devices() if device.kind != PROCESSOR]


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


def buffer_named(name: str, usable: Sequence[int] | None = None) -> int | None:
    """One of the memories that `-ot` can name, by its own name or by its device's (the memory of RPC1 is called
    RPC0[host:port], the first of that worker); None for a GPU's where there is none. libllama ends the process over
    tensors on devices that the model does not use."""
    memory = ggml("ggml_backend_dev_buffer_type", [ctypes.c_void_p], ctypes.c_void_p)
    named, device_name = describe("ggml_backend_buft_name"), describe("ggml_backend_dev_name")
    kinds = {device: int(kind) for device in ggml_devices() if (kind := memory(device))}
    by_name = {named(kind): device for device, kind in kinds.items()}
    known = {device_name(device): device for device in kinds} | by_name
    device = {plain(one): device for one, device in known.items()}.get(plain(name))
    if device is None:
        if is_out_of_reach(name):
            return None
        raise ConfigError(f"there is no memory called {name} for -ot; here there is {', '.join(by_name)}")
    if usable is not None and device not in usable and kind_of(device) != PROCESSOR:
        raise ConfigError(f"-ot puts tensors on {name}, which this model does not use: name it with -dev too")
    return kinds[device]
