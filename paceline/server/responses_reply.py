"""The answers of `/v1/responses`: a chat's chunks as OpenAI's response events, numbered; and the response itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.server.chat_reply import ChatReply
from paceline.server.errors import ApiError
from paceline.server.reply import timings_json
from paceline.server.segments import Change, Segment, Segments, random_id
from paceline.server.sse import Wording, named_event
from paceline.server.stream import Step

PREFIXES = {"thinking": "rs", "text": "msg", "call": "fc"}
DELTAS = {
    "thinking": "response.reasoning_text",
    "text": "response.output_text",
    "call": "response.function_call_arguments",
}


class ResponseReply:
    """One request's answer as events. `about` is what the response repeats of its request."""

    def __init__(self, chat: ChatReply, about: Mapping[str, Any]) -> None:
        self.choices = chat.choices
        self._chat = chat
        self._segments = Segments()
        self._id = random_id("resp")
        self._ids: dict[int, str] = {}
        self._n_events = 0
        self._begun = False
        self._reason: str | None = None
        self._created = int(time.time())
        self._about = dict(about)
        self.wording = Wording(self._line, self._error_line)

    def parts(self, step: Step) -> list[dict[str, Any]]:
        events = self._start()
        for chunk in self._chat.parts(step):
            added = [event for change in self._segments.read(chunk) for event in self._events(change)]
            if "prompt_progress" in chunk:
                added.append({**self._state("response.in_progress"), "prompt_progress": chunk["prompt_progress"]})
            if added and "timings" in chunk:
                added[-1]["timings"] = chunk["timings"]
            events += added
            for choice in chunk["choices"]:
                self._reason = choice["finish_reason"] or self._reason
        return events

    def last_parts(self) -> list[dict[str, Any]]:
        """`completed` even where the answer was cut short, as llama-server says it; its status tells."""
        timings = timings_json(self.choices[0].generation.timings)
        return [{"type": "response.completed", "response": self._response(), "timings": timings}]

    def last_line(self) -> bytes:
        return b""

    def whole(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {**self._response(), "timings": timings_json(self.choices[0].generation.timings)}

    def _line(self, part: dict[str, Any]) -> bytes:
        number, self._n_events = self._n_events, self._n_events + 1
        return named_event({**part, "sequence_number": number})

    def _error_line(self, error: ApiError) -> bytes:
        said = {"code": error.kind, "message": error.message, "param": error.param}
        return self._line({"type": "error", **said, **error.body()})

    # -- events

    def _start(self) -> list[dict[str, Any]]:
        if self._begun:
            return []
        self._begun = True
        return [self._state("response.created"), self._state("response.in_progress")]

    def _state(self, kind: str) -> dict[str, Any]:
        return {"type": kind, "response": {**self._head("in_progress"), "output": []}}

    def _events(self, change: Change) -> list[dict[str, Any]]:
        segment = change.segment
        where = {"item_id": self._item_id(segment), "output_index": segment.index}
        within = where if segment.kind == "call" else {**where, "content_index": 0}
        if change.what == "open":
            return self._opened(segment, within)
        if change.what == "add":
            logprobs: dict[str, Any] = {"logprobs": []} if segment.kind == "text" else {}
            return [{"type": f"{DELTAS[segment.kind]}.delta", **within, "delta": change.text, **logprobs}]
        return self._closed(segment, within)

    def _opened(self, segment: Segment, within: dict[str, Any]) -> list[dict[str, Any]]:
        empty = Segment(segment.index, segment.kind, segment.id, segment.name)
        item = {**self._item(empty, "in_progress"), **({} if segment.kind == "call" else {"content": []})}
        events = [{"type": "response.output_item.added", "output_index": segment.index, "item": item}]
        if segment.kind == "text":
            events.append({"type": "response.content_part.added", **within, "part": text_part("")})
        return events

    def _closed(self, segment: Segment, within: dict[str, Any]) -> list[dict[str, Any]]:
        text = segment.text
        said = {"arguments": text, "name": segment.name} if segment.kind == "call" else {"text": text}
        events = [{"type": f"{DELTAS[segment.kind]}.done", **within, **said}]
        if segment.kind == "text":
            events[0]["logprobs"] = []
            events.append({"type": "response.content_part.done", **within, "part": text_part(text)})
        item = self._item(segment, "completed")
        return [*events, {"type": "response.output_item.done", "output_index": segment.index, "item": item}]

    # -- items

    def _item_id(self, segment: Segment) -> str:
        return self._ids.setdefault(segment.index, random_id(PREFIXES[segment.kind]))

    def _item(self, segment: Segment, status: str) -> dict[str, Any]:
        head = {"id": self._item_id(segment), "status": status}
        if segment.kind == "thinking":
            content = [{"type": "reasoning_text", "text": segment.text}]
            return {**head, "type": "reasoning", "summary": [], "content": content, "encrypted_content": ""}
        if segment.kind == "call":
            call = {"call_id": segment.id, "name": segment.name, "arguments": segment.text}
            return {**head, "type": "function_call", **call}
        return {**head, "type": "message", "role": "assistant", "content": [text_part(segment.text)]}

    # -- the response

    def _head(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            **self._about,
        }

    def _response(self) -> dict[str, Any]:
        short = self._reason == "length"
        return {
            **self._head("incomplete" if short else "completed"),
            "incomplete_details": {"reason": "max_output_tokens"} if short else None,
            "completed_at": int(time.time()),
            "output": [self._item(segment, "completed") for segment in self._segments.all],
            "usage": self._usage(),
        }

    def _usage(self) -> dict[str, Any]:
        choice = self.choices[0]
        timings = choice.generation.timings
        n_read, n_written = len(choice.wanted.prompt), timings.predicted_n
        return {
            "input_tokens": n_read,
            "input_tokens_details": {"cached_tokens": timings.cache_n},
            "output_tokens": n_written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": n_read + n_written,
        }


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
