"""What a chat template can take, found by trying it. Knows the shapes of messages; nothing of HTTP or tokens.

The names are llama-server's, which tells them in /props; what they lead to is in `messages.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from paceline.errors import PromptError
from paceline.text.jinja import Program
from paceline.text.traces import TRACING, inside, traced

USER = {"role": "user", "content": "A question"}
ANSWER = {"role": "assistant", "content": "An answer"}
THOUGHT = "<A THOUGHT FROM LONG AGO>"
PARAMETERS = {
    "type": "object",
    "properties": {"arg": {"type": "string", "description": "What it is about"}},
    "required": ["arg"],
}
TOOL = {
    "name": "tool",
    "type": "function",
    "function": {"name": "tool1", "description": "What it does", "parameters": PARAMETERS},
}
ARGUMENTS = {"arg": "value"}
EFFORTS = ("reasoning_effort", "reasoning_strength")
ARGUMENTS_TEXT = '{"arg": "value"}'


@dataclass(frozen=True, slots=True)
class Capabilities:
    supports_string_content: bool = True
    supports_typed_content: bool = False
    supports_tools: bool = True
    supports_tool_calls: bool = True
    supports_parallel_tool_calls: bool = True
    supports_system_role: bool = True
    supports_preserve_reasoning: bool = False
    supports_reasoning_effort: bool = False
    supports_object_arguments: bool = False


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A template run once. `prompt` is None where it failed."""

    messages: Any
    tools: Any
    variables: Mapping[str, Any]
    prompt: str | None


class Rehearsals:
    def __init__(self, program: Program) -> None:
        self._program = program.within(TRACING)

    def run(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = (), **variables: Any) -> Rehearsal:
        given = {name: traced(value) for name, value in variables.items()}
        rehearsal = Rehearsal(traced(messages), traced(tools), given, None)
        fixed = {"bos_token": "", "eos_token": "", "add_generation_prompt": True}
        with suppress(PromptError):
            prompt = self._program.run({**fixed, **given, "messages": rehearsal.messages, "tools": rehearsal.tools})
            return Rehearsal(rehearsal.messages, rehearsal.tools, given, prompt)
        return rehearsal


def capabilities(program: Program) -> Capabilities:
    rehearsals = Rehearsals(program)
    takes_text, takes_parts = contents(rehearsals)
    tools, calls, objects = tool_use(rehearsals)
    return Capabilities(
        supports_string_content=takes_text,
        supports_typed_content=takes_parts,
        supports_tools=tools,
        supports_tool_calls=calls,
        supports_parallel_tool_calls=parallel_calls(rehearsals, ARGUMENTS if objects else ARGUMENTS_TEXT),
        supports_system_role=system_role(rehearsals),
        supports_preserve_reasoning=old_thoughts(rehearsals),
        supports_reasoning_effort=effort(rehearsals),
        supports_object_arguments=objects,
    )


def contents(rehearsals: Rehearsals) -> tuple[bool, bool]:
    """Whether a message's content may be a text, and whether a list of parts."""
    marker = "A MARKED TEXT"
    rehearsal = rehearsals.run([{"role": "user", "content": marker}])
    content = inside(rehearsal.messages, 0, "content")
    as_text = rehearsal.prompt is not None and (marker in rehearsal.prompt or not content.as_list)
    as_parts = bool(content.as_list)
    if content.tested_for_text:
        rehearsal = rehearsals.run([{"role": "user", "content": []}])
        as_parts |= rehearsal.prompt is not None and inside(rehearsal.messages, 0, "content").as_list
    return as_text, as_parts


def system_role(rehearsals: Rehearsals) -> bool:
    rehearsal = rehearsals.run([{"role": "system", "content": "An order"}, USER])
    return bool(inside(rehearsal.messages, 0, "content").used)


def called(*arguments: Any) -> list[dict[str, Any]]:
    """A chat in which the tool was called with these, at once."""
    calls = [
        {"id": f"call{n:05}", "type": "function", "function": {"name": "tool1", "arguments": each}}
        for n, each in enumerate(arguments, 1)
    ]
    result = {"role": "tool", "content": "A result", "tool_call_id": "call00001"}
    return [USER, {"role": "assistant", "content": "", "tool_calls": calls}, result, ANSWER, USER]


def tool_use(rehearsals: Rehearsals) -> tuple[bool, bool, bool]:
    """Whether tools are shown, whether calls of them are, and whether a call's arguments may be an object."""
    rehearsal = rehearsals.run(called(ARGUMENTS), [TOOL])
    if rehearsal.prompt is not None:
        tools, calls, objects = shown(rehearsal)
        if objects:
            return tools, calls, True
    rehearsal = rehearsals.run(called(ARGUMENTS_TEXT), [TOOL])
    if rehearsal.prompt is None:
        return False, False, False
    tools, calls, _ = shown(rehearsal)
    return tools, calls, False


def shown(rehearsal: Rehearsal) -> tuple[bool, bool, bool]:
    name = inside(rehearsal.tools, 0, "function", "name")
    calls = inside(rehearsal.messages, 1, "tool_calls")
    arguments = inside(calls, 0, "function", "arguments")
    an_object = isinstance(arguments, dict) and inside(arguments, "arg").used
    return bool(name.used), bool(calls.used), bool(calls.used and an_object)


def parallel_calls(rehearsals: Rehearsals, arguments: Any) -> bool:
    rehearsal = rehearsals.run(called(arguments, arguments), [TOOL])
    return rehearsal.prompt is not None and bool(inside(rehearsal.messages, 1, "tool_calls", 1, "function").used)


def old_thoughts(rehearsals: Rehearsals) -> bool:
    """Whether thoughts of earlier turns stay in the prompt when asked for."""
    chat = [USER, {**ANSWER, "reasoning_content": THOUGHT}, USER, {**ANSWER, "reasoning_content": "Hm"}, USER]
    prompt = rehearsals.run(chat, enable_thinking=True, **preserving(True)).prompt
    return prompt is not None and THOUGHT in prompt


def effort(rehearsals: Rehearsals) -> bool:
    rehearsal = rehearsals.run([USER], enable_thinking=True, **efforts("low"))
    return any(rehearsal.variables[name].used for name in EFFORTS)


def preserving(preserve: bool) -> dict[str, Any]:
    """The names under which templates ask whether thoughts of earlier turns stay."""
    dropping = dict.fromkeys(("clear_thinking", "truncate_history_thinking", "drop_thinking"), not preserve)
    return {"preserve_thinking": preserve, **dropping}


def efforts(level: str) -> dict[str, Any]:
    """The names under which templates ask how hard to think."""
    return dict.fromkeys(EFFORTS, level)
