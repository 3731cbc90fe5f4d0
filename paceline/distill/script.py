"""What each row of a round writes: turns, each with tokens that are given and then a text that the target writes.

Plain arrays, drawn by a seed: the writer on the device follows them without asking the host.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from paceline.distill.material import Material, Tokens
from paceline.errors import ConfigError


class TextKind(IntEnum):
    """Who wrote a token. GREEDY is an answer at temperature 0: what a draft is measured by."""

    GIVEN = 0
    SYSTEM = 1
    USER = 2
    DOCUMENT = 3
    ANSWER = 4
    GREEDY = 5


WEIGHTS = {
    TextKind.GIVEN: 0.0,
    TextKind.SYSTEM: 0.3,
    TextKind.USER: 0.4,
    TextKind.DOCUMENT: 0.6,
    TextKind.ANSWER: 1.0,
    TextKind.GREEDY: 1.0,
}
"""How much a draft should care: people wait for answers."""

ANSWERS = ((0.0, 0.55), (0.3, 0.15), (0.7, 0.2), (1.0, 0.1))
"""Temperatures of answers, and how often."""
QUESTIONS = ((0.8, 0.5), (1.0, 0.5))
FIRST_TURNS = (("bare", 0.12), ("opening", 0.16), ("task", 0.24), ("question", 0.24), ("passage", 0.24))
NEXT_TURNS = (("bare", 0.12), ("opening", 0.15), ("task", 0.3), ("question", 0.2), ("follow_up", 0.23))
SYSTEM_PROMPTS = (("none", 0.7), ("listed", 0.2), ("written", 0.1))
DOCUMENT_SHARE = 0.12
OWN_SHARE = 0.5
RECORDED_SHARE = 0.5
"""Of the user's requests that have an answer: those that keep it. The others are answered anew."""
UNSEEN_EVERY = 20
"""The last request of so many is kept for measuring."""
PEOPLE_SHARE = 0.75
"""Of chats: those in which people ask."""
Choice = TypeVar("Choice")
Number = TypeVar("Number", bound=np.generic)
N_TURNS = 4  # questions that are drawn; left alone for long, the target repeats itself


class ScriptTurn(NamedTuple):
    """`given`, then at most `limit` tokens of the target's own at this temperature, then turn number `then`. The last
    `n_recorded` given tokens count as if the target had just written them."""

    given: Tokens
    kind: TextKind
    temperature: float
    limit: int
    then: int
    n_recorded: int = 0


@dataclass(frozen=True, slots=True)
class Script:
    """All turns of all rows [rows, turns]; `given` holds every turn's given tokens, from `start` on so many."""

    given: npt.NDArray[np.int32]
    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    kind: npt.NDArray[np.uint8]
    temperature: npt.NDArray[np.float32]
    limit: npt.NDArray[np.int64]
    then: npt.NDArray[np.int64]
    recorded: npt.NDArray[np.int64]


