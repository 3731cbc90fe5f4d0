"""A text in one vocabulary, as tokens of another: random texts, random vocabularies, no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.drafters.segments import LONGEST, MARK_EVERY, Dictionary, Rendering, Translation, n_split

TEXTS = [
    "The fox couldn't cross the river, so it went home.",
    "def area(radius):\n    return 3.14159 * radius ** 2\n\n\nprint(area(2))  # π",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich 🦊🦊🏽‍🦱 …",
    "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。" * 3,
    "<think>yes</think> <|im_end|>",
    "a" * 200,
]
SIGN, OWN_SIGN = 1000, 2000  # no text: one of the vocabulary that is read, one of ours


class Words:
    """A vocabulary of all bytes and some words, the longest of which is taken first."""

    def __init__(self, words: Sequence[bytes], first: int = 0) -> None:
        self.pieces = [*(bytes([byte]) for byte in range(256)), *dict.fromkeys(word for word in words if len(word) > 1)]
        self.first = first
        self.ids = {piece: first + i for i, piece in enumerate(self.pieces)}
        self.longest = max(map(len, self.pieces))

    def spell(self, token: int) -> bytes:
        return self.pieces[token - self.first]

    def tokenize(self, text: bytes) -> list[int]:
        tokens, start = [], 0
        while start < len(text):
            pieces = (text[start : start + n] for n in range(self.longest, 0, -1))
            tokens.append(next(self.ids[piece] for piece in pieces if piece in self.ids))
            start += len(self.spell(tokens[-1]))
        return tokens

    def join(self, tokens: Sequence[int]) -> bytes:
        return b"".join(b"\0" if token in (SIGN, OWN_SIGN) else self.spell(token) for token in tokens)


texts = st.one_of(st.sampled_from(TEXTS).map(str.encode), st.text().map(str.encode), st.binary(max_size=300))
vocabularies = st.lists(st.binary(min_size=2, max_size=6), max_size=12)


def words_of(text: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Slices of the text, which are words that occur in it."""
    return [text[cut % (len(text) + 1) :][:4] for cut in cuts]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Dictionary, Words, Words, list[int]]:
    """A text in the tokens of one vocabulary, signs among them, and a dictionary for another, perhaps with phrases."""
    text = draw(texts)
    cuts = st.lists(st.integers(0, 300), max_size=12)
    source, other = (Words(words_of(text, draw(cuts)) + draw(vocabularies), first) for first in (0, 5000))
    tokens = source.tokenize(text)
    for place in draw(st.lists(st.integers(0, 300), max_size=3)):
        tokens.insert(place % (len(tokens) + 1), SIGN)
    replaced = words_of(text, draw(st.lists(st.integers(0, 300), max_size=3)))
    phrases = {phrase: other.tokenize(b"<" + phrase[::-1] + b">") for phrase in replaced if phrase}
    found = Dictionary(source.spell, other.tokenize, {SIGN: (OWN_SIGN,)}, phrases, (OWN_SIGN,))
    return found, source, other, tokens


@settings(deadline=None)
@given(cases(), st.lists(st.integers(1, 40), max_size=20))
def test_however_a_text_is_read_the_translation_is_the_same(
    case: tuple[Dictionary, Words, Words, list[int]], steps: list[int]
) -> None:
    dictionary, _, _, tokens = case
    whole, grown = Translation(dictionary), Translation(dictionary)
    whole.read(tokens)
    start, closed = 0, list[int]()
    for step in [*steps, len(tokens)]:
        grown.read(tokens[start : start + step])
        start += step
        until_here = Translation(dictionary)
        until_here.read(tokens[:start])
        assert (grown.tokens, grown.n_closed, grown.pending) == (
            until_here.tokens,
            until_here.n_closed,
            until_here.pending,
        )
        assert grown.tokens[: len(closed)] == closed, "what is closed stays"
        closed = grown.tokens[: grown.n_closed]
    assert grown.tokens == whole.tokens


@settings(deadline=None)
@given(cases())
def test_nothing_of_a_text_is_lost(case: tuple[Dictionary, Words, Words, list[int]]) -> None:
    dictionary, source, other, tokens = case
    translation = Translation(replace(dictionary, phrases={}, opening=()))
    translation.read(tokens)
    assert other.join(translation.tokens) + translation.pending == source.join(tokens)


@settings(deadline=None)
@given(cases(), st.lists(st.integers(0, 400), min_size=1, max_size=8))
def test_a_text_that_changed_is_translated_like_a_new_one(
    case: tuple[Dictionary, Words, Words, list[int]], places: list[int]
) -> None:
    dictionary, source, _, tokens = case
    translation = Translation(dictionary)
    translation.read(tokens)
    for place in places:
        changed = [*tokens[: place % (len(tokens) + 1)], *source.tokenize(b" then another"[: place % 12])]
        translation.rewind(translation.n_common(changed))
        translation.read(changed[len(translation.source) :])
        fresh = Translation(dictionary)
        fresh.read(changed)
        assert (translation.source, translation.tokens, translation.pending) == (changed, fresh.tokens, fresh.pending)


