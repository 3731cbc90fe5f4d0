"""Writing a file whole or not at all, whoever else writes it at the same time. Knows nothing of what is in it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

N_NAME = 40  # characters of a name that its file aside has too: with more it might be too long for a disk


def write_whole(path: Path, data: bytes) -> None:
    """Aside under a name of its own, then renamed: who reads sees the old file or the new one, also after the power
    failed. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name[:N_NAME]}.", suffix=".part", delete=False) as file:
        aside = Path(file.name)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A renamed file is safe when its folder is. Some systems cannot sync one, and lose nothing else by that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
