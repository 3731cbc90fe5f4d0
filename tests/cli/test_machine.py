"""Cores, waiting and rank. In processes of their own: nobody else's are to be changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from paceline.cli.flags import parse
from paceline.cli.options import MachineOptions
from paceline.errors import ConfigError

REPORT = """
import json, os, sys
from paceline.cli.flags import parse
from paceline.cli.machine import settle
from paceline.cli.options import MachineOptions
from paceline.config.granted import usable_cores
settle(MachineOptions(**parse(sys.argv[1:], "run").under("machine")))
print(json.dumps([sorted(os.sched_getaffinity(0)), usable_cores(), os.getpriority(os.PRIO_PROCESS, 0),
    os.environ.get("GOMP_SPINCOUNT"), os.environ.get("OMP_PROC_BIND")]))
"""


def settled(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", REPORT, *words], capture_output=True, text=True, check=False)


def options(*words: str) -> MachineOptions:
    return MachineOptions(**parse(words, "run").under("machine"))


def test_masks_and_ranges_add_up() -> None:
    assert options("-C", "0x5").cores == (0, 2)
    assert options("-C", "3", "-Cr", "4-6").cores == (0, 1, 4, 5, 6)
    assert options("-Cr", "-1").cores == (0, 1)
    assert len(options("--cpu-range", "8-").cores) == 1016
    assert options("--cpu-strict", "1", "--prio", "-1", "--poll", "0") == MachineOptions(
        strict=True, priority=-1, poll=0
    )


@pytest.mark.parametrize("words", [("-C", "0xg"), ("-Cr", "3"), ("-Cr", "a-b"), ("--prio", "4"), ("--poll", "101")])
def test_what_is_none_of_these_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        options(*words)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no such call")
def test_the_process_keeps_to_what_was_asked() -> None:
    core = min(os.sched_getaffinity(0))
    done = settled("-Cr", f"{core}-{core}", "--cpu-strict", "1", "--prio", "-1", "--poll", "50")
    assert json.loads(done.stdout) == [[core], 1, 10, "300000", "true"]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no such call")
def test_no_core_is_left() -> None:
    done = settled("-Cr", "1000-1001")
    assert "leave no core to run on; there are" in done.stderr
