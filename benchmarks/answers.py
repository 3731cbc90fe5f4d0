"""Answers as clients see them, put together from events or taken whole: what has to be the same in every run.

Ids, times and the slot are left out. How a text was cut into events is too: it depends on what was drafted.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.bodies import CHAT, NATIVE, TEXT

DONE = "[DONE]"
USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")
# Without text_offset: inside a character of several tokens it depends on where events were cut.
LISTS = ("tokens", "token_logprobs", "top_logprobs", "content")
END = (
    *("stop_type", "stopping_word", "tokens_predicted", "tokens_evaluated"),
    *("prompt", "has_new_line", "truncated", "generation_settings"),
)


class Lost(Exception):
    """The server gave an error, or nothing, instead of an answer."""


class Broken(Exception):
    """What came is not a stream that a client could read."""


@dataclass(slots=True)
class Text:
    """One choice of an answer."""

    content: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    n_roles: int = 0
    end: dict[str, Any] = field(default_factory=dict)

    def add_native(self, part: dict[str, Any]) -> None:
        self.content += part["content"]
        self.tokens += part["tokens"]
        self.logprobs += part.get("completion_probabilities", ())
        if part["stop"]:
            self.end = {name: part[name] for name in END}
            self.end["generation_settings"] = {**part["generation_settings"], "stream": None}

    def add_text(self, choice: dict[str, Any]) -> None:
        self.content += choice["text"]
        lists = choice["logprobs"] or {}
        columns = [lists[name] for name in LISTS if lists]
        self.logprobs += [dict(zip(LISTS, row, strict=True)) for row in zip(*columns, strict=True)]
        if choice["finish_reason"]:
            self.end = {"finish_reason": choice["finish_reason"]}

    def add_chat(self, choice: dict[str, Any]) -> None:
        said = choice["delta"] if "delta" in choice else choice["message"]
        self.content += said.get("content") or ""
        self.n_roles += "role" in said
        self.logprobs += (choice.get("logprobs") or {}).get("content", ())
        if choice["finish_reason"]:
            self.end = {"finish_reason": choice["finish_reason"]}


@dataclass(slots=True)
class Answer:
    """All its choices, and what was counted."""

    path: str
    texts: dict[int, Text] = field(default_factory=lambda: defaultdict(Text))
    usage: dict[str, int] = field(default_factory=dict)

    @property
    def content(self) -> str:
        return "\n".join(text.content for _, text in sorted(self.texts.items()))

    def add(self, part: dict[str, Any]) -> None:
        """An event, or a whole reply: that is a stream of one event."""
        if "error" in part:
            raise Lost(f"in the stream: {part['error']}")
        for choice in [part] if self.path == NATIVE else part["choices"]:
            text = self.texts[choice["index"]]
            if text.end:
                raise Broken(f"more after the end: {choice}")
            ADD[self.path](text, choice)
        if part.get("usage"):
            self.usage = {name: part["usage"][name] for name in USAGE}

    def check(self) -> None:
        if not self.texts or not all(text.end for text in self.texts.values()):
            raise Broken("it ends in the middle")
        if self.path == CHAT and any(text.n_roles != 1 for text in self.texts.values()):
            raise Broken("a role comes once")


ADD: dict[str, Callable[[Text, dict[str, Any]], None]] = {
    NATIVE: Text.add_native,
    TEXT: Text.add_text,
    CHAT: Text.add_chat,
}


def streamed(path: str, data: bytes) -> Answer:
    answer, lines = Answer(path), events(data)
    if path != NATIVE and lines.pop() != DONE:
        raise Broken(f"no {DONE} at the end")
    for line in lines:
        answer.add(parsed(line))
    answer.check()
    return answer


def events(data: bytes) -> list[str]:
    """The data of each event. Comments, which keep a connection open, say nothing."""
    *blocks, rest = data.decode().split("\n\n")
    if rest:
        raise Broken(f"an unfinished event: {rest!r}")
    lines = [block for block in blocks if not block.startswith(":")]
    if not lines or any(not line.startswith("data: ") or "\n" in line for line in lines):
        raise Broken(f"not an event: {lines!r}"[:500])
    return [line.removeprefix("data: ") for line in lines]


def parsed(line: str) -> dict[str, Any]:
    try:
        part = json.loads(line)
    except ValueError:
        raise Broken(f"not JSON: {line!r}") from None
    if not isinstance(part, dict):
        raise Broken(f"not an object: {line!r}")
    return part


def whole(path: str, data: bytes) -> Answer:
    reply, answer = json.loads(data), Answer(path)
    for part in reply if isinstance(reply, list) else [reply]:
        answer.add(part)
    answer.check()
    return answer


def difference(was: Answer, now: Answer) -> str:
    """Where two answers part, in words; empty when they do not."""
    if was == now:
        return ""
    for index, text in was.texts.items():
        other = now.texts.get(index, Text())
        if text.content != other.content:
            at = n_common(text.content, other.content)
            return f"choice {index} at {at}: {text.content[at:][:60]!r} became {other.content[at:][:60]!r}"
        for name in ("tokens", "logprobs", "end"):
            if getattr(text, name) != getattr(other, name):
                return f"choice {index}, {name}: {parting(getattr(text, name), getattr(other, name))}"
    return f"choices or usage: {was.usage} became {now.usage}"


def n_common(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def parting(was: Any, now: Any) -> str:
    if isinstance(was, list):
        if len(was) != len(now):
            return f"{len(was)} became {len(now)}"
        at = next(i for i, (a, b) in enumerate(zip(was, now, strict=True)) if a != b)
        return f"at {at}: {was[at]} became {now[at]}"
    return f"{was} became {now}"
