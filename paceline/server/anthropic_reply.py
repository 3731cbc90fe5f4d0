"""The answers of `/v1/messages`: a chat's chunks as Anthropic's events; the whole message is what they amount to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from paceline.server.chat_reply import ChatReply
from paceline.server.errors import ApiError
from paceline.server.segments import Change, Segment, Segments, random_id
from paceline.server.sse import Wording, named_event
from paceline.server.stream import Step

REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageReply:
    """One request's answer as events."""

    def __init__(self, chat: ChatReply, model: str) -> None:
        self.choices = chat.choices
        self._chat = chat
        self._segments = Segments()
        self._begun = False
        self._reason = "stop"
        self._head = {"id": random_id("msg"), "type": "message", "role": "assistant", "model": model}

    def parts(self, step: Step) -> list[dict[str, Any]]:
        events = [] if self._begun else [self._start()]
        self._begun = True
        for chunk in self._chat.parts(step):
            for change in self._segments.read(chunk):
                events += block_events(change)
            for choice in chunk["choices"]:
                self._reason = choice["finish_reason"] or self._reason
        return events

    def last_parts(self) -> list[dict[str, Any]]:
        return [
            {"type": "message_delta", "delta": self._end(), "usage": self._usage()},
            {"type": "message_stop"},
        ]

    def last_line(self) -> bytes:
        return b""

    def whole(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        content = [block_json(segment) for segment in self._segments.all]
        return {**self._head, "content": content, **self._end(), "usage": self._usage()}

    def _start(self) -> dict[str, Any]:
        unknown = {"stop_reason": None, "stop_sequence": None}
        return {"type": "message_start", "message": {**self._head, "content": [], **unknown, "usage": self._usage()}}

    def _end(self) -> dict[str, Any]:
        finish = self.choices[0].generation.finish
        stop = finish.stop if finish else None
        reason = "stop_sequence" if stop and self._reason == "stop" else REASONS.get(self._reason, "end_turn")
        return {"stop_reason": reason, "stop_sequence": stop}

    def _usage(self) -> dict[str, int]:
        choice = self.choices[0]
        n_cached = choice.generation.timings.cache_n
        return {
            "input_tokens": len(choice.wanted.prompt) - n_cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": n_cached,
            "output_tokens": choice.generation.timings.predicted_n,
        }


def block_events(change: Change) -> list[dict[str, Any]]:
    segment = change.segment
    if change.what == "open":
        return [{"type": "content_block_start", "index": segment.index, "content_block": empty_block(segment)}]
    if change.what == "add":
        return [delta(segment, delta_json(segment, change.text))]
    signature = [delta(segment, {"type": "signature_delta", "signature": ""})] if segment.kind == "thinking" else []
    return [*signature, {"type": "content_block_stop", "index": segment.index}]


def delta(segment: Segment, content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": segment.index, "delta": content}


def delta_json(segment: Segment, text: str) -> dict[str, Any]:
    if segment.kind == "thinking":
        return {"type": "thinking_delta", "thinking": text}
    if segment.kind == "call":
        return {"type": "input_json_delta", "partial_json": text}
    return {"type": "text_delta", "text": text}


def empty_block(segment: Segment) -> dict[str, Any]:
    return block_json(Segment(segment.index, segment.kind, segment.id, segment.name))


def block_json(segment: Segment) -> dict[str, Any]:
    if segment.kind == "thinking":
        return {"type": "thinking", "thinking": segment.text, "signature": ""}
    if segment.kind == "call":
        return {"type": "tool_use", "id": segment.id, "name": segment.name, "input": arguments(segment.text)}
    return {"type": "text", "text": segment.text}


def arguments(text: str) -> dict[str, Any]:
    """What a model writes need not be an object."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def error_json(error: ApiError) -> dict[str, Any]:
    return {"type": "error", **error.body()}


WORDING = Wording(named_event, lambda error: named_event(error_json(error)))
