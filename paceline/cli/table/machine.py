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
        sets="machine.strict context.strict",
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

STRICT = ("-C", "--cpu-strict")


def part(short: str, name: str, twin: str, sets: str, who: str, like: str) -> list[Flag]:
    """Cores for a part of the work, whose threads move there each time it is computed."""
    return [
        Flag(
            names=f"-C{short} --cpu-mask-{name} {twin.format('cpu-mask')}".rstrip(),
            sets=sets.format("cores"),
            kind=Kind.LIST,
            convert=values.cpu_mask,
            grows=True,
            metavar="HEX",
            default=like,
            help=f"the cores of {who}, a bit each; without a number of threads there are as many of them",
        ),
        Flag(
            names=f"-Cr{short} --cpu-range-{name} {twin.format('cpu-range')}".rstrip(),
            sets=sets.format("cores"),
            kind=Kind.LIST,
            convert=values.cpu_range,
            grows=True,
            metavar="LOW-HIGH",
            default=like,
            help=f"the cores of {who}, beside those of --cpu-mask-{name}",
        ),
        Flag(
            names=f"--cpu-strict-{name} {twin.format('cpu-strict')}".rstrip(),
            sets=sets.format("strict"),
            kind=Kind.CHOICE,
            choices=("0", "1"),
            convert=values.switch,
            default=like.replace("-Cd", "--cpu-strict-draft").replace("-Cb", "--cpu-strict-batch").replace(*STRICT),
            help=f"1 binds each thread of {who} to one core",
        ),
    ]


PARTS = [
    *part("b", "batch", "", "context.{}_batch", "the threads that read prompts and check drafts", "as -C"),
    *part("d", "draft", "--spec-draft-{}", "draft_context.{}", "the draft model's threads", "as -C"),
    *part(
        "bd",
        "batch-draft",
        "--spec-draft-{}-batch",
        "draft_context.{}_batch",
        "the draft model's threads when it reads",
        "as -Cd, else -Cb",
    ),
]

ROWS = rows("cores", EVERY, MACHINE + PARTS)
