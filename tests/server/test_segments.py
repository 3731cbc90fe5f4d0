from __future__ import annotations

from typing import Any

from paceline.server.segments import Segments


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(index: int, arguments: str, **first: Any) -> dict[str, Any]:
    name = {"name": first.pop("name")} if first else {}
    return {"index": index, **first, "function": {**name, "arguments": arguments}}


def test_chunks_become_stretches_one_open_at_a_time() -> None:
    segments = Segments()
    empty: dict[str, Any] = {"choices": [], "usage": {}}
    changes = [
        (change.what, change.segment.kind, change.segment.index, change.text)
        for part in (
            chunk(role="assistant", content=None),
            chunk(reasoning_content="hm"),
            chunk(reasoning_content=" so", content="Yes"),
            chunk(tool_calls=[call(0, '{"a"', id="x", name="f")]),
            chunk(tool_calls=[call(0, ": 1}"), call(1, "{}", id="y", name="g")]),
            chunk(content="done"),
            chunk("stop"),
            empty,
        )
        for change in segments.read(part)
    ]
    assert changes == [
        ("open", "thinking", 0, ""),
        ("add", "thinking", 0, "hm"),
        ("add", "thinking", 0, " so"),
        ("close", "thinking", 0, ""),
        ("open", "text", 1, ""),
        ("add", "text", 1, "Yes"),
        ("close", "text", 1, ""),
        ("open", "call", 2, ""),
        ("add", "call", 2, '{"a"'),
        ("add", "call", 2, ": 1}"),
        ("close", "call", 2, ""),
        ("open", "call", 3, ""),
        ("add", "call", 3, "{}"),
        ("close", "call", 3, ""),
        ("open", "text", 4, ""),
        ("add", "text", 4, "done"),
        ("close", "text", 4, ""),
    ]
    assert [(s.id, s.name, s.text) for s in segments.all] == [
        ("", "", "hm so"),
        ("", "", "Yes"),
        ("x", "f", '{"a": 1}'),
        ("y", "g", "{}"),
        ("", "", "done"),
    ]
