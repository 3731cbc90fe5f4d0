"""The user's own prompts: a file of questions, or a log of requests. The target answers them itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError
from paceline.text.chat import ChatTemplate

EXPECTED = 'expected a JSON object with "messages", "turns" or "prompt"'


@dataclass(frozen=True, slots=True)
class OwnPrompt:
    """Messages of a chat, or a prompt that stands as it is."""

    messages: tuple[Mapping[str, Any], ...] = ()
    text: str = ""

    def rendered(self, template: ChatTemplate) -> str:
        return template.render(self.messages) if self.messages else self.text


def load(path: str) -> list[OwnPrompt]:
    """A file of JSON lines; any other text is one question a line. Empty lines do not count."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot read prompts from {path}: {error}") from None
    prompts = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                prompts.append(prompt_of(line))
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{path}, line {number}: {error}") from None
    if not prompts:
        raise ConfigError(f"{path} holds no prompts, so there is nothing to learn from it")
    return prompts


def prompt_of(line: str) -> OwnPrompt:
    if not line.lstrip().startswith("{"):
        return OwnPrompt(messages=({"role": "user", "content": line.strip()},))
    match json.loads(line):
        case {"messages": [_, *_] as messages} if all(isinstance(message, dict) for message in messages):
            return OwnPrompt(messages=tuple(before_answer(messages)))
        case {"turns": [str(text), *_]} if text.strip():
            return OwnPrompt(messages=({"role": "user", "content": text},))
        case {"prompt": str(text)} if text.strip():
            return OwnPrompt(text=text)
    raise ValueError(EXPECTED)


def before_answer(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A chat up to its last question."""
    while messages and messages[-1].get("role") == "assistant":
        messages = messages[:-1]
    if not messages:
        raise ValueError("a chat without a question")
    return messages
