"""Flags of the log: how much, in which shape, where to."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import ALL, Flag, Kind, rows

LOG = [
    Flag(names="-v --verbose --log-verbose", sets="log.verbose", help="log everything, libllama's own lines too"),
    Flag(
        names="-lv --verbosity --log-verbosity",
        sets="log.verbosity",
        kind=Kind.INT,
        env="LLAMA_ARG_LOG_VERBOSITY LLAMA_LOG_VERBOSITY",
        default="3 for serve, 2 otherwise",
        help="how much to log: 0 nothing, 1 errors, 2 warnings, 3 what the server does, 4 libllama's own, 5 all",
    ),
    Flag(
        names="--log-file",
        sets="log.file",
        kind=Kind.PATH,
        env="LLAMA_ARG_LOG_FILE LLAMA_LOG_FILE",
        help="log to this file as well, after what is in it",
    ),
    Flag(names="--log-disable", sets="log.disable", help="no log at all, neither on stderr nor in a file"),
    Flag(
        names="--log-colors",
        sets="log.colors",
        kind=Kind.CHOICE,
        choices=("on", "off", "auto"),
        convert=values.on_off_auto,
        bare="on",
        env="LLAMA_ARG_LOG_COLORS LLAMA_LOG_COLORS",
        default="auto",
        help="colours by level; auto: on a terminal, unless NO_COLOR is set",
    ),
    Flag(
        names="--log-prefix",
        off="--no-log-prefix",
        sets="log.prefix",
        env="LLAMA_ARG_LOG_PREFIX LLAMA_LOG_PREFIX",
        default="on for serve",
        help="begin each line with its time and level: I, W, E or D",
    ),
    Flag(
        names="--log-timestamps",
        off="--no-log-timestamps",
        sets="log.timestamps",
        env="LLAMA_ARG_LOG_TIMESTAMPS LLAMA_LOG_TIMESTAMPS",
        default="on where lines have a prefix",
        help="the time since the start, within the prefix",
    ),
    Flag(
        names="--log-jsonl",
        off="--no-log-jsonl",
        sets="log.jsonl",
        env="LLAMA_ARG_LOG_JSONL",
        help="one JSON object a line, with time, level and msg, for programs that collect logs",
    ),
]

ROWS = rows("log", ALL, LOG)
