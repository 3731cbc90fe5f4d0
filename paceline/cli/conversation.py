"""An interactive chat: the model's own template, history kept. Works on a terminal and on a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli.prompts import decode, read_text
from paceline.cli.report import Answer
from paceline.cli.tint import Screen
from paceline.errors import PromptError, RequestError

if TYPE_CHECKING:
    from paceline import Generation

Message = dict[str, str]
Ask = Callable[[list[Message]], "Generation"]
Say = Callable[[str], None]

GREETING = "/help lists the commands, /exit or Ctrl-D leaves, Ctrl-C stops an answer"
HELP = """\
/help           this list
/clear, /reset  forget the conversation
/regen          answer the last question again
/undo           take back the last question and its answer
/system TEXT    start afresh with this system message; without a text, with none
/read FILE      ask what a file says
/exit, /quit    leave; so does Ctrl-D

Ctrl-C stops an answer; what was said of it stays. Anything else is a question."""


class Chat:
    """Turns of a conversation. `ask` starts an answer to a list of messages, `say` tells the user on the side."""

    def __init__(self, ask: Ask, screen: Screen, say: Say, system: str | None = None) -> None:
        self.ask = ask
        self.screen = screen
        self.say = say
        self.opening = system_message(system)
        self.messages = list(self.opening)
        self.answers: list[Answer] = []
        self.commands: dict[str, Callable[[str], str | None]] = {
            "/help": self.help,
            "/clear": self.clear,
            "/reset": self.clear,
            "/regen": self.regen,
            "/undo": self.undo,
            "/system": self.system,
            "/read": self.read,
        }

    def run(self, lines: Iterator[str], *, single_turn: bool = False) -> None:
        """Answer line after line until they end, or /exit."""
        for line in lines:
            command, _, rest = line.strip().partition(" ")
            if command in ("/exit", "/quit"):
                return
            question: str | None = line
            if command in self.commands:
                question = self.commands[command](rest.strip())
            elif command.startswith("/") and not rest and command[1:].isalpha():
                self.say(f"unknown command {command}; /help lists them")
                continue
            if question and question.strip():
                self.turn(question)
                if single_turn:
                    return

    def help(self, _: str) -> None:
        self.say(HELP)

    def clear(self, _: str) -> None:
        self.messages = list(self.opening)
        self.say("forgotten")

    def regen(self, _: str) -> str | None:
        """The last question, to be asked again."""
        question = self.take_back()
        if question is None:
            self.say("nothing was asked yet")
        return question

    def undo(self, _: str) -> None:
        self.say("taken back" if self.take_back() else "nothing was asked yet")

    def take_back(self) -> str | None:
        if len(self.messages) <= len(self.opening):
            return None
        question = self.messages[-2]["content"]
        del self.messages[-2:]
        return question

    def system(self, text: str) -> None:
        self.opening = system_message(text)
        self.clear("")

    def read(self, path: str) -> str | None:
        """What the file says, to be asked. Where questions come from cannot be read as a file too."""
        if path in ("", "-"):
            self.say("/read wants the name of a file")
            return None
        try:
            return read_text(str(Path(path).expanduser()))
        except PromptError as error:
            self.say(str(error))
            return None

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


def system_message(text: str | None) -> list[Message]:
    return [{"role": "system", "content": text}] if text else []


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
