from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.text.arguments import ToolCall
from paceline.text.tools import CallPart, Found, ToolParser, call_schema, instructions, joined, knows_tools

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
ADD = ToolCall("add", '{"a": 1}')
PARTS = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        "<|python_tag|>",
        '{"name": "add", "arguments": {"a": 1}}',
        '[{"name": "add", "arguments": {"a": 1}}]',
        '{"name": "sub", "parameters": {}}',
        '{"b": "}"}',
        *'<[{}]";',
        "[TOOL",
        "text",
        " ",
        "\n",
    ]
)
TEXT = st.lists(PARTS, max_size=6).map("".join)


def parse(*pushes: str) -> list[str | ToolCall]:
    parser = ToolParser(TOOLS)
    found = [item for text in pushes for item in parser.push(text)]
    return [whole(item) for item in joined(found + parser.flush())]


def whole(item: Found) -> str | ToolCall:
    return ToolCall(item.name, item.arguments) if isinstance(item, CallPart) else item


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Hello { there", ["Hello { there"]),
        ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', [ADD]),
        ('Sure.\n<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', ["Sure.\n", ADD]),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>\n' * 2, [ADD, ADD]),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call> done', [ADD, "done"]),
        ('<|python_tag|>{"name": "add", "parameters": {"a": 1}}', [ADD]),
        ('{"name": "add", "parameters": {"a": 1}}', [ADD]),
        (
            '{"type": "function", "name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {"a": 1}}',
            [ADD] * 2,
        ),
        ('{"function": {"name": "add", "arguments": "{\\"a\\": 1}"}}', [ADD]),
        ('[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {"a": 1}}]', [ADD, ADD]),
        ('[{"name": "add", "arguments": {"a": 1}}]', [ADD]),
        ('{"name": "unknown", "arguments": {}}', ['{"name": "unknown", "arguments": {}}']),
        ('{"answer": 42} is it', ['{"answer": 42} is it']),
        ('say {"name": "add", "arguments": {"a": 1}}', ['say {"name": "add", "arguments": {"a": 1}}']),
        ('<tool_call>{"name": "add", "argum', ['<tool_call>{"name": "add", "argum']),
        ("<tool_call>not json</tool_call>", ["<tool_call>not json</tool_call>"]),
        ("[1] is a footnote", ["[1] is a footnote"]),
        ("<|python_tag|>import math", ["<|python_tag|>import math"]),
        ('<tool_call>{"name": "add", "arguments": "a \\"}\\" b"}</tool_call>', [ToolCall("add", 'a "}" b')]),
    ],
)
def test_formats(text: str, expected: list[str | ToolCall]) -> None:
    assert parse(text) == expected
    assert parse(*text) == expected


@given(TEXT, st.data())
@example('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', None)
def test_the_cutting_does_not_matter(text: str, data: st.DataObject | None) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8))) if data else range(len(text))
    edges = [0, *cuts, len(text)]
    assert parse(*(text[a:b] for a, b in pairwise(edges))) == parse(text)


@given(TEXT)
def test_text_without_calls_is_left_alone(text: str) -> None:
    found = parse(*text)
    if not any(isinstance(item, ToolCall) for item in found):
        assert "".join(str(item) for item in found) == text


def test_plain_text_is_not_held_back() -> None:
    parser = ToolParser(TOOLS)
    assert parser.push("Hello") == ["Hello"]
    assert parser.push(" <tool") == [" "]
    assert parser.push("box>") == ["<toolbox>"]


def test_a_long_call_is_read_in_linear_time() -> None:
    parser = ToolParser(TOOLS)
    text = '{"name": "add", "arguments": {"a": "' + "x" * 200_000 + '"}}'
    found = joined([item for char in text for item in parser.push(char)])
    assert found == [CallPart(0, '{"a": "' + "x" * 200_000 + '"}', "add")]


def test_what_the_model_is_told() -> None:
    assert knows_tools("{% if tools %}…")
    assert not knows_tools("{{ messages }}")
    assert '"name": "add"' in instructions(TOOLS)
    schema = call_schema(TOOLS)
    assert schema["anyOf"][0]["properties"]["name"] == {"const": "add"}
    assert json.dumps(schema)
