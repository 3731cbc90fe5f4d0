"""ggml's RPC on both sides: joining workers on other machines, whose devices then are libllama's like any other, and
serving the devices here. Both go through the registry, since only some builds of libllama have RPC."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp

from paceline.errors import ConfigError, LibraryError, WorkerAway
from paceline.llama import lib
from paceline.llama.devices import HOLD_LAYERS, PROCESSOR, describe, device_of, kind_of
from paceline.llama.greeting import address_of, check_version, greet
from paceline.llama.lines import keep_alive

Address = tuple[str, int]

NAME = "RPC"
BUILD = (
    "CMAKE_ARGS=-DGGML_RPC=on pip install --force-reinstall --no-cache-dir --no-deps "
    "--no-binary llama-cpp-python 'llama-cpp-python>=0.3.36,<0.4'"
)
ADD_SERVER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
START_SERVER = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)
)


def available() -> bool:
    """Whether this build of libllama has RPC."""
    return bool(lib.c.llama_supports_rpc())


def check_available() -> None:
    if not available():
        raise LibraryError(f"this build of libllama has no RPC; build it with: {BUILD}")


def function(name: str, prototype: Any) -> Any:
    check_available()
    registry = lib.ggml("ggml_backend_reg_by_name", [ctypes.c_char_p], ctypes.c_void_p)(NAME.encode())
    find = lib.ggml("ggml_backend_reg_get_proc_address", [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_void_p)
    return prototype(find(registry, name.encode()))


# -- joining


class Workers:
    """Those that this process has joined. A worker has one client at a time, and libllama takes one line for each
    spelling of its address: so an address keeps its first, and the line is held until the process ends."""

    def __init__(self) -> None:
        self._devices: dict[Address, list[int]] = {}
        self._lines: list[int] = []
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._devices)

    def join(self, endpoints: Sequence[str]) -> list[int]:
        """Devices of these workers, in this order; of those that were not joined before, only now."""
        with self._lock:
            return [device for endpoint in endpoints for device in self._join(endpoint)]

    def _join(self, endpoint: str) -> list[int]:
        add = function("ggml_backend_rpc_add_server", ADD_SERVER)
        address = address_of(endpoint)
        if address not in self._devices:
            check_version(endpoint, greet(endpoint), llama_cpp.__version__)
            registry = add(endpoint.encode())
            if not registry:
                raise WorkerAway(f"the RPC worker {endpoint} has no devices")
            lib.ggml("ggml_backend_register", [ctypes.c_void_p], None)(registry)
            self._devices[address] = devices_of(registry)
            self._hold(self._devices[address][0])
            keep_alive(lambda line: line.getpeername() == address)
            lib.devices.cache_clear()
        return self._devices[address]

    def _hold(self, device: int) -> None:
        open_line = lib.ggml("ggml_backend_dev_init", [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_void_p)
        self._lines.append(open_line(device, None))

    def about(self) -> list[str]:
        """What speeds and bits may depend on: who is asked, and by the size of its memory which machine that is."""
        return [f"{device.name} {device.description} {device.n_bytes}" for device in map(device_of, self.all)]

    @property
    def all(self) -> list[int]:
        return [device for devices in self._devices.values() for device in devices]


WORKERS = Workers()


def devices_of(registry: int) -> list[int]:
    count = lib.ggml("ggml_backend_reg_dev_count", [ctypes.c_void_p], ctypes.c_size_t)
    get = lib.ggml("ggml_backend_reg_dev_get", [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p)
    return [get(registry, i) for i in range(count(registry))]


def local_gpus() -> list[int]:
    """Those of this machine that libllama would choose: integrated ones only where there is no other."""
    own = [device for device in lib.ggml_devices() if device not in WORKERS.all]
    of_kind = ([device for device in own if kind_of(device) == kind] for kind in HOLD_LAYERS)
    return next(filter(None, of_kind), [])


# -- serving


def servable(names: Sequence[str]) -> list[int]:
    """The devices of these names; without any, what computes quickest: the GPUs, else the processor."""
    here = {describe("ggml_backend_dev_name")(device): device for device in lib.ggml_devices()}
    if strange := [name for name in names if name not in here]:
        raise ConfigError(f"there is no device {strange[0]} to serve; here there is {', '.join(here)}")
    return [here[name] for name in names] or local_gpus() or [d for d in here.values() if kind_of(d) == PROCESSOR][:1]


def serve(address: Address, cache: Path | None, n_threads: int, devices: Sequence[int]) -> None:
    """Serves one client after the other. Returns only where it cannot listen; what it has to say goes to stdout."""
    start = function("ggml_backend_rpc_start_server", START_SERVER)
    handles = (ctypes.c_void_p * len(devices))(*devices)
    host, port = address
    start(f"{host}:{port}".encode(), str(cache).encode() if cache else None, n_threads, len(devices), handles)