class ScriptWriter:
    """Draws rows. `greedy` ones answer at temperature 0 only, for measuring."""

    def __init__(self, material: Material, length: int, *, greedy: bool = False) -> None:
        if not (material.chat or material.documents or material.requests):
            raise ConfigError("there is nothing to begin a text with")
        self.material = material
        self.length = length
        self.greedy = greedy
        prompts = material.unseen_prompts if greedy else material.prompts
        self.prompts = [messages for messages in prompts if sum(map(len, messages)) <= 3 * length // 4]
        n_seen = len(material.requests) - len(material.requests) // UNSEEN_EVERY
        unseen = material.requests[n_seen:] if greedy else []
        self.requests = unseen or material.requests[:n_seen]

    def script(self, n_rows: int, seed: str) -> Script:
        rng = random.Random(seed)
        rows = [self.row(rng) for _ in range(n_rows)]
        return packed(rows)

    def row(self, rng: random.Random) -> list[ScriptTurn]:
        if self.requests and rng.random() < OWN_SHARE:
            return self.own(rng)
        if not self.material.chat or (rng.random() < DOCUMENT_SHARE and not self.greedy):
            return self.document(rng)
        return self.chat(rng)

    def answer_temperature(self, rng: random.Random) -> float:
        return 0.0 if self.greedy else draw(ANSWERS, rng)

    def answer(self, given: Tokens, temperature: float, then: int) -> ScriptTurn:
        kind = TextKind.ANSWER if temperature else TextKind.GREEDY
        return ScriptTurn(given, kind, temperature, max(8, 5 * self.length // 12), then)

    def document(self, rng: random.Random) -> list[ScriptTurn]:
        """One after the other, until the row is full."""
        start, some = self.material.document_start, self.material.documents or [[]]
        temperature = self.answer_temperature(rng) if self.greedy else draw(QUESTIONS, rng)
        kind = TextKind.DOCUMENT if temperature else TextKind.GREEDY
        return [
            ScriptTurn(start + rng.choice(some), kind, temperature, self.length, (number + 1) % N_TURNS)
            for number in range(N_TURNS)
        ]

    def own(self, rng: random.Random) -> list[ScriptTurn]:
        """One of the user's requests and what the target asks itself then; without a template, one after the other."""
        temperature = self.answer_temperature(rng)
        if not self.material.chat:
            return [self.request(rng, temperature, (number + 1) % N_TURNS) for number in range(N_TURNS)]
        return [self.request(rng, temperature, 1), *self.made_up(rng, temperature, 1)]

    def request(self, rng: random.Random, temperature: float, then: int) -> ScriptTurn:
        """The end of the prompt where it is long, then what the target says, or what it said."""
        prompt, answer = rng.choice(self.requests)
        if answer and not self.greedy and rng.random() < RECORDED_SHARE:
            return self.recorded(rng, prompt, answer, then)
        return self.answer(prompt[-self.length // 2 :], temperature, then)

    def recorded(self, rng: random.Random, prompt: Tokens, answer: Tokens, then: int) -> ScriptTurn:
        """Some part of an answer that is longer than a row."""
        text, first = prompt + answer, max(0, len(prompt) - self.length // 2)
        given = text[rng.randint(first, max(first, len(text) - self.length)) :]
        return ScriptTurn(given, TextKind.ANSWER, 0.0, 0, then, min(len(answer), len(given)))

    def chat(self, rng: random.Random) -> list[ScriptTurn]:
        temperature = self.answer_temperature(rng)
        turns, given = self.opened(rng)
        people = self.people(rng) if self.prompts and rng.random() < PEOPLE_SHARE else []
        for number in range(N_TURNS):
            if people:
                asked = given + people[number] + self.material.chat["before_answer"]
                turns.append(self.answer(asked, temperature, len(turns) + 1))
            else:
                choices = NEXT_TURNS if number else FIRST_TURNS
                turns += self.exchange(rng, given, draw(choices, rng), temperature, len(turns))
            given = self.material.chat["between"]
        return [*turns, *self.made_up(rng, temperature, len(turns))]

    def people(self, rng: random.Random) -> list[Tokens]:
        """What one person asks, then another: some change the subject."""
        asked: list[Tokens] = []
        while len(asked) < N_TURNS:
            asked += rng.choice(self.prompts)
        return asked[:N_TURNS]

    def opened(self, rng: random.Random) -> tuple[list[ScriptTurn], Tokens]:
        """The system's turn, if any, and what stands before the first question."""
        chat, how = self.material.chat, draw(SYSTEM_PROMPTS, rng)
        if not chat["system"] or how == "none":
            return [], list(chat["before_user"])
        if how == "listed" and self.material.systems:
            return [], chat["system"] + rng.choice(self.material.systems) + chat["after_system"]
        return [ScriptTurn(chat["system"], TextKind.SYSTEM, draw(QUESTIONS, rng), 60, 1)], chat["after_system"]

    def exchange(
        self, rng: random.Random, given: Tokens, how: str, temperature: float, number: int
    ) -> list[ScriptTurn]:
        """A question and its answer, as turns from `number` on."""
        material, before_answer = self.material, self.material.chat["before_answer"]
        whole = {"question": material.questions, "follow_up": material.follow_ups}.get(how)
        if whole:
            return [self.answer(given + rng.choice(whole) + before_answer, temperature, number + 1)]
        begun = {"opening": material.openings, "task": material.tasks, "passage": material.passages}.get(how) or [[]]
        limit = self.length // (2 if how == "passage" else 4)
        asked = ScriptTurn(given + rng.choice(begun), TextKind.USER, draw(QUESTIONS, rng), limit, number + 1)
        return [asked, self.answer(before_answer, temperature, number + 2)]

    def made_up(self, rng: random.Random, temperature: float, number: int) -> list[ScriptTurn]:
        """Questions of the target's own and their answers, again and again."""
        asked, answered = self.exchange(rng, self.material.chat["between"], "bare", temperature, number)
        return [asked, answered._replace(then=number)]


def draw(choices: Sequence[tuple[Choice, float]], rng: random.Random) -> Choice:
    return rng.choices([choice for choice, _ in choices], [share for _, share in choices])[0]


def packed(rows: Sequence[Sequence[ScriptTurn]]) -> Script:
    """Rows of turns as arrays; shorter rows are filled up with turns nobody comes to."""
    n_turns = max(len(row) for row in rows)
    nothing = ScriptTurn([], TextKind.GIVEN, 0.0, 0, 0)
    turns = [turn for row in rows for turn in (*row, *[nothing] * (n_turns - len(row)))]

    def table(of: Callable[[ScriptTurn], float], kind: type[Number]) -> npt.NDArray[Number]:
        return np.array([of(turn) for turn in turns], dtype=kind).reshape(len(rows), n_turns)

    length = table(lambda turn: len(turn.given), np.int64)
    return Script(
        given=np.fromiter(chain.from_iterable(turn.given for turn in turns), np.int32),
        start=(length.cumsum() - length.ravel()).reshape(length.shape),
        length=length,
        kind=table(lambda turn: turn.kind, np.uint8),
        temperature=table(lambda turn: turn.temperature, np.float32),
        limit=table(lambda turn: turn.limit, np.int64),
        then=table(lambda turn: turn.then, np.int64),
        recorded=table(lambda turn: turn.n_recorded, np.int64),
    )
