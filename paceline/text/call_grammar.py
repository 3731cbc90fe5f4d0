"""A grammar for tool calls in a family's own format, in llguidance's Lark. Knows formats and schemas; of tokens only
that some marks are tokens of their own, which no text can spell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.text.arguments import dumps, types_of
from paceline.text.formats import BARE, LLAMA3, CallFormat, Style
from paceline.text.schemas import closed
from paceline.text.tools import Tool

Spell = Callable[[str], Sequence[int | str]]
"""A mark as texts, and tokens that stand for parts of it."""

WS = r"WS: /[ \n]{0,6}/"
LIKE_DUMPS = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?", "lenient": True}
BARE_PARAMETERS = CallFormat(arguments_key="parameters")


def form_of(style: Style, template: str) -> CallFormat:
    """The format to hold a model of this family to: its own, where the template shows it; else plain JSON."""
    form = style.calls[0] if style.calls else BARE
    if form is LLAMA3:
        return BARE_PARAMETERS
    known = all(mark in template for mark in style.signs) and (style.signs or form.call[0] in template)
    return form if known and not form.language else BARE


def call_grammar(form: CallFormat, tools: Sequence[Tool], spell: Spell, *, parallel: bool, opened: str = "") -> str:
    """Calls to these tools, one or several, and nothing else. What is `opened` is written already."""
    return CallGrammar(form, spell).lark([tool["function"] for tool in tools], parallel=parallel, opened=opened)


def harmony_grammar(tools: Sequence[Tool], spell: Spell) -> str:
    """As gpt-oss calls: thoughts in their channel if there are any, then a message for a function."""
    names = ("channel", "message", "constrain", "start", "end")
    channel, message, constrain, start, end = (CallGrammar(BARE, spell).literal(f"<|{name}|>") for name in names)
    thoughts = f'({channel} "analysis" {message} /(?s:.*)/ {end} {start} "assistant")?'
    calls = [
        f'call_{n}: {quoted(str(tool["function"]["name"]))} " " {constrain} "json" {message} '
        + json_rule(parameters_of(tool["function"]))
        for n, tool in enumerate(tools)
    ]
    any_call = "any_call: " + " | ".join(f"call_{n}" for n in range(len(tools)))
    first = f'start: {thoughts} {channel} "commentary to=functions." any_call'
    return "\n".join(["%llguidance {}", first, any_call, *calls, ""])


class CallGrammar:
    def __init__(self, form: CallFormat, spell: Spell) -> None:
        self._form = form
        self._spell = spell
        self._texts: dict[str, str] = {}

    def lark(self, functions: Sequence[Mapping[str, Any]], *, parallel: bool, opened: str) -> str:
        form = self._form
        calls = [f"call_{n}: {self._call(function)}" for n, function in enumerate(functions)]
        any_call = "any_call: " + " | ".join(f"call_{n}" for n in range(len(functions)))
        texts = [f"{name}[suffix={quoted(end)}]: /(?s:.*)/" for end, name in self._texts.items()]
        start = f"start: {self._start(form, parallel, opened)} WS"
        return "\n".join(["%llguidance {}", start, any_call, *calls, *texts, WS, ""])

    def _start(self, form: CallFormat, parallel: bool, opened: str) -> str:
        mark, end = self.literal(form.call[0]), self.literal(form.call[1])
        if form.in_json:
            first = "" if opened else mark
            if form.listed:
                more = ' ("," WS any_call WS)*' if parallel else ""
                return f'{first} WS "[" WS any_call WS{more} "]" WS {end}'
            more = f" (WS {mark} WS any_call WS {end})*" if parallel and form.call[1] else ""
            return f"{first} WS any_call WS {end}{more}"
        more = f" (WS {mark} any_call WS {end})*" if parallel else ""
        first = "" if opened == form.call[0] else mark
        calls = f"WS {first} any_call WS {end}{more}"
        if not form.section[0] or opened == form.call[0]:
            return calls
        section, end = self.literal(form.section[0]), self.literal(form.section[1])
        again = f" (WS {section} {calls} WS {end})*" if parallel else ""
        return f"{'' if opened else section} {calls} WS {end}{again}"

    def literal(self, mark: str) -> str:
        """Texts as literals, tokens by their number."""
        parts = [part for part in self._spell(mark) if part != ""]
        return " ".join(f"<[{part}]>" if isinstance(part, int) else quoted(part) for part in parts)

    # -- one call, from its name on

    def _call(self, function: Mapping[str, Any]) -> str:
        form, name = self._form, str(function["name"])
        schema = parameters_of(function)
        if form.in_json:
            return json_rule(self._object(name, schema))
        if form.tags:
            attributes = f"/{form.name_attributes}/" if form.name_attributes else ""
            return " ".join(
                [quoted(name), attributes, self.literal(form.name_end.strip()), "WS", *self._arguments(schema)]
            )
        return " ".join([self._named(name), self.literal(form.name_end), "WS", json_rule(schema)])

    def _object(self, name: str, schema: Any) -> dict[str, Any]:
        form = self._form
        if form.keyed:
            return strict_object({name: schema})
        call = {form.name_key: {"const": name}, form.arguments_key: schema}
        if not form.id_key:
            return strict_object(call)
        id = {form.id_key: {"type": "string", "pattern": "^[0-9]{1,3}$" if form.id_first else "^[a-zA-Z0-9]{9}$"}}
        return strict_object({**id, **call} if form.id_first else {**call, **id}, required=list(call))

    def _named(self, name: str) -> str:
        form = self._form
        if form.name_prefix:
            return quoted(f"{form.name_prefix}{name}:") + " /[0-9]{1,3}/"
        if form.id_first:
            return f"/[a-z0-9]{{10}}/ {self.literal(form.id_mark)} {quoted(name)}"
        if form.id_mark:
            return f"{quoted(name)} ({self.literal(form.id_mark)} /[a-zA-Z0-9]{{9}}/)?"
        return quoted(name)

    def _arguments(self, schema: Mapping[str, Any]) -> list[str]:
        """Required ones, then those that may be left out, in the schema's order."""
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        wanted = schema.get("required")
        required = [key for key in properties if isinstance(wanted, list) and key in wanted]
        optional = [key for key in properties if key not in required]
        definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
        first = [f"{self._argument(key, properties[key], definitions)} WS" for key in required]
        return first + [f"({self._argument(key, properties[key], definitions)} WS)?" for key in optional]

    def _argument(self, key: str, schema: Any, definitions: Mapping[str, Any]) -> str:
        tags = self._form.tags
        assert tags
        attributes = f"/{tags.attributes}/" if tags.attributes else ""
        gap, pad = "WS" if tags.value[0] else "", "\n" if tags.padded else ""
        head = [self.literal(tags.key[0]), quoted(key), attributes, self.literal(tags.key[1]), gap]
        value = self._value(schema, definitions, pad + tags.value[1].replace("{key}", key))
        return " ".join([*head, self.literal(tags.value[0]), quoted(pad) if pad else "", value])

    def _value(self, schema: Any, definitions: Mapping[str, Any], end: str) -> str:
        """One of those that are named, any text where it may be a string, else JSON; and the mark after it."""
        values = schema.get("enum") if isinstance(schema, Mapping) else None
        if isinstance(values, list) and values:
            texts = [value if isinstance(value, str) else dumps(value) for value in values]
            return f"({' | '.join(map(quoted, texts))}) {self.literal(end)}"
        types = types_of(schema)
        if "string" in types or not types:
            return self._text(end)
        return f"{json_rule({**schema, **definitions})} {self.literal(end)}"

    def _text(self, end: str) -> str:
        """Any text up to the mark."""
        if any(isinstance(part, int) for part in self._spell(end)):
            return f"/(?s:.*)/ {self.literal(end)}"
        return self._texts.setdefault(end, f"text_{len(self._texts)}")


def parameters_of(function: Mapping[str, Any]) -> dict[str, Any]:
    """A function without parameters takes none."""
    schema = function.get("parameters")
    if not isinstance(schema, Mapping) or not schema:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    return dict(closed(schema))


def strict_object(properties: Mapping[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def json_rule(schema: Any) -> str:
    schema = {**schema, "x-guidance": LIKE_DUMPS} if isinstance(schema, Mapping) else schema
    return "%json " + json.dumps(schema, ensure_ascii=False)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
