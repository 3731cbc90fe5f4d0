"""Flags of `run` itself: what to continue, and how to show it."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import ALL, BUT_WORKERS, RUN, WRITING, Flag, Kind, rows

PROMPT = [
    Flag(
        names="-p --prompt",
        sets="run.prompts",
        kind=Kind.LIST,
        metavar="TEXT",
        convert=values.prompt_text,
        grows=True,
        help="text to continue; give it several times and the prompts run at once, -np of them side by side",
    ),
    Flag(
        names="-f --file",
        old="-bf --binary-file",
        sets="run.prompts",
        kind=Kind.LIST,
        metavar="FILE",
        convert=values.prompt_file,
        grows=True,
        help="a file with a prompt, read as UTF-8 with one newline at its end dropped; - reads stdin",
    ),
    Flag(
        names="-cnv --conversation",
        off="-no-cnv --no-conversation",
        sets="run.conversation",
        default="on when there is no prompt and a terminal",
        help="chat, using the model's own template; /help lists what else there is",
    ),
    Flag(
        names="-sys --system-prompt",
        sets="run.system",
        kind=Kind.STR,
        help="the system message; without -cnv each prompt is then wrapped in the chat template once",
    ),
    Flag(
        names="-sysf --system-prompt-file",
        sets="run.system_file",
        kind=Kind.PATH,
        help="the system message, from a file",
    ),
    Flag(names="-st --single-turn", sets="run.single_turn", help="with -cnv: one answer, then leave"),
    Flag(
        names="-n --predict",
        old="--n-predict",
        sets="request.n_predict",
        kind=Kind.INT,
        env="LLAMA_ARG_N_PREDICT",
        commands=WRITING,
        help="stop after N tokens; -1 goes on until the model or the context ends",
    ),
    Flag(
        names="-r --reverse-prompt",
        sets="request.stop",
        kind=Kind.LIST,
        metavar="TEXT",
        convert=values.one,
        grows=True,
        commands=WRITING,
        help="stop as soon as this text appears (it is not printed); may be given several times",
    ),
    Flag(
        names="-e --escape",
        off="--no-escape",
        sets="request.escape",
        commands=WRITING,
        help=r"read \n, \t, \xHH and the like in -p, -sys and -r as the character they stand for",
    ),
]

SHOW = [
    Flag(
        names="--show-timings",
        off="--no-show-timings",
        sets="run.show_timings",
        env="LLAMA_ARG_SHOW_TIMINGS",
        default="on when stderr is a terminal",
        help="end with speeds, acceptance rate and one line per drafter, on stderr",
    ),
    Flag(
        names="--json",
        sets="run.json",
        help="print one JSON object at the end (text, tokens, timings, statistics) and nothing else",
    ),
    Flag(
        names="-co --color",
        off="--no-color",
        sets="run.color",
        kind=Kind.CHOICE,
        choices=("on", "off", "auto"),
        convert=values.on_off_auto,
        bare="on",
        default="auto",
        help="tint accepted draft tokens, one colour per drafter; auto: on a terminal, unless NO_COLOR is set",
    ),
    Flag(
        names="--display-prompt",
        off="--no-display-prompt",
        sets="run.display_prompt",
        help="print the prompt before its continuation",
    ),
    Flag(
        names="-h --help",
        old="--usage",
        sets="common.help",
        commands=ALL,
        default="",
        help="show this help and leave",
    ),
    Flag(names="--version", sets="common.version", commands=ALL, default="", help="show paceline's version and leave"),
    Flag(
        names="--config",
        off="--no-config",
        sets="common.config",
        kind=Kind.PATH,
        commands=BUT_WORKERS,
        env="PACELINE_CONFIG",
        default="paceline.toml in the working folder, else in the user's configuration folder",
        help="a file of flags and their values; what is given on the command line or by variables wins over it",
    ),
    Flag(
        names="--list-devices",
        sets="common.devices",
        commands=ALL,
        default="",
        help="show what could hold a model beside the processor, with its memory, and leave",
    ),
    Flag(
        names="-cl --cache-list",
        sets="common.cached",
        commands=BUT_WORKERS,
        default="",
        help="show the models in the cache folder and leave",
    ),
    Flag(
        names="--completion-bash",
        sets="common.completion",
        commands=BUT_WORKERS,
        default="",
        help="print what makes bash complete our commands and flags: source <(paceline --completion-bash)",
    ),
]

ROWS = rows("prompt", RUN, PROMPT) + rows("output", RUN, SHOW)
