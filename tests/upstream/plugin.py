"""Runs inside the pytest of llama.cpp's server tests: no downloads, a time limit for each, results as lines of JSON.

The tests are not changed. The environment says: UPSTREAM_RESULTS is the file, UPSTREAM_TIMEOUT the seconds."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest


class TookTooLong(Exception):
    """Not an OSError or TimeoutError: a test may catch those."""


def pytest_sessionstart() -> None:
    import utils  # type: ignore[import-not-found]  # llama.cpp's; it is imported from the folder of its tests

    # It starts every preset once so that their models are downloaded: they are here already.
    utils.ServerPreset.load_all = staticmethod(lambda: None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    seconds = int(os.environ["UPSTREAM_TIMEOUT"])

    def stop(*_: object) -> None:
        raise TookTooLong(f"{item.nodeid} took longer than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        return (yield)
    finally:
        signal.alarm(0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    line = {"test": report.nodeid, "outcome": report.outcome, "why": why(report), "seconds": round(report.duration, 1)}
    with open(os.environ["UPSTREAM_RESULTS"], "a") as file:
        file.write(json.dumps(line) + "\n")


def why(report: pytest.TestReport) -> str:
    """One line: the error, or the reason of a skip."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).splitlines()[0][:300] if crash.message else ""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    return ""
