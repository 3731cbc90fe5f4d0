"""A bar while a model loads, for people only: nothing at all when stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


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
