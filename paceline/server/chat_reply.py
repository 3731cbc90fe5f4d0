"""The answers of /v1/chat/completions. The stream of chunks comes first; the whole reply is a fold over it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.engine.request import Timings
from paceline.generation import Finish, Piece
from paceline.server.native_reply import settings_json
from paceline.server.reply import (
    BUILD,
    logprobs_json,
    new_id,
    pieces_json,
    progress_json,
    timings_json,
    usage_json,
)
from paceline.server.service import Choice
from paceline.server.sse import DONE
from paceline.server.stream import Step
from paceline.text.answer import AnswerParser, Said
from paceline.text.formats import Style, style_of
from paceline.text.tools import CallPart, Tool
from paceline.text.vocabulary import Vocabulary

ID_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@dataclass(frozen=True, slots=True)
class Rules:
    """How a text is read: the family's style, the tools on offer, the prompt before it and whether that
    has `opened` thoughts; `thoughts` come "apart" from the content, stay "kept" in it, or "both". What was `begun` at
    the prompt's end is read before the text, and said again with `echo`."""

    style: Style = field(default_factory=lambda: style_of(""))
    tools: tuple[Tool, ...] = ()
    prompt: str = ""
    opened: bool = False
    thoughts: str = "apart"
    logprobs: bool = False
    include_usage: bool = False
    verbose: bool = False
    begun: str = ""
    echo: bool = True

    def parser(self, thoughts: bool) -> AnswerParser:
        before = self.prompt.removesuffix(self.begun)
        return AnswerParser(self.style, self.tools, before, opened=self.opened, thoughts=thoughts)


@dataclass(frozen=True, slots=True)
class Delta:
    """What a step added to one choice's message."""

    index: int
    content: str = ""
    reasoning: str = ""
    calls: tuple[CallPart, ...] = ()
    pieces: tuple[Piece, ...] = ()
    finish: Finish | None = None
    reason: str | None = None
    timings: Timings = field(default_factory=Timings)

    @property
    def empty(self) -> bool:
        return not (self.content or self.reasoning or self.calls)


class Reader:
    """One choice's text, taken apart."""

    def __init__(self, rules: Rules) -> None:
        self._parser = rules.parser(thoughts=rules.thoughts == "apart")
        self._thoughts = rules.parser(thoughts=True) if rules.thoughts == "both" else None

    def begin(self, index: int, text: str) -> Delta:
        """Reads what the prompt has of the answer."""
        said = self._said(Step(index, text))
        return Delta(index, said.content, said.reasoning, said.calls)

    def read(self, step: Step) -> Delta:
        said = self._said(step)
        if step.finish is None:
            return Delta(step.index, said.content, said.reasoning, said.calls, step.pieces, timings=step.timings)
        called = self._parser.n_calls and step.finish.reason == "stop"
        reason = "tool_calls" if called else step.finish.reason
        return Delta(step.index, said.content, said.reasoning, said.calls, (), step.finish, reason)

    def _said(self, step: Step) -> Said:
        said = read(self._parser, step)
        if not self._thoughts:
            return said
        return Said(read(self._thoughts, step).reasoning, said.content, said.calls)


def read(parser: AnswerParser, step: Step) -> Said:
    said = parser.push(step.text) if step.text else Said()
    return said + parser.flush() if step.finish else said


