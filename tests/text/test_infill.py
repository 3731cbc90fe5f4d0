"""Filling gaps: which tokens a model has for it, what has room, and in which order it comes."""

from __future__ import annotations

import pytest

from paceline.text.infill import File, FimTokens, Gap, Room, files_prompt, fim_tokens, infill_prompt

FIM = FimTokens(1, 2, 3)
SEVERAL = FimTokens(1, 2, 3, 4, 5)


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def test_tokens_of_the_file_come_before_spellings() -> None:
    def spelled(text: str) -> int:
        return {"<PRE>": 7, "<SUF>": 8, "<MID>": 9}.get(text, -1)

    assert fim_tokens((1, 2, 3, -1, -1), spelled) == FIM
    assert fim_tokens((-1, -1, -1, -1, -1), spelled) == FimTokens(7, 8, 9)
    assert fim_tokens((1, 2, -1, -1, -1), spelled) == FimTokens(7, 8, 9)
    assert not fim_tokens((-1, 2, 3, 4, 5), lambda _: -1).complete


def test_a_slot_is_divided_as_llama_server_does() -> None:
    assert Room.of(2048, 1024, 64) == Room(1024, 896)
    assert Room.of(8192, 2048, 128) == Room(2048, 5888)
    assert Room.of(1024, 2048, 64) == Room(672, 224)


@pytest.mark.parametrize("n_predict", [None, 0, 1, 64, 10**6])
@pytest.mark.parametrize("n_batch", [2, 32, 2048])
@pytest.mark.parametrize("n_ctx", [32, 64, 1000, 40_000])
def test_whatever_comes_there_is_room_for_it_and_an_answer(n_ctx: int, n_batch: int, n_predict: int | None) -> None:
    room = Room.of(n_ctx, n_batch, n_predict)
    long = [65] * 100_000
    prompt = infill_prompt(SEVERAL, Gap(long, long, []), long, room, bos=9)
    assert len(prompt) < n_ctx - 2


def test_what_is_far_from_the_gap_is_left_out() -> None:
    gap = Gap(letters("0123456789abcdef"), letters("stuvwxyz"), letters("g"))
    assert infill_prompt(FIM, gap, [], Room(100, 0)) == [1, *letters("0123456789abcdefg"), 2, *letters("stuvwxyz"), 3]
    cut = infill_prompt(FIM, gap, letters("files"), Room(20, 3), bos=9)
    assert cut == [*letters("les"), 9, 1, *letters("123456789abcdefg"), 2, *letters("st"), 3]
    turned = infill_prompt(FIM, gap, [], Room(20, 0), suffix_first=True)
    assert turned == [2, *letters("st"), 1, *letters("123456789abcdefg"), 3]


def test_other_files_stand_before_the_gap() -> None:
    files = [File("a.py", "one"), File("b.py", "two")]
    several = files_prompt(SEVERAL, files, letters, 100)
    names = [4, *letters("myproject\n"), 5, *letters("a.py\none"), 5, *letters("b.py\ntwo"), 5, *letters("filename\n")]
    assert several == names
    assert files_prompt(FIM, files, letters, 100) == letters("\n\n--- snippet ---\n\none\n\n--- snippet ---\n\ntwo")


def test_files_that_have_no_room_are_not_read() -> None:
    read: list[str] = []

    def tokenize(text: str) -> list[int]:
        read.append(text)
        return letters(text)

    files_prompt(FIM, [File(f"{i}", "x" * 50) for i in range(1000)], tokenize, 100)
    assert len(read) < 10
