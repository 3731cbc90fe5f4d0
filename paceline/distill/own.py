"""The user's own requests: a file of questions, or a log of what was asked and answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError
from paceline.text.chat import ChatTemplate

EXPECTED = 'expected a JSON object with "messages", "turns" or "prompt"'
Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class OwnRequest:
    """Messages of a chat, or a prompt that stands as it is; and the answer, where one was recorded."""

    messages: tuple[Mapping[str, Any], ...] = ()
    text: str = ""
    answer: str = ""

    def rendered(self, template: ChatTemplate) -> str:
        return template.render(self.messages) if self.messages else self.text


def load(path: str) -> list[OwnRequest]:
    """A file of JSON lines; any other text is one question a line. Empty lines do not count."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot read prompts from {path}: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found += requests_of(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{path}, line {number}: {error}") from None
    if not found:
        raise ConfigError(f"{path} holds no prompts, so there is nothing to learn from it")
    return found


def requests_of(line: str) -> list[OwnRequest]:
    if not line.lstrip().startswith("{"):
        return [OwnRequest(messages=({"role": "user", "content": line.strip()},))]
    match json.loads(line):
        case {"messages": [_, *_] as messages} if all(isinstance(message, dict) for message in messages):
            return chat(messages)
        case {"turns": [str(text), *_]} if text.strip():
            return [OwnRequest(messages=({"role": "user", "content": text},))]
        case {"prompt": str(text), "answer": str(answer)} if text.strip():
            return [OwnRequest(text=text, answer=answer)]
        case {"prompt": str(text)} if text.strip():
            return [OwnRequest(text=text)]
    raise ValueError(EXPECTED)


def chat(messages: Messages) -> list[OwnRequest]:
    """Each answer with all that stood before it, as a server records them; and the question that is left open."""
    found = [
        OwnRequest(messages=tuple(messages[:place]), answer=message["content"])
        for place, message in enumerate(messages)
        if is_answer(message) and is_question(messages[:place])
    ]
    if not found or messages[-1].get("role") != "assistant":
        found.append(OwnRequest(messages=tuple(before_answer(messages))))
    return found


def is_answer(message: dict[str, Any]) -> bool:
    return message.get("role") == "assistant" and isinstance(message.get("content"), str) and bool(message["content"])


def is_question(messages: Messages) -> bool:
    """Somebody asked, and nobody has answered yet."""
    return any(message.get("role") == "user" for message in messages) and messages[-1].get("role") != "assistant"


def before_answer(messages: Messages) -> Messages:
    """A chat up to its last question."""
    while messages and messages[-1].get("role") == "assistant":
        messages = messages[:-1]
    if not messages:
        raise ValueError("a chat without a question")
    return messages