class ChatReply:
    """One request's answer as chunks."""

    def __init__(self, model: str, vocab: Vocabulary, choices: Sequence[Choice], rules: Rules) -> None:
        self._vocab = vocab
        self.choices = choices
        self._rules = rules
        self._readers = [Reader(rules) for _ in choices]
        self._begun: set[int] = set()
        self._raw = [""] * len(choices)
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
            parts += [self._added(begun)] if self._rules.echo and not begun.empty else []
        if step.progress:
            n_prompt = len(self.choices[step.index].wanted.prompt)
            return [*parts, {**self._chunk(step.index, {}), "prompt_progress": progress_json(n_prompt, step.progress)}]
        delta = self._readers[step.index].read(step)
        self._raw[step.index] += step.text if self._rules.verbose else ""
        if not delta.finish or not delta.empty:
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
            message["tool_calls"] = [call_json(call) for call in delta.calls]
        chunk = self._chunk(delta.index, message)
        if self._rules.logprobs and (message or delta.pieces):
            chunk["choices"][0]["logprobs"] = {"content": self._logprobs(delta.pieces)}
        choice = self.choices[delta.index]
        if choice.wanted.timings_per_token and delta.pieces:
            chunk["timings"] = timings_json(delta.timings)
            chunk["paceline"] = pieces_json(delta.pieces)
        return chunk

    def _end(self, delta: Delta) -> dict[str, Any]:
        assert delta.finish
        chunk = self._chunk(delta.index, {}, delta.reason)
        chunk["timings"] = timings_json(delta.finish.timings)
        if self._rules.verbose:
            chunk["__verbose"] = self._verbose(delta.index, delta.finish)
        return chunk

    def _chunk(self, index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**self._head, "choices": [{"index": index, "delta": delta, "finish_reason": reason}]}

    def _logprobs(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        return logprobs_json(self._vocab, [piece for piece in pieces if piece.token.id not in self._vocab.eog])

    def _usage(self) -> dict[str, Any]:
        return usage_json(self.choices, len(self.choices))

    def _verbose(self, index: int, finish: Finish) -> dict[str, Any]:
        """What the model read and wrote, as it is, for people who look for a fault."""
        wanted, generation = self.choices[index].wanted, self.choices[index].generation
        pieces = [self._vocab.render(token, special=True) for token in wanted.prompt]
        return {
            "index": index,
            "prompt": b"".join(pieces).decode(errors="replace"),
            "content": self._raw[index],
            "id_slot": generation.slot,
            "stop": True,
            "model": self._head["model"],
            "tokens_predicted": finish.timings.predicted_n,
            "tokens_evaluated": len(wanted.prompt),
            "tokens_cached": finish.timings.cache_n,
            "generation_settings": settings_json(wanted),
            "has_new_line": "\n" in self._raw[index],
            "stop_type": "limit" if finish.reason == "length" else "word" if finish.stop else "eos",
            "stopping_word": finish.stop or "",
            "timings": timings_json(finish.timings),
        }

    # -- the fold

    def whole(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        messages = [FoldedChat() for _ in self.choices]
        more: dict[str, Any] = {}
        for part in parts:
            more |= {name: part[name] for name in ("timings", "__verbose") if name in part}
            for choice in part["choices"]:
                messages[choice["index"]].add(choice)
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [message.choice(index) for index, message in enumerate(messages)],
            "usage": self._usage(),
            **more,
        }


@dataclass(slots=True)
class FoldedChat:
    """Chunks of one choice, put together."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    arguments: list[list[str]] = field(default_factory=list)
    logprobs: list[dict[str, Any]] | None = None
    reason: str | None = None

    def add(self, choice: dict[str, Any]) -> None:
        delta = choice["delta"]
        self.content.append(delta.get("content") or "")
        self.reasoning.append(delta.get("reasoning_content", ""))
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                self.calls.append(call)
                self.arguments.append([])
            self.arguments[call["index"]].append(call["function"]["arguments"])
        self.reason = choice["finish_reason"] or self.reason
        if "logprobs" in choice:
            self.logprobs = [] if self.logprobs is None else self.logprobs
            self.logprobs += choice["logprobs"]["content"]

    def choice(self, index: int) -> dict[str, Any]:
        content, reasoning = "".join(self.content), "".join(self.reasoning)
        message: dict[str, Any] = {"role": "assistant", "content": content or ("" if not self.calls else None)}
        if reasoning:
            message["reasoning_content"] = reasoning
        if self.calls:
            message["tool_calls"] = [whole_call(*each) for each in zip(self.calls, self.arguments, strict=True)]
        logprobs = None if self.logprobs is None else {"content": self.logprobs}
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": self.reason}


def whole_call(call: dict[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    function = {"name": call["function"]["name"], "arguments": "".join(arguments)}
    return {"id": call["id"], "type": "function", "function": function}


def worth_sending(chunk: dict[str, Any]) -> bool:
    """A step whose text is all held back says nothing, unless figures come with it."""
    if not chunk["choices"] or "timings" in chunk:
        return True
    choice = chunk["choices"][0]
    return bool(choice["delta"] or choice["finish_reason"] or "logprobs" in choice)


def call_json(call: CallPart) -> dict[str, Any]:
    """The first part of a call has its id and name; the rest is arguments."""
    if not call.name:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": call.index, "id": call.id or call_id(), "type": "function", "function": function}


def call_id() -> str:
    """Nine letters: some templates insist on that many."""
    return "".join(ID_LETTERS[byte % len(ID_LETTERS)] for byte in os.urandom(9))
