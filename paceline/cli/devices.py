"""`paceline devices`: what libllama can compute on here, and how to get a build for a GPU where it sees none."""

from __future__ import annotations

import argparse
import json
import platform
from typing import Any

from rich.console import Console
from rich.table import Table

from paceline.config.granted import usable_cores
from paceline.llama import amx
from paceline.llama.devices import Device, can_offload, features, found_devices
from paceline.llama.lib import versions

BUILDS = {
    "CUDA": ("-DGGML_CUDA=on", "NVIDIA cards, with the CUDA toolkit installed"),
    "ROCm": ("-DGGML_HIP=on", "AMD cards, with ROCm installed"),
    "Vulkan": ("-DGGML_VULKAN=on", "cards of any maker, with the Vulkan SDK installed"),
    "Metal": ("-DGGML_METAL=on", "Apple's chips, with Xcode's command line tools"),
}
"""What CMake is told, and for which machines."""
PACKAGE = "'llama-cpp-python>=0.3.36,<0.4'"
PIP = f"pip install --force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python {PACKAGE}"
INSTALL = f'CMAKE_ARGS="{{}}" {PIP}'
NO_GPU = """\
libllama sees no GPU: everything is computed on the processor. If this machine has one, install a build for it (it is
compiled for some minutes; PowerShell sets the variable first, as in $env:CMAKE_ARGS="{}"):
"""
NO_AMX = f"""\
AMX, this processor's matrix unit, is left alone: the compiler that built libllama (GCC 11 and 12 do that) broke its
kernels. They read prompts of quantised models two to four times as fast, and a single token can take longer with them
(--no-repack keeps them off). A newer GCC builds them right, and so does an older one that is told:
    CXXFLAGS="-fno-tree-dse -fno-dse" {PIP}"""
OFFLOAD = "Layers can be offloaded: -ngl says how many, -dev where (docs/devices.md)."


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="paceline devices", description=__doc__)
    parser.add_argument("--json", action="store_true", help="for programs: bytes, and everything by name")
    args = parser.parse_args(argv)
    if args.json:
        print(json.dumps(report(), indent=2))
        return 0
    console = Console(highlight=False)
    console.print(table(found_devices()))
    print(f"\n{versions()}; {usable_cores()} cores to compute on")
    for backend, found in features().items():
        print(f"{backend}: {', '.join(described(found))}")
    if amx.is_broken():
        print(f"\n{NO_AMX}")
    print(f"\n{OFFLOAD if can_offload() else instructions(platform.system())}")
    return 0


def report() -> dict[str, Any]:
    return {
        "devices": [
            {
                "name": device.name,
                "description": device.description,
                "kind": device.kind,
                "backend": device.family,
                "memory_total": device.n_bytes,
                "memory_free": device.n_free,
                "offload": device.offloads,
            }
            for device in found_devices()
        ],
        "offload": can_offload(),
        "version": versions(),
        "features": features(),
        "cores": usable_cores(),
    }


def table(devices: list[Device]) -> Table:
    columns = Table(box=None, pad_edge=False)
    for name in ("name", "kind", "description"):
        columns.add_column(name, overflow="fold")
    for name in ("memory", "free", "offload"):
        columns.add_column(name, justify="right", no_wrap=True)
    for device in devices:
        sizes = gibibytes(device.n_bytes), gibibytes(device.n_free)
        columns.add_row(device.name, device.kind, device.description, *sizes, "yes" if device.offloads else "no")
    return columns


def gibibytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes else "unknown"


def described(found: dict[str, str]) -> list[str]:
    """Switches that are on by their name alone."""
    return [name if value == "1" else f"{name}={value}" for name, value in found.items() if value != "0"]


def instructions(system: str) -> str:
    """Metal is Apple's alone, and Apple has nothing else."""
    fitting = {name: build for name, build in BUILDS.items() if (name == "Metal") == (system == "Darwin")}
    lines = [f"  {name} ({machines}):\n    {INSTALL.format(flag)}" for name, (flag, machines) in fitting.items()]
    return "\n".join([NO_GPU.format(next(iter(fitting.values()))[0]), *lines])
