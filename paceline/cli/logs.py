"""The log of a command: which lines, in which shape, and where to. Knows Python's logging, nothing of what is logged.

Our own lines come from the logger "paceline", libllama's from "paceline.llama". Levels and looks are llama-server's:
https://github.com/ggml-org/llama.cpp/blob/master/common/log.h
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from paceline.cli.options import LogOptions
from paceline.cli.tint import RESET, wants_color
from paceline.errors import ConfigError, PacelineError

log = logging.getLogger("paceline")
llama_log = logging.getLogger("paceline.llama")

OFF = logging.CRITICAL + 1
OURS = (OFF, logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)
LIBLLAMAS = (OFF, logging.ERROR, logging.ERROR, logging.ERROR, logging.INFO, logging.DEBUG)
"""By -lv: nothing, errors, warnings, our news, libllama's news, everything. libllama warns of oddities of a file's
making at every start; nobody who serves it can do anything about them, so they count as its news."""

BLUE = "\x1b[34m"
LOOKS = {
    logging.DEBUG: ("D", "", "\x1b[33m"),
    logging.INFO: ("I", "", "\x1b[32m"),
    logging.WARNING: ("W", "paceline: warning: ", "\x1b[35m"),
    logging.ERROR: ("E", "paceline: error: ", "\x1b[31m"),
}
"""A level's letter, the words that stand for it in a log without prefixes, its colour."""
LEVEL_NAMES = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn", logging.ERROR: "error"}


@contextmanager
def writing(options: LogOptions, *, serving: bool) -> Iterator[None]:
    """The log is open as long as the command runs. What ends the command is in the file too."""
    handlers = handlers_of(options, serving=serving)
    root, before = logging.getLogger(), (log.level, llama_log.level)
    set_levels(*levels(options, serving=serving))
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    except Exception as error:
        for handler in handlers:
            if isinstance(handler, LogFile):
                handler.handle(last_record(error))
        raise
    finally:
        set_levels(*before)
        for handler in handlers:
            root.removeHandler(handler)
            with suppress(OSError):
                handler.close()


def set_levels(ours: int, libllamas: int) -> None:
    log.setLevel(ours)
    llama_log.setLevel(libllamas)


def levels(options: LogOptions, *, serving: bool) -> tuple[int, int]:
    """From where on our lines and libllama's are shown.

    Without -lv a server tells its news; the other commands only warn, and what fails in libllama is in their error.
    """
    if options.disable:
        return OFF, OFF
    if options.verbose:
        return logging.DEBUG, logging.DEBUG
    if options.verbosity is None:
        return (logging.INFO, logging.ERROR) if serving else (logging.WARNING, OFF)
    n = min(max(options.verbosity, 0), len(OURS) - 1)
    return OURS[n], LIBLLAMAS[n]


def handlers_of(options: LogOptions, *, serving: bool) -> list[logging.Handler]:
    if options.disable:
        return [logging.NullHandler()]  # without any, Python prints warnings by itself
    prefix = options.prefix if options.prefix is not None else serving or bool(options.timestamps)
    timestamps = options.timestamps is not False
    color = wants_color(options.colors, sys.stderr, os.environ)
    handlers: list[logging.Handler] = [Stream("stdout" if options.jsonl and serving else "stderr")]
    handlers[0].setFormatter(LineFormat(prefix=prefix, timestamps=timestamps, color=color))
    if options.file is not None:
        handlers.append(LogFile.open(options.file))
        handlers[1].setFormatter(LineFormat(prefix=prefix, timestamps=timestamps, color=False))
    for handler in handlers if options.jsonl else ():
        handler.setFormatter(JsonFormat())
    return handlers


class JsonFormat(logging.Formatter):
    """One object a line, with llama-server's keys; the time is in microseconds since the start."""

    def format(self, record: logging.LogRecord) -> str:
        level = LEVEL_NAMES[level_of(record)]
        line = {"type": "log", "time": microseconds(record), "level": level, "msg": super().format(record)}
        return json.dumps(line, ensure_ascii=False)


class LineFormat(logging.Formatter):
    """With a prefix `0.00.035.060 I text`: minutes, seconds, milli- and microseconds since the start, and the level."""

    def __init__(self, *, prefix: bool, timestamps: bool, color: bool) -> None:
        super().__init__()
        self.prefix = prefix
        self.timestamps = timestamps
        self.color = color

    def format(self, record: logging.LogRecord) -> str:
        level = level_of(record)
        letter, words, color = LOOKS[level]
        mark, text = f"{letter} " if self.prefix else words, super().format(record)
        time = f"{elapsed(record)} " if self.prefix and self.timestamps else ""
        if not self.color:
            return f"{time}{mark}{text}"
        time = f"{BLUE}{time}{RESET}" if time else ""
        if level == logging.INFO:
            return f"{time}{color}{mark}{RESET}{text}" if mark else f"{time}{text}"
        return f"{time}{color}{mark}{text}{RESET}"


def level_of(record: logging.LogRecord) -> int:
    return min(max(record.levelno // 10 * 10, logging.DEBUG), logging.ERROR)


def microseconds(record: logging.LogRecord) -> int:
    return int(1e3 * record.relativeCreated)


def elapsed(record: logging.LogRecord) -> str:
    us = microseconds(record)
    return f"{us // 60_000_000}.{us // 1_000_000 % 60:02}.{us // 1000 % 1000:03}.{us % 1000:03}"


class Stream(logging.Handler):
    """Whatever stands there now: a progress bar puts itself in between, and takes itself away."""

    def __init__(self, stream: str) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        try:
            stream = getattr(sys, self._stream)
            stream.write(self.format(record) + "\n")
            stream.flush()
        except Exception:
            self.handleError(record)


class LogFile(logging.FileHandler):
    """Appends line by line. A disk that fills up is told of once; the work goes on."""

    failed = False

    @classmethod
    def open(cls, path: str) -> LogFile:
        try:
            return cls(path, "a", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise ConfigError(f"cannot write to the log file {path}: {error.strerror or error}") from None

    def handleError(self, record: logging.LogRecord) -> None:
        if not self.failed:
            self.failed = True
            reason = f"cannot write to the log file {self.baseFilename}: {sys.exc_info()[1]}"
            print(f"paceline: warning: {reason}", file=sys.stderr, flush=True)


def last_record(error: Exception) -> logging.LogRecord:
    """What ends a command: our own errors in one line, others with their traceback."""
    about = None if isinstance(error, PacelineError) else (type(error), error, error.__traceback__)
    return log.makeRecord(log.name, logging.ERROR, "", 0, "%s", (" ".join(str(error).split()),), about)
