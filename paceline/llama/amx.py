"""AMX, the matrix unit of Intel's server processors: whether libllama's kernels for it work here.

ggml writes the unit's configuration to the stack and loads it from there. GCC before 14 believes that only eight bytes
of it are read and drops the rest: such a build dies at its first batch of quantised weights (llama.cpp's issue 20824).
So a small product is computed first, in a process of its own.
"""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np

from paceline.llama.devices import PROCESSOR, describe, features, found_devices, processor_function
from paceline.llama.lib import ggml

log = logging.getLogger("paceline")

TELLS = "PACELINE_AMX"
"""Set for the processes that are started from here, so that they need not try it again."""
WORKS, BROKEN = "works", "broken"
TRIAL = (sys.executable, "-P", "-m", "paceline.llama.amx")
TRYING_S = 30.0
WARNING = (
    "libllama's kernels for AMX, this processor's matrix unit, do not work: compilers like GCC 11 and 12 break them. "
    "They are not used; `paceline devices` says how to compile them so that they work"
)

F32, Q8_0 = 0, 8
BLOCK = np.dtype([("scale", np.float16), ("values", np.int8, 32)])
WIDTH, N_ROWS, N_TOKENS = 64, 32, 40
ARENA_BYTES = 1 << 20


@cache
def is_in_the_way() -> bool:
    """Whether weights must not be rearranged for the processor at all, since ggml would multiply them with broken
    kernels."""
    return is_broken() and not is_kept_away()


def is_broken() -> bool:
    if features().get("CPU", {}).get("AMX_INT8") != "1":
        return False
    if TELLS not in os.environ:
        os.environ[TELLS] = WORKS if works_apart() else BROKEN
        if os.environ[TELLS] == BROKEN:
            log.warning(WARNING)
    return os.environ[TELLS] == BROKEN


def works_apart() -> bool:
    try:
        return subprocess.run(TRIAL, capture_output=True, timeout=TRYING_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


# -- without it


class SignalStack(ctypes.Structure):
    """The system's `stack_t`."""

    _fields_ = (("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("n_bytes", ctypes.c_size_t))


NO_STACK = 2
SMALL = 8192  # bytes: room for what is there without AMX, and not for its eight tiles


def is_kept_away() -> bool:
    """ggml asks the system for the unit once, when it is first asked what it offers. Linux says no while a thread has a
    signal stack on which the unit's state would not fit; then weights are rearranged for the other kernels."""
    with suppress(OSError, AttributeError), small_signal_stack(), silence():
        return memory_kind() is None
    return False


@contextmanager
def small_signal_stack() -> Iterator[None]:
    """Of this thread. Who has one of his own keeps it, and the unit."""
    exchange = ctypes.CDLL(None, use_errno=True).sigaltstack
    memory, before = ctypes.create_string_buffer(SMALL), SignalStack()
    if exchange(ctypes.byref(SignalStack(ctypes.addressof(memory), 0, SMALL)), ctypes.byref(before)) != 0:
        raise OSError(ctypes.get_errno(), "no signal stack")
    try:
        yield
    finally:
        exchange(ctypes.byref(before if before.memory else SignalStack(None, NO_STACK, 0)), None)


@contextmanager
def silence() -> Iterator[None]:
    """ggml's line on being refused says less than ours."""
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


# -- in the process of its own


class Arena(ctypes.Structure):
    """What holds ggml's descriptions of tensors, and not their data."""

    _fields_ = (("n_bytes", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_data", ctypes.c_bool))


def call(name: str, *arguments: Any, result: Any = ctypes.c_void_p) -> Any:
    """One of ggml's functions; whole numbers are addresses."""
    kinds = [ctypes.c_void_p if isinstance(each, int) else type(each) for each in arguments]
    return ggml(name, kinds, result)(*arguments)


def processor() -> int:
    return next(device.handle for device in found_devices() if device.kind == PROCESSOR)


def memory_kind() -> int | None:
    """Weights that lie in this memory are multiplied with AMX; None where ggml does not offer it."""
    address = processor_function("ggml_backend_dev_get_extra_bufts")
    if not address:
        return None
    kinds = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)(processor())
    n = next(i for i, kind in enumerate(kinds) if not kind)
    return next((int(kind) for kind in kinds[:n] if describe("ggml_backend_buft_name")(kind) == "AMX"), None)


def product_is_right(kind: int) -> bool:
    """Of weights in this memory with several tokens: whole numbers, so that rounding is no excuse."""
    rng = np.random.default_rng(0)
    matrix, tokens = rng.integers(-9, 10, (N_ROWS, WIDTH)), rng.choice([-1, 1], (N_TOKENS, WIDTH))
    blocks = np.zeros((N_ROWS, WIDTH // 32), BLOCK)
    blocks["scale"], blocks["values"] = 1, matrix.reshape(N_ROWS, -1, 32)
    return np.allclose(product(kind, blocks, tokens.astype(np.float32)), tokens @ matrix.T, atol=0.5)


def product(kind: int, blocks: Any, tokens: Any) -> Any:
    """By ggml, on the processor. What it takes is freed with the process."""
    arena = call("ggml_init", Arena(ARENA_BYTES, None, True))
    size = [ctypes.c_int64(n) for n in (WIDTH, N_ROWS, N_TOKENS)]
    left = call("ggml_new_tensor_2d", arena, ctypes.c_int(Q8_0), size[0], size[1])
    right = call("ggml_new_tensor_2d", arena, ctypes.c_int(F32), size[0], size[2])
    result = call("ggml_mul_mat", arena, left, right)
    graph = call("ggml_new_graph", arena)
    call("ggml_build_forward_expand", graph, result, result=None)
    n_bytes = call("ggml_backend_buft_get_alloc_size", kind, left, result=ctypes.c_size_t)
    memory = call("ggml_backend_buft_alloc_buffer", kind, ctypes.c_size_t(n_bytes))
    first = call("ggml_backend_buffer_get_base", memory)
    call("ggml_backend_tensor_alloc", memory, left, first, result=ctypes.c_int)
    backend = call("ggml_backend_dev_init", processor(), ctypes.c_char_p(None))
    call("ggml_backend_alloc_ctx_tensors", arena, backend)
    copy("ggml_backend_tensor_set", left, blocks)
    copy("ggml_backend_tensor_set", right, tokens)
    call("ggml_backend_graph_compute", backend, graph, result=ctypes.c_int)
    found = np.zeros((N_TOKENS, N_ROWS), np.float32)
    copy("ggml_backend_tensor_get", result, found)
    return found


def copy(how: str, tensor: int, data: Any) -> None:
    call(how, tensor, int(data.ctypes.data), ctypes.c_size_t(0), ctypes.c_size_t(data.nbytes), result=None)


if __name__ == "__main__":
    offered = memory_kind()
    sys.exit(0 if offered is None or product_is_right(offered) else 1)
