"""An interactive chat: the model's own template, history kept. Works on a terminal and on a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from paceline.cli.prompts import decode
from paceline.cli.report import Answer
from paceline.cli.tint import Screen
from paceline.errors import RequestError

if TYPE_CHECKING:
    from paceline import Generation

Message = dict[str, str]
Ask = Callable[[list[Message]], "Generation"]
Say = Callable[[str], None]

GREETING = "/clear forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer"


class Chat:
    """Turns of a conversation. `ask` starts an answer to a list of messages, `say` tells the user on the side."""

    def __init__(self, ask: Ask, screen: Screen, say: Say, system: str | None = None) -> None:
        self.ask = ask
        self.screen = screen
        self.say = say
        self.opening: list[Message] = [{"role": "system", "content": system}] if system else []
        self.messages = list(self.opening)
        self.answers: list[Answer] = []

    def run(self, lines: Iterator[str], *, single_turn: bool = False) -> None:
        """Answer line after line until they end, or /exit."""
        for line in lines:
            command = line.strip()
            if command == "/exit":
                return
            if command == "/clear":
                self.messages = list(self.opening)
                self.say("forgotten")
            elif command.startswith("/") and " " not in command and command[1:].isalpha():
                self.say(f"unknown command {command}; {GREETING}")
            elif command:
                self.turn(line)
                if single_turn:
                    return

    def turn(self, text: str) -> None:
        """One question and its answer. A question that cannot be served is taken back; the chat goes on."""
        self.messages.append({"role": "user", "content": text})
        try:
            answer = self.listen(self.ask(self.messages))
        except RequestError as error:
            self.messages.pop()
            self.screen.end_line()
            self.say(f"{error}; /clear starts afresh")
            return
        self.messages.append({"role": "assistant", "content": answer.text})
        self.answers.append(answer)

    def listen(self, generation: Generation) -> Answer:
        """Show the answer as it comes; Ctrl-C ends it early and keeps what was said, a second one leaves."""
        answer = Answer()
        try:
            self.follow(generation, answer)
        except KeyboardInterrupt:
            generation.cancel()
            self.follow(generation, answer)
        self.screen.end_line()
        answer.end(generation.finish)
        return answer

    def follow(self, generation: Generation, answer: Answer) -> None:
        for chunk in generation:
            answer.add(chunk)
            self.screen.show(chunk)


def typed_lines(say: Say) -> Iterator[str]:
    """What the user types on a terminal, until Ctrl-D."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  arrow keys and history in input()
    while True:
        try:
            yield input("> ")
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            say(f"\n{GREETING}")


def piped_lines() -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, start=1):
        yield decode(line, f"line {number} of the input").rstrip("\r\n")
