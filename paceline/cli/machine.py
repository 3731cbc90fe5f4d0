"""Before anything computes: the cores, the waiting and the rank that the user wants. Children inherit all of it.

libllama's threads are OpenMP's. It reads its variables when it is loaded, which is later than this.
"""

from __future__ import annotations

import logging
import os

from paceline.cli.options import MachineOptions
from paceline.errors import ConfigError

log = logging.getLogger("paceline")

SPINS = 6000  # of OpenMP for each step of --poll: its own default is llama-server's 50
NICENESS = {-1: 10, 0: 0, 1: -5, 2: -10, 3: -20}


def settle(options: MachineOptions) -> None:
    if options.cores:
        keep_to(options.cores)
    if options.poll is not None:
        os.environ["GOMP_SPINCOUNT"] = str(SPINS * options.poll)
    if options.strict:
        os.environ["OMP_PROC_BIND"] = "true"
    if options.priority is not None:
        rank(options.priority)


def keep_to(cores: tuple[int, ...]) -> None:
    if not hasattr(os, "sched_setaffinity"):
        log.warning("this system does not let a process choose its cores: --cpu-mask and --cpu-range cannot act here")
        return
    usable = os.sched_getaffinity(0)
    wanted = usable.intersection(cores)
    if not wanted:
        there = ", ".join(map(str, sorted(usable)))
        raise ConfigError(f"--cpu-mask and --cpu-range leave no core to run on; there are {there}")
    os.sched_setaffinity(0, wanted)


def rank(priority: int) -> None:
    """Lower is always allowed; higher takes a right that few users have."""
    if not hasattr(os, "setpriority"):
        log.warning("this system does not let a process choose its rank: --prio cannot act here")
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS[priority])
    except PermissionError:
        log.warning("the system does not let this user raise a priority: --prio %d cannot act here", priority)
