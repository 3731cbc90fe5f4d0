from __future__ import annotations

from typing import Any

import pydantic
import pytest

from paceline.text.schemas import closed

ANY: dict[str, Any] = {"properties": {"a": {}}}
SHUT = {**ANY, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, True),
        ({"type": "object"}, {"type": "object"}),
        (ANY, SHUT),
        ({**ANY, "additionalProperties": True}, {**ANY, "additionalProperties": True}),
        ({"items": ANY}, {"items": SHUT}),
        ({"items": [ANY]}, {"prefixItems": [SHUT]}),
        ({"anyOf": [ANY, {"type": "null"}]}, {"anyOf": [SHUT, {"type": "null"}]}),
        ({"allOf": [ANY]}, {"allOf": [SHUT]}),
        ({"allOf": [ANY, ANY]}, {"allOf": [ANY, ANY]}),
        ({**ANY, "oneOf": [ANY]}, {**ANY, "oneOf": [ANY]}),
        ({"$defs": {"x": ANY}, "$ref": "#/$defs/x"}, {"$defs": {"x": SHUT}, "$ref": "#/$defs/x"}),
        ({"properties": {"a": ANY}}, {"properties": {"a": SHUT}, "additionalProperties": False}),
        ({"additionalProperties": ANY}, {"additionalProperties": SHUT}),
        ({"properties": {"properties": {}}}, {"properties": {"properties": {}}, "additionalProperties": False}),
        ({"const": {"properties": 1}}, {"const": {"properties": 1}}),
    ],
)
def test_objects_have_the_keys_they_name(schema: Any, expected: Any) -> None:
    assert closed(schema) == expected


def test_definitions_that_are_joined_stay_open() -> None:
    joined = {"$defs": {"x": ANY, "y": ANY}, "allOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}]}
    assert closed(joined) == joined


class Inner(pydantic.BaseModel):
    name: str


class Outer(pydantic.BaseModel):
    inner: Inner | None
    many: list[Inner]


def test_a_pydantic_model() -> None:
    schema = closed(Outer.model_json_schema())
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Inner"]["additionalProperties"] is False
