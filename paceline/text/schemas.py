"""JSON schemas as they are meant: objects have the keys they name and no others, as in llama-server. Knows JSON only.

Strictly read, a schema that does not say `additionalProperties` allows any key, and a model under a grammar makes some
up. Where parts of a schema are joined (`allOf`, or alternatives beside properties) keys may come from several places:
such objects stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JOINS = ("allOf", "anyOf", "oneOf")
NAMED = ("properties", "patternProperties", "$defs", "definitions")
INNER = ("items", "additionalProperties", "prefixItems", "anyOf", "oneOf")


def closed(schema: Any, *, joined: bool = False) -> Any:
    """The schema with every object closed that does not say otherwise; `joined`: it is part of another one."""
    if isinstance(schema, list):
        return [closed(each, joined=joined) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    joins = any(has_properties(part) for name in JOINS for part in parts_of(schema, name))
    out = dict(schema)
    for name in NAMED:
        if isinstance(out.get(name), Mapping):
            shared = name in ("$defs", "definitions") and merges(schema)
            out[name] = {key: closed(value, joined=shared) for key, value in out[name].items()}
    for name in INNER:
        if name in out:
            part = name in JOINS and "properties" in out
            out[name] = closed(out[name], joined=part or (joined and name in JOINS))
    if isinstance(out.get("items"), list):
        out["prefixItems"] = out.pop("items")
    if "allOf" in out:
        out["allOf"] = closed(out["allOf"], joined=joined or "properties" in out or len(parts_of(out, "allOf")) > 1)
    open_ended = joined or joins or "additionalProperties" in out or "unevaluatedProperties" in out
    return out if open_ended or "properties" not in out else {**out, "additionalProperties": False}


def parts_of(schema: Mapping[str, Any], name: str) -> list[Any]:
    parts = schema.get(name)
    return parts if isinstance(parts, list) else []


def has_properties(part: Any) -> bool:
    return isinstance(part, Mapping) and ("properties" in part or "$ref" in part)


def merges(schema: Any) -> bool:
    """Whether several schemas are one object somewhere in it."""
    if isinstance(schema, list):
        return any(map(merges, schema))
    if not isinstance(schema, Mapping):
        return False
    if len(parts_of(schema, "allOf")) > 1 or ("properties" in schema and "$ref" in schema):
        return True
    return any(map(merges, schema.values()))
