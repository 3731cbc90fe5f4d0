"""Bars while a model is fetched and while it loads, for people; a log gets lines of a download, and nothing else."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("paceline")

LINE_SECONDS = 15.0


@contextmanager
def loading_bar(path: str) -> Iterator[Callable[[float], None] | None]:
    """Gives what to call with the share done, from 0 to 1; gone when the model is there."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("loading {task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(Path(path).name, total=1.0)
        yield lambda share: progress.update(task, completed=share)


@contextmanager
def download_bar(name: str, size: int | None) -> Iterator[Callable[[int], None]]:
    """Gives what to call with the number of bytes there are. Lines in the log, now and then, where nobody watches."""
    if not sys.stderr.isatty():
        yield Lines(Path(name).name, size)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("fetching {task.description}"), *columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(Path(name).name, total=size)
        yield lambda n_bytes: progress.update(task, completed=n_bytes)


class Lines:
    """How far a download is, for logs: at its start, its end, and four times a minute between."""

    def __init__(self, name: str, size: int | None) -> None:
        self.name, self.size = name, size
        self.began: int | None = None
        self.told = self.started = time.monotonic()

    def __call__(self, n_bytes: int) -> None:
        from paceline.hub.transfer import size

        now = time.monotonic()
        of = f" of {size(self.size)}" if self.size is not None else ""
        if self.began is None:
            self.began = n_bytes
            goes_on = f", going on after {size(n_bytes)}" if n_bytes else ""
            tell("fetching %s%s%s", self.name, of and f" ({size(self.size or 0)})", goes_on)
        elif n_bytes == self.size or now - self.told >= LINE_SECONDS:
            self.told = now
            speed = (n_bytes - self.began) / max(now - self.started, 1e-3)
            tell("%s: %s%s, %s/s", self.name, size(n_bytes), of, size(int(speed)))


def tell(text: str, *values: object) -> None:
    """A server logs its news; other commands say this much though they only log warnings."""
    if log.isEnabledFor(logging.INFO):
        log.info(text, *values)
    else:
        print(text % values, file=sys.stderr, flush=True)
