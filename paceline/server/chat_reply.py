"""The answers of /v1/chat/completions. The stream of chunks comes first; the whole reply is a fold over it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.generation import Finish, Piece
from paceline.server.reply import BUILD, logprobs_json, new_id, pieces_json, timings_json, usage_json
from paceline.server.service import Choice
from paceline.server.sse import DONE
from paceline.server.stream import Step
from paceline.text.reasoning import ReasoningParser, Split
from paceline.text.tools import ToolCall, ToolParser
from paceline.text.vocabulary import Vocabulary

ID_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@dataclass(frozen=True, slots=True)
class Rules:
    """How a text is read: the tools on offer, and whether thoughts are taken apart. What was `begun` in the prompt is
    read before it, and said again with `echo`."""

    names: tuple[str, ...] = ()
    thoughts_opened: bool = False
    keep_thoughts: bool = False
    logprobs: bool = False
    include_usage: bool = False
    begun: str = ""
    echo: bool = True


@dataclass(frozen=True, slots=True)
class Delta:
    """What a step added to one choice's message."""

    index: int
    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    pieces: tuple[Piece, ...] = ()
    finish: Finish | None = None
    reason: str | None = None


class Reader:
    """One choice's text, taken apart."""

    def __init__(self, rules: Rules) -> None:
        self._reasoning = None if rules.keep_thoughts else ReasoningParser(opened=rules.thoughts_opened)
        self._tools = ToolParser(rules.names) if rules.names else None

    def begin(self, index: int, text: str) -> Delta:
        """Reads what the prompt has of the answer."""
        split = self._reasoning.push(text) if self._reasoning else Split(content=text)
        content, calls = self._content(split.content)
        return Delta(index, content, split.reasoning, calls)

    def read(self, step: Step) -> Delta:
        split = self._reasoning.push(step.text) if self._reasoning else Split(content=step.text)
        content, calls = self._content(split.content)
        if step.finish is None:
            return Delta(step.index, content, split.reasoning, calls, step.pieces)
        rest = self._reasoning.flush() if self._reasoning else Split()
        more, more_calls = self._content(rest.content, last=True)
        reason = "tool_calls" if self._tools and self._tools.n_calls else step.finish.reason
        reasoning = split.reasoning + rest.reasoning
        return Delta(step.index, content + more, reasoning, calls + more_calls, (), step.finish, reason)

    def _content(self, text: str, *, last: bool = False) -> tuple[str, tuple[ToolCall, ...]]:
        if not self._tools:
            return text, ()
        found = self._tools.push(text) + (self._tools.flush() if last else [])
        content = "".join(item for item in found if isinstance(item, str))
        return content, tuple(item for item in found if isinstance(item, ToolCall))


class ChatReply:
    """One request's answer as chunks."""

    def __init__(self, model: str, vocab: Vocabulary, choices: Sequence[Choice], rules: Rules) -> None:
        self._vocab = vocab
        self.choices = choices
        self._rules = rules
        self._readers = [Reader(rules) for _ in choices]
        self._begun: set[int] = set()
        self._n_calls = [0] * len(choices)
        self._head = {
            "id": new_id("chatcmpl"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": BUILD,
        }

    def parts(self, step: Step) -> list[dict[str, Any]]:
        """The role first, then what each step added, then how it ended."""
        parts = []
        if step.index not in self._begun:
            self._begun.add(step.index)
            parts.append(self._chunk(step.index, {"role": "assistant", "content": None}))
            begun = self._readers[step.index].begin(step.index, self._rules.begun)
            parts += [self._added(begun)] if self._rules.echo else []
        delta = self._readers[step.index].read(step)
        if not delta.finish or delta.content or delta.reasoning or delta.calls:
            parts.append(self._added(delta))
        if delta.finish:
            parts.append(self._end(delta))
        return [part for part in parts if worth_sending(part)]

    def last_parts(self) -> list[dict[str, Any]]:
        if not self._rules.include_usage:
            return []
        timings = timings_json(self.choices[-1].generation.timings)
        return [{**self._head, "choices": [], "usage": self._usage(), "timings": timings}]

    def last_line(self) -> bytes:
        return DONE

    def _added(self, delta: Delta) -> dict[str, Any]:
        message: dict[str, Any] = {}
        if delta.reasoning:
            message["reasoning_content"] = delta.reasoning
        if delta.content:
            message["content"] = delta.content
        if delta.calls:
            message["tool_calls"] = [self._call(delta.index, call) for call in delta.calls]
        chunk = self._chunk(delta.index, message)
        if self._rules.logprobs and delta.pieces:
            chunk["choices"][0]["logprobs"] = {"content": self._logprobs(delta.pieces)}
        choice = self.choices[delta.index]
        if choice.wanted.timings_per_token and delta.pieces:
            chunk["timings"] = timings_json(choice.generation.timings)
            chunk["paceline"] = pieces_json(delta.pieces)
        return chunk

    def _end(self, delta: Delta) -> dict[str, Any]:
        assert delta.finish
        chunk = self._chunk(delta.index, {}, delta.reason)
        chunk["timings"] = timings_json(delta.finish.timings)
        return chunk

    def _chunk(self, index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**self._head, "choices": [{"index": index, "delta": delta, "finish_reason": reason}]}

    def _logprobs(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        return logprobs_json(self._vocab, [piece for piece in pieces if piece.token.id not in self._vocab.eog])

    def _usage(self) -> dict[str, Any]:
        return usage_json(self.choices, len(self.choices))

    def _call(self, index: int, call: ToolCall) -> dict[str, Any]:
        number = self._n_calls[index]
        self._n_calls[index] += 1
        function = {"name": call.name, "arguments": call.arguments}
        return {"index": number, "id": call_id(), "type": "function", "function": function}

    # -- the fold

    def whole(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        messages = [FoldedChat() for _ in self.choices]
        timings: dict[str, Any] = {}
        for part in parts:
            timings = part.get("timings", timings)
            for choice in part["choices"]:
                messages[choice["index"]].add(choice)
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [message.choice(index) for index, message in enumerate(messages)],
            "usage": self._usage(),
            "timings": timings,
        }


@dataclass(slots=True)
class FoldedChat:
    """Chunks of one choice, put together."""

    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: list[dict[str, Any]] | None = None
    reason: str | None = None

    def add(self, choice: dict[str, Any]) -> None:
        delta = choice["delta"]
        self.content += delta.get("content") or ""
        self.reasoning += delta.get("reasoning_content", "")
        self.calls += delta.get("tool_calls", ())
        self.reason = choice["finish_reason"] or self.reason
        if "logprobs" in choice:
            self.logprobs = [] if self.logprobs is None else self.logprobs
            self.logprobs += choice["logprobs"]["content"]

    def choice(self, index: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.content or ("" if not self.calls else None)}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in self.calls]
        logprobs = None if self.logprobs is None else {"content": self.logprobs}
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": self.reason}


def worth_sending(chunk: dict[str, Any]) -> bool:
    """A step whose text is all held back says nothing, unless figures come with it."""
    if not chunk["choices"] or "timings" in chunk:
        return True
    choice = chunk["choices"][0]
    return bool(choice["delta"] or choice["finish_reason"] or "logprobs" in choice)


def call_id() -> str:
    """Nine letters: some templates insist on that many."""
    return "".join(ID_LETTERS[byte % len(ID_LETTERS)] for byte in os.urandom(9))
