"""Flags of `serve` for chats: templates, thoughts, tools."""

from __future__ import annotations

from paceline.cli.table.flag import SERVE, Flag, Kind, rows

TEMPLATE = [
    Flag(
        names="--chat-template",
        sets="server.chat_template",
        kind=Kind.STR,
        metavar="JINJA",
        env="LLAMA_ARG_CHAT_TEMPLATE",
        default="the model's own",
        help="the chat template, as jinja text; or the name of one that libllama has, such as llama3",
    ),
    Flag(
        names="--chat-template-file",
        sets="server.chat_template_file",
        kind=Kind.PATH,
        env="LLAMA_ARG_CHAT_TEMPLATE_FILE",
        help="the chat template, from a file",
    ),
    Flag(
        names="--chat-template-kwargs",
        sets="server.chat_template_kwargs",
        kind=Kind.STR,
        metavar="JSON",
        env="LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
        help='variables for the chat template, as in {"enable_thinking": false}',
    ),
    Flag(
        names="--jinja",
        off="--no-jinja",
        sets="server.jinja",
        env="LLAMA_ARG_JINJA",
        help="run the chat template; off leaves prompts to libllama, which recognises some templates and no tools",
    ),
    Flag(
        names="--prefill-assistant",
        off="--no-prefill-assistant",
        sets="server.prefill_assistant",
        env="LLAMA_ARG_PREFILL_ASSISTANT",
        help="an assistant's message at the end of a chat is continued; off takes it as complete",
    ),
    Flag(
        names="-rea --reasoning",
        sets="server.reasoning",
        kind=Kind.STR,
        metavar="on|off|auto",
        env="LLAMA_ARG_REASONING",
        help="whether models think that can do without; auto leaves it to the chat template",
    ),
    Flag(
        names="--reasoning-effort",
        sets="server.reasoning_effort",
        kind=Kind.STR,
        metavar="LEVEL",
        env="LLAMA_ARG_REASONING_EFFORT",
        help="how hard models think whose chat template knows levels, such as low or high",
    ),
    Flag(
        names="--reasoning-preserve",
        off="--no-reasoning-preserve",
        sets="server.reasoning_preserve",
        env="LLAMA_ARG_REASONING_PRESERVE",
        help="thoughts of earlier turns stay in the prompt, where the chat template can",
    ),
    Flag(
        names="--describe-tools",
        sets="server.describe_tools",
        help="tell a model of its tools in the system message where the chat template has no place for them",
    ),
]

ROWS = rows("chat template", SERVE, TEMPLATE)
