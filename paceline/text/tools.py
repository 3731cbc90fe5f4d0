"""Tool calls in streamed text, in the formats of `formats.py`. Knows characters; nothing of HTTP or tokens.

A marked call may come after other text; JSON without a mark is a call only at the very start and only when it names a
tool that was offered. Names come first, then arguments as they are written. One character after the other decides, so
the result does not depend on the cutting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.text.arguments import LANGUAGES, JsonScanner, ToolCall, calls_in, dumps, types_of, value_json
from paceline.text.formats import BARE, USUAL, CallFormat
from paceline.text.reasoning import without_start_of

SPACE = " \t\r\n"
BETWEEN = SPACE + ",;"
MAX_NAME, MAX_HEAD = 512, 4096
_FIELD = r'"(\w+)"\s*:\s*"((?:[^"\\]|\\.)*)"'
_FIELDS = re.compile(_FIELD)
_HEAD = re.compile(rf'\{{\s*(?:{_FIELD}\s*,\s*)*"(?:arguments|parameters)"\s*:\s*(?=\{{)')
_KEYED_HEAD = re.compile(r'\{\s*"((?:[^"\\]|\\.)+)"\s*:\s*(?=\{)')
_NUMBER = re.compile(r":\d+$")

Tool = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallPart:
    """A stretch of the call with this index; the first has its name."""

    index: int
    arguments: str = ""
    name: str = ""
    id: str = ""


Found = str | CallPart


class ToolParser:
    """Takes calls out of one text, that may hold them in any of these formats. `dropped` marks vanish."""

    def __init__(
        self, tools: Sequence[Tool], formats: Sequence[CallFormat] = USUAL, dropped: Sequence[str] = ()
    ) -> None:
        functions = [tool["function"] for tool in tools]
        self._tools = {function["name"]: function.get("parameters") or {} for function in functions}
        self._openers = {opener: form for form in reversed(formats) for opener in form.openers if opener}
        self._marks = (*self._openers, *dropped)
        self._state: Callable[[], list[Found]] = self._start
        self._form = BARE
        self._held = ""
        self._opener = ""
        self._n_here = 0  # calls since the opener
        self._closed = False
        self._whole = False
        self._scanner = JsonScanner()
        self._n_scanned = 0
        self._after: Callable[[], list[Found]] = self._between
        self._name = self._key = self._value_end = ""
        self._n_arguments = 0
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
        """The end of the text: a call without a name is shown as the text it is; one that is cut short stays so."""
        if self._state == self._language and (calls := LANGUAGES[self._form.language](self._held)):
            return [part for call in calls for part in self._call(call)]
        in_call = self._state not in (self._start, self._plain) and self._n_here
        text = "" if in_call else self._opener + self._held if self._state != self._plain else self._held
        self._held = self._opener = ""
        return [text] if text else []

    # -- plain text

    def _start(self) -> list[Found]:
        """Nothing but white space so far: does JSON begin here?"""
        text = self._held.lstrip()
        if not text or any(mark.startswith(text) for mark in self._marks) or text == "[":
            return []
        bare = self._tools and text[0] in "{[" and not any(text.startswith(mark) for mark in self._marks)
        if bare and text.lstrip("[" + SPACE)[:1] in ("{", ""):
            if text.lstrip("[" + SPACE):
                self._open(BARE, "", self._held)
        else:
            self._state = self._plain
        return []

    def _plain(self) -> list[Found]:
        at, mark = self._first_mark()
        if at < 0:
            certain = self._held
            for each in self._marks:
                certain = min(certain, without_start_of(each, self._held), key=len)
            self._held = self._held[len(certain) :]
            return [certain] if certain else []
        before, rest = self._held[:at], self._held[at:]
        if any(len(each) > len(rest) and each.startswith(rest) for each in self._marks):
            self._held = rest
        elif mark in self._openers:
            self._open(self._openers[mark], mark, rest[len(mark) :])
        else:
            self._held = rest[len(mark) :]
        return [before] if before else []

    def _first_mark(self) -> tuple[int, str]:
        """The earliest, and of those the longest."""
        found = [(at, -len(mark), mark) for mark in self._marks if (at := self._held.find(mark)) >= 0]
        at, _, mark = min(found, default=(-1, 0, ""))
        return at, mark

    # -- in a stretch of calls

    def _open(self, form: CallFormat, opener: str, held: str) -> None:
        self._form, self._opener, self._held = form, opener, held
        self._n_here, self._closed = 0, False
        self._state = self._entry(opener)

    def _entry(self, mark: str) -> Callable[[], list[Found]]:
        """What comes after the mark of a section or of a call."""
        if self._form.language:
            return self._language
        return self._between if self._form.in_json or mark != self._form.call[0] else self._naming

    def _give_up(self) -> list[Found]:
        """What comes is no call: it is text, with its mark where no call came after that."""
        opener, self._opener, self._state = self._opener, "", self._plain
        return [opener] if opener and not self._n_here else []

    def _between(self) -> list[Found]:
        """Before a call: its mark, or the end of the stretch."""
        form, spaces = self._form, BETWEEN + ("[]" if self._form.in_json else "")
        text = self._held.lstrip(spaces) if self._n_here else self._held.lstrip(SPACE + "[")
        if text[:1] == "{" and self._takes_json():
            return self._begin_object(text)
        for mark in (form.section[1], form.call[1]):
            if mark and text.startswith(mark) and self._n_here:
                self._held, self._closed = text[len(mark) :], True
                return []
        if form.call[0] and text.startswith(form.call[0]) and (self._n_here or not form.in_json):
            self._held, self._closed = text[len(form.call[0]) :], False
            self._state = self._entry(form.call[0])
            return []
        if not text or any(mark.startswith(text) for mark in (*form.section, *form.call) if mark):
            return []
        if self._n_here:
            self._held = text
        return self._give_up()

    def _takes_json(self) -> bool:
        """An object here is a call. Models trained on another format may write JSON all the same."""
        if not self._form.in_json and not self._n_here:
            self._form = CallFormat((self._opener, self._form.section[1] or self._form.call[1]))
        return self._form.in_json and not self._closed

    def _naming(self) -> list[Found]:
        """The name before the arguments."""
        form, text = self._form, self._held.lstrip(SPACE)
        if text[:1] == "{" and self._takes_json():
            return self._begin_object(text)
        ends = [form.name_end, *((form.tags.key[0], form.call[1]) if form.tags else ())]
        found = min(((at, end) for end in ends if end and (at := text.find(end)) >= 0), default=None)
        if found is None:
            return self._give_up() if len(text) > MAX_NAME else []
        name, id = named(form, text[: found[0]].strip())
        if not name or "\n" in name:
            return self._give_up()
        self._held = text[found[0] + len(found[1]) if found[1] == form.name_end else found[0] :]
        self._state = self._tagged if form.tags else self._reading
        self._scanner, self._after = JsonScanner(), self._between
        return self._begin(name, id)

    def _begin(self, name: str, id: str = "") -> list[Found]:
        part = CallPart(self.n_calls, "", name, id)
        self.n_calls += 1
        self._n_here += 1
        self._n_arguments, self._name = 0, name
        return [part]

    def _part(self, arguments: str) -> list[Found]:
        return [CallPart(self.n_calls - 1, arguments)] if arguments else []

    def _call(self, call: ToolCall) -> list[Found]:
        """A whole one."""
        return [*self._begin(call.name, call.id), *self._part(call.arguments)]

    # -- JSON

    def _begin_object(self, text: str) -> list[Found]:
        if self._n_here == 0:
            self._opener += self._held[: len(self._held) - len(text)]
        self._held, self._scanner, self._n_scanned = text, JsonScanner(), 0
        self._state, self._whole = self._object, False
        return []

    def _object(self) -> list[Found]:
        """Name and arguments in one object: the arguments are passed on once the name is known, else at its end."""
        head = None if self._whole else (_KEYED_HEAD if self._form.keyed else _HEAD).match(self._held[:MAX_HEAD])
        if head:
            fields = {"name": head[1]} if self._form.keyed else dict(_FIELDS.findall(head[0]))
            name = fields.get("name") or fields.get("tool_name") or ""
            if name and self._may_be(name):
                self._held, self._state = self._held[head.end() :], self._reading
                self._scanner, self._after = JsonScanner(), self._rest
                return self._begin(unescaped(name), fields.get("id") or fields.get("tool_call_id") or "")
        self._whole = self._whole or head is not None or len(self._held) > MAX_HEAD
        _, end = self._scanner.feed(self._held[self._n_scanned :])
        if end is None:
            self._n_scanned = len(self._held)
            return []
        return self._whole_object(self._n_scanned + end)

    def _whole_object(self, end: int) -> list[Found]:
        calls = calls_in(self._held[:end])
        if not calls or not all(self._may_be(call.name) for call in calls):
            text, self._held = self._held[:end], self._held[end:]
            return [*self._give_up(), text]
        self._held, self._state = self._held[end:], self._between
        return [part for call in calls for part in self._call(call)]

    def _may_be(self, name: str) -> bool:
        """Without a mark only a tool that was offered."""
        return bool(self._form.call[0]) or name in self._tools

    def _reading(self) -> list[Found]:
        """Arguments in JSON, passed on as they come."""
        text, end = self._scanner.feed(self._held)
        if end is None:
            self._held = ""
            self._n_arguments += bool(text.strip())
            return self._part(text if self._n_arguments else "")
        self._held, self._state = self._held[max(end, 0) :], self._after
        self._scanner = JsonScanner(depth=1)
        return self._part(text if end > 0 else "{}")

    def _rest(self) -> list[Found]:
        """What is left of the object around the arguments."""
        _, end = self._scanner.feed(self._held)
        self._held = "" if end is None else self._held[end:]
        if end is not None:
            self._state = self._between
        return []

    # -- tags

    def _tagged(self) -> list[Found]:
        """The next argument, or the end of the call."""
        tags, text = self._form.tags, self._held.lstrip(SPACE)
        assert tags
        if text.startswith(self._form.call[1]):
            self._held, self._state, self._closed = text[len(self._form.call[1]) :], self._between, True
            return self._part("}" if self._n_arguments else "{}")
        if self._form.call[1].startswith(text) or tags.key[0].startswith(text):
            return []
        if not text.startswith(tags.key[0]):
            self._state = self._between
            return self._part("}" if self._n_arguments else "{}")
        key, end, rest = text[len(tags.key[0]) :].partition(tags.key[1])
        value = rest.lstrip(SPACE) if tags.value[0] else rest
        if not end or (tags.value[0].startswith(value) and value != tags.value[0]):
            return []
        self._held = value.removeprefix(tags.value[0])
        return self._begin_value(key)

    def _begin_value(self, key: str) -> list[Found]:
        """The key may have attributes, as in `city" string="true`."""
        assert self._form.tags
        self._key, _, attributes = key.partition('"')
        properties = self._tools.get(self._name, {}).get("properties", {})
        self._types = types_of(properties.get(self._key))
        if 'string="true"' in attributes or 'type="string"' in attributes:
            self._types = frozenset({"string"})
        self._value_end = self._form.tags.value[1].replace("{key}", self._key)
        self._state = self._text_begins if self._types == {"string"} else self._value
        before = ", " if self._n_arguments else "{"
        self._n_arguments += 1
        return self._part(f"{before}{dumps(self._key)}: " + ('"' if self._types == {"string"} else ""))

    def _text_begins(self) -> list[Found]:
        assert self._form.tags
        if self._held or not self._form.tags.padded:
            self._held = self._held.removeprefix("\n") if self._form.tags.padded else self._held
            self._state = self._text
        return []

    def _text(self) -> list[Found]:
        """A string, passed on as it comes."""
        assert self._form.tags
        padding = "\n" if self._form.tags.padded else ""
        text, end, rest = self._held.partition(self._value_end)
        if not end:
            certain = min(
                (without_start_of(mark, text) for mark in (self._value_end, padding + self._value_end)), key=len
            )
            self._held = text[len(certain) :]
            return self._part(dumps(certain)[1:-1])
        self._held, self._state = rest, self._tagged
        return self._part(dumps(text.removesuffix(padding))[1:-1] + '"')

    def _value(self) -> list[Found]:
        """Anything else, once it is whole."""
        assert self._form.tags
        text, end, rest = self._held.partition(self._value_end)
        if not end:
            return []
        if self._form.tags.padded:
            text = text.removeprefix("\n").removesuffix("\n")
        self._held, self._state = rest, self._tagged
        return self._part(value_json(text, self._types))

    # -- little languages

    def _language(self) -> list[Found]:
        text, end, rest = self._held.partition(self._form.call[1])
        if not end:
            return []
        calls = LANGUAGES[self._form.language](text)
        if not calls:
            return self._give_up()
        self._held, self._state = rest, self._between
        return [part for call in calls for part in self._call(call)]


def named(form: CallFormat, raw: str) -> tuple[str, str]:
    """A name, and an id where the format has a place for one."""
    if form.id_mark:
        first, _, second = raw.partition(form.id_mark)
        return (second, first) if form.id_first else (first, second)
    if form.name_prefix:
        return _NUMBER.sub("", raw.removeprefix(form.name_prefix)), raw
    return raw.partition('"')[0], ""


def unescaped(name: str) -> str:
    return str(json.loads(f'"{name}"', strict=False)) if "\\" in name else name


def joined(found: Sequence[Found]) -> list[Found]:
    """Neighbouring texts as one, and neighbouring parts of one call."""
    out: list[Found] = []
    for item in found:
        last = out[-1] if out else None
        if isinstance(item, str) and isinstance(last, str):
            out[-1] = last + item
        elif isinstance(item, CallPart) and isinstance(last, CallPart) and item.index == last.index:
            out[-1] = CallPart(last.index, last.arguments + item.arguments, last.name, last.id)
        else:
            out.append(item)
    return out


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
