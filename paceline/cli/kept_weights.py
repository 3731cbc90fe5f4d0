"""The folder in which a worker keeps weights, and which of its files are whole.

ggml names a file by a hash of its content, writes it in place and never reads it twice: one that was cut short, because
the worker was killed or the disk full, would be taken for the weights. So files count once they have been left alone
for a while, and others are removed at the next start.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

from paceline.errors import ConfigError
from paceline.files import write_whole

LIST = "whole.json"
SETTLED = 3.0  # seconds since it was last written
SPARE = 64 * 2**20  # bytes: on a disk with less, what was written last may be cut

Stamp = tuple[int, int]


class KeptWeights:
    """Size and time of each file that is whole are kept beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"weights cannot be kept in {folder}: {error.strerror or error}") from None
        if not os.access(folder, os.W_OK):
            raise ConfigError(f"weights cannot be kept in {folder}: it cannot be written")
        self._whole = self._load()

    def _load(self) -> dict[str, Stamp]:
        try:
            kept = json.loads((self.folder / LIST).read_text())
            return {str(name): (int(size), int(changed)) for name, (size, changed) in kept.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _files(self) -> dict[str, Stamp]:
        found = [file for file in self.folder.iterdir() if file.is_file() and len(file.name) == 16]
        return {file.name: ((stat := file.stat()).st_size, stat.st_mtime_ns) for file in found}

    def sweep(self) -> int:
        """Removes what may be cut short; returns how many files that were. Before anybody reads or writes here."""
        doubtful = [name for name, stamp in self._files().items() if self._whole.get(name) != stamp]
        for name in doubtful:
            (self.folder / name).unlink(missing_ok=True)
        return len(doubtful)

    def settle(self) -> bool:
        """Counts what has been left alone as whole. False where the disk is too full to say so."""
        before = time.time_ns() - int(SETTLED * 1e9)
        settled = {name: stamp for name, stamp in self._files().items() if stamp[1] < before}
        if settled == self._whole:
            return True
        if shutil.disk_usage(self.folder).free < SPARE:
            return False
        self._whole = settled
        write_whole(self.folder / LIST, json.dumps(settled).encode())
        return True

    @property
    def n_bytes(self) -> int:
        return sum(size for size, _ in self._files().values())
