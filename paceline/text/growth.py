"""What a grammar costs in memory. llguidance does not say, and most of it comes with use: its lexer keeps every state
that a mask has looked at, 40 to 80 MiB for a second of a hostile grammar's masks. So the process is watched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from time import perf_counter

BYTES_PER_SECOND = 2**27  # where nobody says how large the process is


class Growth:
    """Adds up by how much the process grows in its company. What others allocate at the same time is counted too."""

    def __init__(self) -> None:
        self.n_bytes = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        before, start = resident(), perf_counter()
        try:
            yield
        finally:
            grown = resident() - before if before else int(BYTES_PER_SECOND * (perf_counter() - start))
            self.n_bytes += max(0, grown)


def resident() -> int:
    """Bytes of this process in memory, in two microseconds; 0 where that is not told."""
    handle = statm()
    return int(os.pread(handle, 64, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE") if handle else 0


@cache
def statm() -> int | None:
    try:
        return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
