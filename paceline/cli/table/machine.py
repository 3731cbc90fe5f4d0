"""Flags that say which cores compute, and how eagerly."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import EVERY, Flag, Kind, rows
from paceline.config import NUMA_STRATEGIES

MACHINE = [
    Flag(
        names="-C --cpu-mask",
        sets="machine.cores",
        kind=Kind.LIST,
        convert=values.cpu_mask,
        grows=True,
        metavar="HEX",
        default="all",
        help="the cores to run on, a bit each: 0x0f is the first four; also sets how many threads -t stands for",
    ),
    Flag(
        names="-Cr --cpu-range",
        sets="machine.cores",
        kind=Kind.LIST,
        convert=values.cpu_range,
        grows=True,
        metavar="LOW-HIGH",
        default="all",
        help="the cores to run on, beside those of --cpu-mask",
    ),
    Flag(
        names="--cpu-strict",
        sets="machine.strict",
        kind=Kind.CHOICE,
        choices=("0", "1"),
        convert=values.switch,
        help="1 binds each thread to one core",
    ),
    Flag(
        names="--prio",
        sets="machine.priority",
        kind=Kind.INT,
        default="0",
        help="rank among the system's processes, from -1 (low) to 3 (realtime); above 0 it takes the right to do so",
    ),
    Flag(
        names="--poll",
        sets="machine.poll",
        kind=Kind.INT,
        default="50",
        help="how long threads that wait for work keep a core busy, 0 to 100; 0 leaves it to others at once",
    ),
    Flag(
        names="--numa",
        sets="model.numa",
        kind=Kind.CHOICE,
        choices=NUMA_STRATEGIES,
        env="LLAMA_ARG_NUMA",
        help="for machines with several memory nodes: spread threads over all, keep to one, or obey numactl",
    ),
]

ROWS = rows("cores", EVERY, MACHINE)
