"""The `paceline` command: finds the subcommand, reads its flags, turns errors into one line and an exit code.

Imports where it needs them: help comes at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from paceline.errors import ConfigError, PacelineError

if TYPE_CHECKING:
    from paceline.cli.flags import Parsed

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

INQUIRIES_OF_ALL = ("version", "--version", "--list-devices", "-cl", "--cache-list", "--completion-bash")
"""What may be asked without a command: the answer is the same for all."""


class Command(NamedTuple):
    """A subcommand. With `flags` its main() gets what the table of flags made of the words, else the words."""

    module: str
    summary: str
    flags: bool = True


COMMANDS = {
    "run": Command("paceline.cli.run", "continue a prompt, or chat"),
    "serve": Command("paceline.cli.serve", "an HTTP server for OpenAI and llama-server clients"),
    "bench": Command("paceline.cli.bench", "what speculation gains on this machine, by kind of text"),
    "devices": Command("paceline.cli.devices", "what libllama can compute on here, with its memory", flags=False),
    "pair": Command("paceline.cli.pair", "which files around can draft for a model, and what each would gain"),
    "worker": Command("paceline.cli.worker", "lend this machine's devices to a server on another one"),
    "distill": Command("paceline.cli.distill", "make a draft for a target, from the target alone"),
    "lookup-create": Command("paceline.cli.lookup", "count n-grams of text files for ngram-cache", flags=False),
    "demo": Command("paceline.cli.demo", "two answers without and with speculation, and the speeds", flags=False),
}

HELP = """\
paceline: speculative decoding for GGUF models. Same words, sooner.

{commands}

Try it:
  paceline demo                                              see what drafting gains on this machine
  paceline run -p "Once upon a time" -n 100                  the demo model writes
  paceline run -cnv                                          chat with it
  paceline run -m large.gguf -md small.gguf -p "Hello"       a small model drafts for a large one
  paceline devices                                           is there a GPU, and does this build use it?
  paceline run -f code.py --spec-type ngram-simple           text that repeats itself needs no second model

`paceline run --help` lists every flag; most of llama-server's names and LLAMA_ARG_* variables work."""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return dispatch(words)
    except PacelineError as error:
        print(f"paceline: error: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    name, rest = words[0], words[1:]
    if name in INQUIRIES_OF_ALL:
        name, rest = "run", ["--version" if name == "version" else name]
    if name not in COMMANDS:
        raise ConfigError(unknown(name))
    return start(name, COMMANDS[name], rest)


def start(name: str, command: Command, words: list[str]) -> int:
    from paceline.cli.flags import Parsed, parse

    if not command.flags:
        return call(command, words, Parsed(name))
    parsed = parse(words, name, os.environ)
    from paceline.cli.config_file import folders, with_file
    from paceline.cli.inquiries import INQUIRIES
    from paceline.cli.table.flag import EVERY

    for asked, answer in INQUIRIES.items():
        if parsed.values.get(f"common.{asked}"):
            print(answer(parsed))
            return 0
    if name in EVERY:  # what a file says of hosts and ports is meant for servers
        parsed = with_file(parsed, folders())
    return call(command, parsed, parsed)


def call(command: Command, argument: object, parsed: Parsed) -> int:
    """Modules are loaded only now: help and errors come at once."""
    from paceline.cli.logs import log, writing
    from paceline.cli.machine import settle
    from paceline.cli.options import LogOptions, MachineOptions

    with writing(LogOptions(**parsed.under("log")), serving=parsed.command in ("serve", "worker")):
        settle(MachineOptions(**parsed.under("machine")))
        for warning in parsed.warnings:
            log.warning("%s", warning)
        if parsed.file:
            log.info("settings of %s", parsed.file)
        code: int = import_module(command.module).main(argument)
    return code


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  paceline {name:<{width}} {command.summary}" for name, command in COMMANDS.items()]
    return HELP.format(commands="\n".join(lines))


def unknown(name: str) -> str:
    if name.startswith("-"):
        return f"a command comes first, as in `paceline run {name} …`; there are {', '.join(COMMANDS)}"
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
    return f"unknown command {name!r}; {hint}"
