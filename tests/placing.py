"""Command lines as the engine opens them, and what libllama says of where it has put things."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.cli import build
from paceline.cli.flags import parse
from paceline.config import Settings
from paceline.process.parts import Parts

OVERRIDDEN = re.compile(r"tensor (\S+) \(.*\) buffer type overridden to (\S+)")
BUFFER = re.compile(r"(\S+) +(model|KV|compute|output) buffer size = +([\d.]+) MiB")


def settings_of(line: str, model: str, draft: str | None = None) -> Settings:
    """What a command line says of these models; small enough to open at once."""
    small = ["-m", model, "-c", "256", "-t", "1", "--spec-policy", "fixed", *(["-md", draft] if draft else [])]
    return build.settings(parse([*small, *shlex.split(line)], "run"))


@contextmanager
def opened(line: str, model: str, draft: str | None = None) -> Iterator[Parts]:
    parts = Parts(settings_of(line, model, draft))
    try:
        yield parts
    finally:
        parts.close()


def moved(caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """By tensor: the memory that a flag has put it into."""
    found = (OVERRIDDEN.search(message) for message in caplog.messages)
    return {match[1]: match[2] for match in found if match}


def mapped(path: str) -> bool:
    """Whether this process has the file in its memory as the file itself."""
    return str(Path(path).resolve()) in Path("/proc/self/maps").read_text()


def locked() -> int:
    """KiB that the system may not swap out."""
    match = re.search(r"^VmLck:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match
    return int(match[1])
