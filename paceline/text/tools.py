"""Tool calls in streamed text. Knows the formats models were trained on; nothing of HTTP or tokens.

Hermes and Qwen    <tool_call>{"name": …, "arguments": {…}}</tool_call>, several in a row
Llama 3            <|python_tag|>{"name": …, "parameters": {…}}, or the JSON alone, several apart by ;
Mistral            [TOOL_CALLS][{"name": …, "arguments": {…}}]
anything else      the JSON alone, an object or a list of them, which is also what a forced call looks like

A marked call may come after other text; JSON without a mark is a call only at the very start and only when it names a
tool that was offered. One character after the other decides, so the result does not depend on the cutting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.text.reasoning import without_start_of

TAG, END_TAG = "<tool_call>", "</tool_call>"
MARKERS = (TAG, "[TOOL_CALLS]", "<|python_tag|>")
BETWEEN = " \t\r\n;"

Tool = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function's name and its arguments, a JSON text."""

    name: str
    arguments: str


Found = str | ToolCall


class ToolParser:
    """Takes calls out of one text. `names` are the tools on offer."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._state: Callable[[], list[Found]] = self._start
        self._held = ""
        self._marker = ""
        self._scanner = JsonScanner()
        self.n_calls = 0

    def push(self, text: str) -> list[Found]:
        """What became certain with this text: plain text and calls, in order."""
        self._held += text
        found: list[Found] = []
        while True:
            state, n_held = self._state, len(self._held)
            found += state()
            if self._state == state and len(self._held) == n_held:
                return joined(found)

    def flush(self) -> list[Found]:
        """The end of the text: a call cut short is shown as the text it is."""
        held = self._held if self._state != self._after_call else ""
        text = self._marker + held if self._state == self._reading else held
        self._held = self._marker = ""
        return [text] if text else []

    # -- states: each takes what it can from the held text

    def _start(self) -> list[Found]:
        """Nothing but white space so far: does JSON begin here?"""
        text = self._held.lstrip()
        if text and text[0] in "{[" and not any(marker.startswith(text[:2]) for marker in MARKERS):
            if text == "[":
                return []
            self._marker = self._held[: len(self._held) - len(text)]
            self._read(text)
        elif text and text != "[":
            self._state = self._plain
        return []

    def _plain(self) -> list[Found]:
        at, marker = first_marker(self._held)
        if marker:
            before, self._marker = self._held[:at], marker
            self._read(self._held[at + len(marker) :])
            return [before] if before else []
        certain = self._held
        for marker in MARKERS:
            certain = min(certain, without_start_of(marker, self._held), key=len)
        self._held = self._held[len(certain) :]
        return [certain] if certain else []

    def _read(self, text: str) -> None:
        self._held, self._scanner, self._state = text, JsonScanner(), self._reading

    def _reading(self) -> list[Found]:
        end = self._scanner.end(self._held)
        if end is None:
            return []
        calls = calls_in(self._held[:end]) if end > 0 else []
        if not self._marker.strip() and not all(call.name in self._names for call in calls):
            calls = []
        if not calls:
            text = self._marker + self._held[: max(end, 0)]
            self._held, self._marker, self._state = self._held[max(end, 0) :], "", self._plain
            return [text] if text else []
        self._held, self._state = self._held[end:], self._after_call
        self.n_calls += len(calls)
        return list(calls)

    def _after_call(self) -> list[Found]:
        """The end tag and white space go; another call may follow."""
        self._held = self._held.lstrip(BETWEEN)
        if self._held.startswith(END_TAG):
            self._held = self._held[len(END_TAG) :]
        elif self._held and not END_TAG.startswith(self._held):
            if self._held[0] == "{" and self._marker != TAG:
                self._marker = self._marker.strip()
                self._read(self._held)
            else:
                self._state = self._plain
        return []


class JsonScanner:
    """Where a JSON object or list ends: brackets and strings only. Goes on where it left off."""

    def __init__(self) -> None:
        self._at = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def end(self, text: str) -> int | None:
        """The index after the value; None while it is unfinished, -1 when there is none. Call with a growing text."""
        for at in range(self._at, len(text)):
            char = text[at]
            if self._in_string:
                self._step_in_string(char)
            elif char in "{[":
                self._depth += 1
            elif char in "}]" and self._depth:
                self._depth -= 1
                if not self._depth:
                    return at + 1
            elif self._depth == 0 and not char.isspace():
                return -1
            elif char == '"':
                self._in_string = True
        self._at = len(text)
        return None

    def _step_in_string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False


def first_marker(text: str) -> tuple[int, str]:
    found = [(at, marker) for marker in MARKERS if (at := text.find(marker)) >= 0]
    return min(found, default=(-1, ""))


def joined(found: Sequence[Found]) -> list[Found]:
    """Neighbouring texts as one."""
    out: list[Found] = []
    for item in found:
        if isinstance(item, str) and out and isinstance(out[-1], str):
            out[-1] += item
        else:
            out.append(item)
    return out


def calls_in(source: str) -> list[ToolCall]:
    """The calls of a JSON value; none when any part of it is something else."""
    try:
        value = json.loads(source, strict=False)
    except (ValueError, RecursionError):
        return []
    calls = [call_of(item) for item in (value if isinstance(value, list) else [value])]
    return [call for call in calls if call] if all(calls) else []


def call_of(value: object) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    name = value.get("name", inner)
    arguments = value.get("arguments", value.get("parameters"))
    if not isinstance(name, str) or not name or not isinstance(arguments, dict | str):
        return None
    return ToolCall(name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))


# -- what the model is told, and what it is held to


def knows_tools(template: str) -> bool:
    """Whether a chat template does something with `tools`."""
    return "tools" in template


def instructions(tools: Sequence[Tool]) -> str:
    """A system message for models whose template has no place for tools."""
    functions = [tool["function"] for tool in tools]
    lines = [json.dumps(function, ensure_ascii=False) for function in functions]
    return (
        "You can call these functions:\n"
        + "\n".join(lines)
        + '\nTo call one, answer with nothing but JSON: {"name": "the function", "arguments": {…}}.'
        + "\nAnswer in words when no function is needed."
    )


def call_schema(tools: Sequence[Tool]) -> dict[str, Any]:
    """The JSON schema of a call to any of these tools."""
    return {"anyOf": [one_call(tool["function"]) for tool in tools], "x-guidance": {"lenient": True}}


def one_call(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function.get("parameters") or {"type": "object"}
    return {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
