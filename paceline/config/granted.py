"""What this process is granted of the machine: cores and memory, by affinity and control groups."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def usable_cores(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Cores this process may keep busy: those it may run on, no more than its control group is granted."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for text in group_files("cpu.max", groups, own):
        with suppress(ValueError):  # no limit here
            quota, period = text.split()
            n = min(n, max(1, int(quota) // int(period)))
    return n


def usable_memory(
    meminfo: Path = Path("/proc/meminfo"), groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int | None:
    """Bytes this process may use: the machine's, no more than its control group is granted. None where nobody says."""
    try:
        found = re.search(r"^MemTotal: +(\d+) kB", meminfo.read_text(), re.MULTILINE)
    except OSError:
        return None
    limits = [int(text) for text in group_files("memory.max", groups, own) if text.strip().isdigit()]
    return min([1024 * int(found[1]), *limits]) if found else None


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of the machine's memory that a program could have now. None where nobody says."""
    try:
        found = re.search(r"^MemAvailable: +(\d+) kB", meminfo.read_text(), re.MULTILINE)
    except OSError:
        return None
    return 1024 * int(found[1]) if found else None


def group_files(name: str, groups: Path, own: Path) -> Iterator[str]:
    """A file of this process's control group and of each above it, as far as they can be read."""
    try:
        group = next(line[3:].strip("/") for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return
    for folder in (groups / group, *(groups / parent for parent in Path(group).parents)):
        with suppress(OSError):
            yield (folder / name).read_text()
