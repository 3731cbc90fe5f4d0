"""A log of requests, for training a draft on what is really asked (`paceline distill --continue`): one JSON line for
each text, with the prompt as the model read it and the answer. Off unless asked for; it holds what people wrote."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

from paceline.errors import ConfigError
from paceline.server.prompt_log import Renders

log = logging.getLogger("paceline")
MIB = 2**20


class RequestLog:
    """Appends; only the owner may read it. A full disk, or a file that has reached its bound, ends the recording with
    one warning, and nothing else."""

    def __init__(self, path: str, max_mib: int, model: str) -> None:
        self._path, self._max_bytes, self._model = path, max_mib * MIB, model
        self._lock = Lock()
        try:
            self._file: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot record requests in {path}: {error.strerror or error}") from None

    def write_beside(self, prompt: Sequence[int], answer: Sequence[int], vocab: Renders) -> None:
        """Off the event loop."""
        if self._file is not None and answer:
            asyncio.get_running_loop().run_in_executor(None, self.write, prompt, answer, vocab)

    def write(self, prompt: Sequence[int], answer: Sequence[int], vocab: Renders) -> None:
        try:
            entry = {
                "time": round(time.time(), 3),
                "model": self._model,
                "prompt": text_of(prompt, vocab),
                "answer": text_of(answer, vocab),
            }
            self._append(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        except Exception as error:  # whatever it is, the request has been answered
            self._give_up(str(error))

    def _append(self, line: bytes) -> None:
        """Whole or not at all: half a line would spoil the log."""
        with self._lock:
            if self._file is None:
                return
            size = os.fstat(self._file).st_size
            if size + len(line) > self._max_bytes:
                self._end(f"it has reached {self._max_bytes // MIB} MiB (--record-max)")
                return
            try:
                if os.write(self._file, line) < len(line):
                    raise OSError(0, "no room for a whole line")
            except OSError as error:
                with suppress(OSError):
                    os.ftruncate(self._file, size)
                self._end(error.strerror or str(error))

    def _give_up(self, why: str) -> None:
        with self._lock:
            self._end(why)

    def _end(self, why: str) -> None:
        if self._file is not None:
            log.warning("no more requests are recorded in %s: %s", self._path, why)
            os.close(self._file)
            self._file = None

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None


def text_of(tokens: Sequence[int], vocab: Renders) -> str:
    return b"".join([vocab.render(token, special=True) for token in tokens]).decode(errors="replace")
