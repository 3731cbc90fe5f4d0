"""The arguments of a call as models write them, to JSON text. Knows JSON, tags' values and two little languages."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ESCAPED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
MAX_DEPTH = 16
GEMMA_QUOTE = '<|"|>'
_KEY = re.compile(r"([{,]\s*)([A-Za-z_][\w.\-]*)\s*:")
_GEMMA_CALL = re.compile(r"\s*([^\s{]+)\s*(\{.*\})\s*", re.DOTALL)
_NAMES = {"true": True, "false": False, "null": None}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function's name and its arguments, a JSON text."""

    name: str
    arguments: str
    id: str = ""


class JsonScanner:
    """Passes a JSON object or list on, piece by piece, and knows where it ends. Line breaks inside strings, which JSON
    forbids and models write, are escaped."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> tuple[str, int | None]:
        """What belongs to it, and the index after its end; None while it is unfinished, -1 when it is none."""
        out: list[str] = []
        for at, char in enumerate(text):
            if self._in_string:
                out.append(self._step_in_string(char))
                continue
            out.append(char)
            if char in "{[":
                self._depth += 1
            elif char in "}]" and self._depth:
                self._depth -= 1
                if not self._depth:
                    return "".join(out), at + 1
            elif self._depth == 0 and not char.isspace():
                return "", -1
            elif char == '"':
                self._in_string = True
        return "".join(out), None

    def _step_in_string(self, char: str) -> str:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False
        else:
            return ESCAPED.get(char, char)
        return char


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
    name = value.get("name", value.get("tool_name", inner))
    arguments = value.get("arguments", value.get("parameters"))
    if not isinstance(name, str) or not name or not isinstance(arguments, dict | str):
        return None
    id = value.get("id", value.get("tool_call_id"))
    return ToolCall(
        name, arguments if isinstance(arguments, str) else dumps(arguments), id if isinstance(id, str) else ""
    )


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# -- values between tags


def types_of(schema: object, depth: int = 0) -> frozenset[str]:
    """The JSON types a schema allows, as far as it says so plainly; empty where anything may come."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return frozenset()
    given = schema.get("type")
    if isinstance(given, str):
        return frozenset({given})
    if isinstance(given, list):
        return frozenset(each for each in given if isinstance(each, str))
    if isinstance(schema.get("enum"), list):
        return frozenset(type_name(each) for each in schema["enum"])
    parts = schema.get("anyOf", schema.get("oneOf"))
    found = [types_of(part, depth + 1) for part in parts] if isinstance(parts, list) else []
    return frozenset().union(*found) if all(found) else frozenset()


def type_name(value: object) -> str:
    return next((name for name, types in _TYPES.items() if type(value) in types), "string")


def value_json(text: str, allowed: frozenset[str]) -> str:
    """A value as JSON: read as such where its type fits, else a string."""
    stripped = text.strip()
    try:
        value = json.loads(stripped, strict=False)
    except (ValueError, RecursionError):
        if stripped in ("True", "False", "None") and "string" not in allowed:
            return {"True": "true", "False": "false", "None": "null"}[stripped]
        return dumps(text)
    fits = not allowed or any(type(value) in _TYPES.get(name, ()) for name in allowed)
    return stripped if fits or "string" not in allowed else dumps(text)


# -- calls in little languages


def python_calls(source: str) -> list[ToolCall]:
    """`[f(a=1), g(b="x")]`; nothing is run."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about escapes like \\d
            tree = ast.parse(source.strip(), mode="eval").body
        calls = tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]
        return [_python_call(call) for call in calls]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return []


def _python_call(node: ast.expr) -> ToolCall:
    if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Name | ast.Attribute):
        raise ValueError("not a call with named arguments")
    arguments = {keyword.arg or "": _literal(keyword.value) for keyword in node.keywords}
    return ToolCall(ast.unparse(node.func), dumps(arguments))


def _literal(node: ast.expr) -> Any:
    """Python's literals, and JSON's three names."""
    if isinstance(node, ast.Name) and node.id in _NAMES:
        return _NAMES[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(each) for each in node.elts]
    if isinstance(node, ast.Dict):
        return {str(_literal(key)): _literal(v) for key, v in zip(node.keys, node.values, strict=True) if key}
    return ast.literal_eval(node)


def gemma_calls(source: str) -> list[ToolCall]:
    """`name{key:<|"|>text<|"|>,other:1}`: JSON with bare keys and quotes of its own."""
    match = _GEMMA_CALL.fullmatch(source)
    if not match:
        return []
    parts = match[2].split(GEMMA_QUOTE)
    text = "".join(dumps(part) if i % 2 else _KEY.sub(r'\1"\2":', part) for i, part in enumerate(parts))
    try:
        return [ToolCall(match[1], dumps(json.loads(text)))]
    except (ValueError, RecursionError):
        return []


LANGUAGES = {"python": python_calls, "gemma": gemma_calls}
