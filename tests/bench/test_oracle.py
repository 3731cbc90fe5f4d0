from __future__ import annotations

from paceline.bench.oracle import Oracle
from paceline.drafters.base import DraftRequest

PROMPT, ANSWER = [1, 2, 3], [4, 5, 6, 7, 8]


def drafted(tokens: list[int], n_max: int = 16, ahead: tuple[int, ...] = ()) -> list[int]:
    oracle = Oracle()
    oracle.learn(PROMPT, ANSWER)
    oracle.begin(0, PROMPT)
    draft = oracle.draft([DraftRequest(0, tokens, n_max, ahead=ahead)])[0]
    assert draft.confidence == [1.0] * len(draft)
    return draft.tokens


def test_it_knows_the_rest() -> None:
    assert drafted(PROMPT) == ANSWER
    assert drafted([*PROMPT, 4, 5]) == [6, 7, 8]
    assert drafted([*PROMPT, 4], n_max=2) == [5, 6]
    assert drafted([*PROMPT, 4], ahead=(5,)) == [6, 7, 8]


def test_it_is_silent_where_the_text_parts_or_ends() -> None:
    assert drafted([*PROMPT, 4, 9]) == []
    assert drafted([*PROMPT, *ANSWER]) == []


def test_a_prompt_it_was_not_told_of() -> None:
    oracle = Oracle()
    oracle.learn(PROMPT, ANSWER)
    oracle.begin(0, [9, 9])
    assert oracle.draft([DraftRequest(0, [9, 9, 4], 8), DraftRequest(1, PROMPT, 8)])[0].tokens == []


def test_of_several_answers_it_follows_the_one_that_is_being_given() -> None:
    oracle = Oracle()
    oracle.learn(PROMPT, ANSWER)
    oracle.learn(PROMPT, [4, 5, 9, 9])
    oracle.begin(0, PROMPT)

    def rest(*said: int) -> list[int]:
        return oracle.draft([DraftRequest(0, [*PROMPT, *said], 16)])[0].tokens

    assert rest(4) == [5, 9, 9], "the newest"
    assert rest(4, 5, 6) == [7, 8]
    oracle.forget()
    oracle.end(0, PROMPT)
    oracle.begin(0, PROMPT)
    assert rest(4) == []
