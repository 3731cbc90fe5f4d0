"""The answers of /v1/chat/completions. The stream of chunks comes first; the whole reply is a fold over it."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from paceline.generation import Finish, Piece
from paceline.llama.model import Vocab
from paceline.server.reply import BUILD, logprobs_json, new_id, pieces_json, timings_json, usage_json
from paceline.server.service import Running
from paceline.server.sse import DONE, event
from paceline.server.steps import Step, steps
from paceline.text.reasoning import ReasoningParser, Split
from paceline.text.tools import ToolCall, ToolParser

ID_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@dataclass(frozen=True, slots=True)
class Rules:
    """How a text is read: the tools on offer, and whether thoughts are taken apart."""

    names: tuple[str, ...] = ()
    thoughts_opened: bool = False
    keep_thoughts: bool = False
    logprobs: bool = False
    include_usage: bool = False


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


async def deltas(runnings: Sequence[Running], rules: Rules) -> AsyncGenerator[Delta, None]:
    readers = [Reader(rules) for _ in runnings]
    async with aclosing(steps(runnings)) as stream:
        async for step in stream:
            yield readers[step.index].read(step)


class ChatStream:
    """One request's answer as chunks."""

    def __init__(self, model: str, vocab: Vocab, runnings: Sequence[Running], rules: Rules) -> None:
        self._vocab = vocab
        self._runnings = runnings
        self._rules = rules
        self._n_calls = [0] * len(runnings)
        self._head = {
            "id": new_id("chatcmpl"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": BUILD,
        }

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """Roles first, then what each step added, then how it ended."""
        begun: set[int] = set()
        async with aclosing(deltas(self._runnings, self._rules)) as stream:
            async for delta in stream:
                if delta.index not in begun:
                    begun.add(delta.index)
                    yield self._chunk(delta.index, {"role": "assistant", "content": None})
                if delta.finish:
                    if delta.content or delta.reasoning or delta.calls:
                        yield self._added(delta)
                    yield self._end(delta)
                else:
                    yield self._added(delta)
        if self._rules.include_usage:
            timings = timings_json(self._runnings[-1].timings())
            yield {**self._head, "choices": [], "usage": self._usage(), "timings": timings}

    async def events(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                if worth_sending(chunk):
                    yield event(chunk)
        yield DONE

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
        running = self._runnings[delta.index]
        if running.job.timings_per_token and delta.pieces:
            chunk["timings"] = timings_json(running.timings())
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
        return usage_json(self._runnings, len(self._runnings))

    def _call(self, index: int, call: ToolCall) -> dict[str, Any]:
        number = self._n_calls[index]
        self._n_calls[index] += 1
        function = {"name": call.name, "arguments": call.arguments}
        return {"index": number, "id": call_id(), "type": "function", "function": function}

    # -- the fold

    async def whole(self) -> dict[str, Any]:
        """The reply of a request that did not ask for a stream."""
        messages = [Folded() for _ in self._runnings]
        timings: dict[str, Any] = {}
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                timings = chunk.get("timings", timings)
                for choice in chunk["choices"]:
                    messages[choice["index"]].add(choice)
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [message.choice(index) for index, message in enumerate(messages)],
            "usage": self._usage(),
            "timings": timings,
        }


@dataclass(slots=True)
class Folded:
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
            self.logprobs = (self.logprobs or []) + choice["logprobs"]["content"]

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
