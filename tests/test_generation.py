"""A running request as those see it who take what has come, without waiting."""

from __future__ import annotations

import asyncio

import pytest

from paceline.config import SamplingParams
from paceline.engine.request import Emitted, Failed, Finished, Request, Timings, Token, Tokens
from paceline.errors import EngineDied
from paceline.generation import Generation
from paceline.text.vocabulary import VocabularyTable

VOCABULARY = VocabularyTable([b"a", b"b", b"c"], {}, [], 0, 0, add_bos=False, kind=2)


def generation() -> Generation:
    return Generation(Request(id=1, prompt=(Tokens([0]),), sampling=SamplingParams()), VOCABULARY, lambda id: None)


def test_what_was_written_before_an_error_is_not_lost() -> None:
    running = generation()
    for event in (Emitted((Token(1),)), Emitted((Token(2),)), Failed("EngineDied", "gone", Timings())):
        running.on_event(event)
    assert [piece.token.id for chunk in running.take() for piece in chunk.pieces] == [1, 2]
    with pytest.raises(EngineDied, match="gone"):
        running.take()


def test_each_step_keeps_its_own_timings() -> None:
    running = generation()
    for n in (1, 2):
        running.on_event(Emitted((Token(n),), Timings(predicted_n=n, predicted_ms=10.0 * n)))
    assert [chunk.timings.predicted_n for chunk in running.take()] == [1, 2]


def test_it_is_heard_when_everything_came_at_once() -> None:
    async def read(running: Generation) -> list[int]:
        found: list[int] = []
        try:
            async for chunk in running:
                found += [piece.token.id for piece in chunk.pieces]
        except EngineDied:
            found.append(-1)
        return found

    running = generation()
    for event in (Emitted((Token(1),)), Failed("EngineDied", "gone", Timings())):
        running.on_event(event)
    assert asyncio.run(read(running)) == [1, -1]
    running = generation()
    for end in (Emitted((Token(1),)), Emitted((Token(2),)), Finished("stop")):
        running.on_event(end)
    assert asyncio.run(read(running)) == [1, 2]
