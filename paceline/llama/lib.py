"""libllama itself: loading it, checking its version, catching its log. The rest of the room imports it from here."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.errors import LibraryError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

TESTED = ((0, 3, 36), (0, 4, 0))
INSTALL = "pip install 'llama-cpp-python>=0.3.36,<0.4'"
TILED = "GGML_CPU_TILED_MM"
LEVEL_DEBUG, LEVEL_INFO, LEVEL_WARN, LEVEL_ERROR, LEVEL_CONTINUE = 1, 2, 3, 4, 5
LEVELS = {
    LEVEL_DEBUG: logging.DEBUG,
    LEVEL_INFO: logging.INFO,
    LEVEL_WARN: logging.WARNING,
    LEVEL_ERROR: logging.ERROR,
}

try:
    import llama_cpp
    import llama_cpp._ggml
except (ImportError, OSError, RuntimeError, AttributeError) as error:
    raise LibraryError(f"libllama could not be loaded ({' '.join(str(error).split())}); {INSTALL}") from error

c: Any = llama_cpp.llama_cpp


def check_version(version: str) -> None:
    """Struct layouts change between releases; a wrong one would corrupt memory rather than fail."""
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    low, high = TESTED
    if not low <= numbers < high:
        raise LibraryError(f"llama-cpp-python {version} is not one we know how to speak to; {INSTALL}")


class Log:
    """Gives libllama's lines to the logger "paceline.llama" and keeps the last warnings and errors, for messages."""

    def __init__(self) -> None:
        self._errors: deque[str] = deque(maxlen=8)
        self._tail: deque[str] = deque(maxlen=20)
        self._last_level = 0
        self._lock = threading.RLock()
        self._logger = logging.getLogger("paceline.llama")
        self._logger.addHandler(logging.NullHandler())
        self._callback = c.llama_log_callback(self._on_line)
        c.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _on_line(self, level: int, text: bytes, _data: object) -> None:
        level = self._last_level if level == LEVEL_CONTINUE else level
        self._last_level = level
        urgency = LEVELS.get(level, logging.INFO)
        wanted = self._logger.isEnabledFor(urgency)
        if (wanted or urgency >= logging.WARNING) and (line := text.decode("utf-8", "replace").strip()):
            self._keep(urgency, line)
            self._logger.log(urgency, "%s", line)

    def _keep(self, urgency: int, line: str) -> None:
        with self._lock:
            if urgency >= logging.WARNING:
                self._tail.append(line)
            if urgency >= logging.ERROR:
                self._errors.append(line)

    def tail(self) -> list[str]:
        """The last warnings and errors, oldest first; `clear` does not touch them."""
        with self._lock:
            return list(self._tail)

    def clear(self) -> None:
        with self._lock:
            self._errors.clear()

    def reason(self) -> str:
        """The first error since `clear`: libllama reports the cause first, then everything that failed with it."""
        with self._lock:
            first = next(iter(self._errors), "")
        return first.split(": ", 1)[-1] if first else "libllama gave no reason"


def raw(name: str, argtypes: list[Any], restype: Any) -> Any:
    """A private prototype of a libllama function, for hot paths that want plain addresses."""
    function = c._lib[name]
    function.argtypes = argtypes
    function.restype = restype
    return function


check_version(llama_cpp.__version__)
log = Log()
c.llama_backend_init()
get_logits = raw("llama_get_logits", [ctypes.c_void_p], ctypes.c_void_p)


def system() -> str:
    """The machine as libllama sees it: its instruction sets and back ends."""
    return bytes(c.llama_print_system_info()).decode()


@cache
def build() -> list[list[str | int]]:
    """Two builds of one version differ in their kernels; the sizes of their files tell them apart."""
    folder = Path(str(c._lib._name)).parent
    return sorted([file.name, file.stat().st_size] for file in folder.glob("*ggml*") if file.is_file())


@cache
def tiled() -> str:
    """What ggml reads of its switch for tiled kernels. It reads it once, at the first multiplication; so do we, with
    the first context."""
    return os.environ.get(TILED, "")


def untile() -> None:
    """Tiled kernels take over at eight rows and round otherwise than those for fewer. No effect once one is open."""
    if not tiled.cache_info().currsize:
        os.environ.setdefault(TILED, "0")


def give_memory_back() -> None:
    """What was freed goes back to the system, where the C library can do that: else it counts as ours for ever."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def versions() -> str:
    """For bug reports: the package and the library inside it."""
    return f"llama-cpp-python {llama_cpp.__version__}, libllama {c.llama_version().decode()}"


def ggml(name: str, argtypes: list[Any], restype: Any) -> Any:
    function = getattr(llama_cpp._ggml.libggml, name)
    function.argtypes, function.restype = argtypes, restype
    return function


def ggml_devices() -> list[int]:
    """ggml's handles of what computes here."""
    count = ggml("ggml_backend_dev_count", [], ctypes.c_size_t)
    get = ggml("ggml_backend_dev_get", [ctypes.c_size_t], ctypes.c_void_p)
    return [get(i) for i in range(count())]


@cache
def devices() -> list[str]:
    """What computes here, by name: processors, graphics cards, and RPC workers with their addresses."""
    name = ggml("ggml_backend_dev_name", [ctypes.c_void_p], ctypes.c_char_p)
    describe = ggml("ggml_backend_dev_description", [ctypes.c_void_p], ctypes.c_char_p)
    found = [(name(device).decode(), describe(device).decode("utf-8", "replace")) for device in ggml_devices()]
    return [f"{short} at {long}" if short.startswith("RPC") else long for short, long in found]
