"""Every prompt in a file of its own, as the model reads it: for finding out what a template or a client made of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Protocol

from paceline.errors import ConfigError

log = logging.getLogger("paceline")


class Renders(Protocol):
    def render(self, token: int, *, special: bool) -> bytes: ...


class PromptLog:
    """Files are named by the time, as llama-server's, and a number."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._numbers = count()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot keep prompts in {folder}: {error.strerror or error}") from None

    def write_beside(self, prompts: Sequence[Sequence[int]], vocab: Renders) -> None:
        """Off the event loop."""
        for prompt in prompts:
            asyncio.get_running_loop().run_in_executor(None, self.write, prompt, vocab)

    def write(self, prompt: Sequence[int], vocab: Renders) -> None:
        file = self._folder / f"{int(1e3 * time.time()):012}-{next(self._numbers)}.txt"
        try:
            file.write_bytes(b"".join([vocab.render(token, special=True) for token in prompt]))
        except OSError as error:
            log.error("cannot write %s: %s", file, error.strerror or error)