@pytest.mark.parametrize("text", TEXTS)
def test_a_step_reads_what_is_new_and_the_open_word_only(text: str) -> None:
    source, other = Words([]), Words([b" the", b"ing"])
    asked: list[bytes] = []

    def tokenize(piece: bytes) -> list[int]:
        asked.append(piece)
        return other.tokenize(piece)

    translation = Translation(Dictionary(source.spell, tokenize))
    translation.read(source.tokenize(text.encode() * 50))
    for token in source.tokenize(text.encode()):
        asked.clear()
        translation.read([token])
        assert sum(map(len, asked)) <= 2 * (LONGEST + 4)
    asked.clear()
    translation.rewind(len(translation.source) - 5)
    assert sum(map(len, asked)) <= MARK_EVERY + 2 * LONGEST


def test_words_are_cut_where_tokenizers_cut_them() -> None:
    def pieces(text: bytes) -> list[bytes]:
        return list(Dictionary(bytes, list).pieces(text, whole=False))

    assert pieces(b"The fox couldn't cross") == [b"The", b" fox", b" couldn't"]
    assert pieces(b"one.two(three)[4]\n\n  end, last") == [b"one", b".two", b"(three", b")[4", b"]\n\n  end", b","]
    assert pieces(b"a <think>b</think> c") == [b"a", b" <think>b", b"</think>"]
    assert pieces(b"x_1 = y") == [b"x_1", b" ="]


@pytest.mark.parametrize(("text", "n"), [("🦊", 4), ("é", 2), ("漢", 3), ("a", 1)])
def test_a_character_that_is_not_whole_waits(text: str, n: int) -> None:
    data = text.encode()
    assert [n_split(b"x" + data[:k]) for k in range(1, n)] == list(range(1, n))
    assert n_split(data) == 0
    words = Words([data])
    translation = Translation(Dictionary(words.spell, words.tokenize))
    for k, byte in enumerate(data, start=1):
        translation.read([byte])
        assert translation.pending == (data[:k] if k < n else b"")
    assert translation.tokens == words.tokenize(data)


# -- from a draft to the target's tokens


def rendering(draft: Words, target: Words, expected: bytes = b"", **more: object) -> Rendering:
    dictionary = replace(Dictionary(draft.spell, target.tokenize), **more)  # type: ignore[arg-type]
    return Rendering(dictionary, lambda token: len(target.spell(token)), expected)


def written(found: Rendering, draft: Words, *pieces: tuple[bytes, float]) -> list[tuple[int, float]]:
    for piece, sure in pieces:
        (token,) = draft.tokenize(piece)
        found.add(token, sure)
    return [found.token(i) for i in range(len(found.tokens))]


def test_a_token_is_as_sure_as_all_that_begin_in_it() -> None:
    draft, target = Words([b" he", b"llo", b" world"]), Words([b" hello", b" wor", b"ld"])
    found = written(rendering(draft, target), draft, (b" he", 0.5), (b"llo", 0.5), (b" world", 0.8))
    assert [target.spell(token) for token, _ in found] == [b" hello", b" wor", b"ld"]
    assert [sure for _, sure in found] == [0.25, 0.8, 0.8]


def test_a_word_is_closed_when_the_next_begins() -> None:
    draft, target = Words([b" he", b"llo", b" world"]), Words([b" hello", b" hel", b" world"])
    found = rendering(draft, target)
    written(found, draft, (b" he", 0.5))
    assert found.n_closed == 0
    written(found, draft, (b"llo", 0.5))
    assert found.n_closed == 0
    written(found, draft, (b" world", 0.5))
    assert [target.spell(token) for token in found.tokens[: found.n_closed]] == [b" hello"]


def test_a_draft_has_to_begin_with_the_bytes_that_are_written_already() -> None:
    fox, dog = "🦊".encode(), "🐶".encode()
    draft, target = Words([fox, dog]), Words([])
    found = rendering(draft, target, fox[:3])
    assert written(found, draft, (fox, 0.7)) == [(fox[3], 0.7)]
    wrong = rendering(draft, target, fox[:3])
    assert written(wrong, draft, (dog, 0.7)) == []
    assert not wrong.fits


def test_what_the_target_cannot_spell_ends_a_draft() -> None:
    draft, target = Words([b" a", b" b"]), Words([])
    found = rendering(draft, target, tokenize=lambda piece: target.tokenize(piece.replace(b"b", b"")))
    assert [token for token, _ in written(found, draft, (b" a", 0.9), (b" b", 0.9))] == [*b" a"]
    assert not found.fits


def test_phrases_and_signs_have_a_confidence_too() -> None:
    draft, target = Words([b"<one>", b" x"]), Words([b"<eins>"], 0)
    phrases = {b"<one>": target.tokenize(b"<eins>!")}
    found = rendering(draft, target, phrases=phrases, signs={SIGN: (7,)})
    pairs = written(found, draft, (b" x", 0.9), (b"<one>", 0.8))
    found.add(SIGN, 0.6)
    assert pairs[-2:] == [(target.tokenize(b"<eins>")[0], 0.8), (ord("!"), 0.8)]
    assert found.token(len(found.tokens) - 1) == (7, 0.6)
