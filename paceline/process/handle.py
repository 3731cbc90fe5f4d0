"""One child process as its front sees it: started, spoken to, and at its end asked what it died of."""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import paceline
from paceline.config import Settings
from paceline.errors import EngineDied, named
from paceline.process.base import OnProgress
from paceline.process.messages import Close, Loading, Logged, Open, Ready, Refused, ToChild, ToFront, front_line

N_LINES = 12
QUIET = {"GGML_NO_BACKTRACE": "1"}  # ggml would call a debugger, whose pages hide what was wrong
LOGGERS = ("paceline", "paceline.llama")
log = logging.getLogger("paceline")


class Handle:
    """`send` never blocks; `messages` is read by one thread until the child is gone."""

    def __init__(self) -> None:
        self._n_out_of_memory = n_out_of_memory()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "paceline.process.child", str(theirs.fileno())],
                env=QUIET | os.environ | {"PYTHONPATH": search_path()},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        self._line = front_line(ours)
        self._incoming = iter(self._line)
        self._outgoing: queue.SimpleQueue[ToChild | None] = queue.SimpleQueue()
        self._last_lines: deque[str] = deque(maxlen=N_LINES)
        self._threads = [self._start(self._write, "writer"), self._start(self._listen, "stderr")]

    def _start(self, work: object, name: str) -> threading.Thread:
        thread = threading.Thread(target=work, name=f"paceline-child-{name}", daemon=True)  # type: ignore[arg-type]
        thread.start()
        return thread

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self, settings: Settings, on_progress: OnProgress | None, *, again: bool) -> Ready:
        """Blocks until the model is loaded; raises the child's reason where it cannot be."""
        levels = {name: logging.getLogger(name).getEffectiveLevel() for name in LOGGERS}
        self.send(Open(settings, again, levels))
        for message in self.messages():
            match message:
                case Loading(share):
                    if on_progress:
                        on_progress(share)
                case Ready():
                    return message
                case Refused(kind, text):
                    raise named(kind, text)
        files = " and ".join(model.path for model in (settings.model, settings.draft) if model)
        raise EngineDied(f"the engine's process ended while it was opening {files} (a damaged file?): {self.end()}")

    def send(self, message: ToChild) -> None:
        self._outgoing.put(message)

    def messages(self) -> Iterator[ToFront]:
        """Without its log, which is passed on."""
        for message in self._incoming:
            if isinstance(message, Logged):
                if message.level >= logging.WARNING:
                    self._last_lines.append(message.text)
                logging.getLogger(message.name).log(message.level, "%s", message.text)
            else:
                yield message

    def _write(self) -> None:
        with suppress(OSError):
            while (message := self._outgoing.get()) is not None:
                self._line.send(message)

    def _listen(self) -> None:
        """What libllama and Python print when they give up; the log comes on the line."""
        assert self._process.stderr
        with self._process.stderr as stream:
            for raw in stream:
                text = raw.decode("utf-8", "replace").rstrip()
                if text:
                    self._last_lines.append(text)
                    log.debug("engine: %s", text)

    # -- the end

    @property
    def was_murdered(self) -> bool:
        """Killed from outside, and not by the kernel for its memory: nothing that it did."""
        return self._process.wait() == -signal.SIGKILL and n_out_of_memory() == self._n_out_of_memory

    def end(self) -> str:
        """Makes sure that it is gone, and says why it went."""
        self._outgoing.put(None)
        self._line.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
        code = self._process.wait()
        for thread in self._threads:
            thread.join(1)
        said = " | ".join(self._last_lines)
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if code < 0 and n_out_of_memory() > self._n_out_of_memory:
            how += ", out of memory"
        return f"{how}: {said}" if said else how

    def kill(self) -> None:
        self._process.kill()

    def close(self, seconds: float) -> None:
        """Let it end what is running and save what is to be saved; by force when that takes longer."""
        self.send(Close())
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()


def n_out_of_memory() -> int:
    """How many processes the kernel has killed for their memory since it runs, where it tells."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def search_path() -> str:
    """The child finds the same paceline, and nothing in the folder it happens to be started in."""
    ours = str(Path(paceline.__file__).parent.parent)
    return os.pathsep.join([ours, *filter(None, [os.environ.get("PYTHONPATH")])])
