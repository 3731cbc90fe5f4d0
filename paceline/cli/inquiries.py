"""What is asked of a command that then has nothing more to do: its help, its version, the devices, the completions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from paceline.cli.flags import Parsed
from paceline.cli.help import command_help
from paceline.cli.table import TABLE
from paceline.cli.table.flag import EVERY, Flag, Kind, Support

SCRIPT = """\
_paceline() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}"
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    case "$before" in
{values}
    esac
    case "$command" in
{flags}
        *) COMPREPLY=($(compgen -f -- "$word")) ;;
    esac
}}
complete -F _paceline paceline"""


def version(parsed: Parsed) -> str:
    from paceline import __version__

    return f"paceline {__version__}"


def devices(parsed: Parsed) -> str:
    """As llama-server says it, with those of RPC workers; loads libllama."""
    from paceline.llama.devices import device_lines
    from paceline.llama.rpc import WORKERS

    WORKERS.join(parsed.values.get("model.rpc", ()) + parsed.values.get("draft.rpc", ()))
    return "\n".join(["Available devices:", *(f"  {line}" for line in device_lines() or ["(none)"])])


def cached(parsed: Parsed) -> str:
    """What -hf names without fetching anything, then the files of our own cache folder."""
    from paceline.cli.fetching import ADDRESSES, hub_cache
    from paceline.hub.cached import cached_models
    from paceline.models import cache_folder

    own = [*cache_folder().glob("*.gguf"), *(cache_folder() / ADDRESSES).glob("*/*.gguf")]
    found = [*cached_models(hub_cache()), *map(str, sorted(own))]
    lines = [f"{n:4}. {name}" for n, name in enumerate(found, 1)]
    return "\n".join([f"number of models in cache: {len(found)}", *lines])


def completion(parsed: Parsed) -> str:
    """What bash sources: commands first, then each one's flags; files and choices where a flag takes them."""
    from paceline.cli.main import COMMANDS

    real = [flag for flag in TABLE if flag.status is Support.REAL]
    flags = [f"        {name}) COMPREPLY=({words(names_for(name, real))}) ;;" for name in (*EVERY, "worker")]
    return SCRIPT.format(commands=" ".join(COMMANDS), values="\n".join(value_cases(real)), flags="\n".join(flags))


def names_for(command: str, flags: Iterable[Flag]) -> list[str]:
    return [name for flag in flags if command in flag.commands for name in flag.all_names]


def value_cases(flags: Iterable[Flag]) -> list[str]:
    cases: dict[str, list[str]] = {}
    flags = list(flags)
    alone = {name for flag in flags if flag.kind is Kind.FLAG for name in flag.all_names}
    for flag in flags:
        names = [name for name in f"{flag.names} {flag.old}".split() if name not in alone]
        if flag.kind is Kind.PATH or flag.metavar in ("FILE", "FOLDER"):
            cases.setdefault('$(compgen -f -- "$word")', []).extend(names)
        elif flag.choices:
            cases.setdefault(words(flag.choices), []).extend(names)
    return [
        f"        {'|'.join(dict.fromkeys(names))}) COMPREPLY=({found}); return ;;" for found, names in cases.items()
    ]


def words(choices: Iterable[str]) -> str:
    return f'$(compgen -W "{" ".join(choices)}" -- "$word")'


INQUIRIES: dict[str, Callable[[Parsed], str]] = {
    "help": lambda parsed: command_help(parsed.command),
    "version": version,
    "devices": devices,
    "cached": cached,
    "completion": completion,
}
"""By the field of `CommonOptions` that asks."""
