"""Texts that are free first and bound later, over the small vocabulary."""

from __future__ import annotations

import pytest

from paceline.engine.request import Bounds
from paceline.text.guide import Guide
from tests.text.small_vocab import COMPILER, EOS, TOKENS, spell, tokenize

DIGITS = COMPILER.regex("[0-9]+!")
CLOSING = tuple(tokenize(b"</t>"))


def guide(bounds: Bounds, *, grammar: bool = True) -> Guide:
    return Guide(bounds, TOKENS.__getitem__, len(TOKENS), DIGITS.matcher() if grammar else None)


def write(guide: Guide, text: str) -> None:
    for token in tokenize(text.encode()):
        assert guide.allows(token), text
        guide.consume(token)


def is_free(guide: Guide) -> bool:
    return guide.mask() is None and guide.allows(ord("x")) and guide.allows(EOS) and guide.n_valid([65, 66]) == 2


def test_a_grammar_begins_after_its_mark() -> None:
    each = guide(Bounds("<t>", "</t>", after=("<call>",)))
    write(each, "I shall <call")
    assert is_free(each)
    write(each, ">")
    assert not each.allows(ord("x"))
    mask = each.mask()
    assert mask is not None
    assert {chr(token) for token in mask.nonzero()[0]} == set("0123456789")
    assert each.n_valid(tokenize(b"12x")) == 2
    write(each, "12!")
    assert each.allows(EOS)


def test_a_mark_in_thoughts_is_none() -> None:
    each = guide(Bounds("<t>", "</t>", after=("<call>",)))
    write(each, "<t>maybe <call>")
    assert is_free(each)
    write(each, "</t> so <call>")
    assert not each.allows(ord("x"))


def test_without_a_mark_it_begins_where_the_thoughts_end() -> None:
    each = guide(Bounds("<t>", "</t>", opened=True))
    write(each, "hm")
    assert is_free(each)
    write(each, "</t>")
    assert not each.allows(ord("x"))
    assert not guide(Bounds("<t>", "</t>")).allows(ord("<"))


def test_what_the_last_token_holds_beyond_the_mark_is_the_grammars() -> None:
    each = guide(Bounds(after=("na",)))
    write(each, "7 a")
    assert is_free(each)
    strange = guide(Bounds(after=("na",)))
    write(strange, "name")  # one token: "me" is no digit, so the text stays free
    assert is_free(strange)


@pytest.mark.parametrize("opened", [False, True])
def test_thoughts_are_closed_after_so_many_tokens(opened: bool) -> None:
    each = guide(Bounds("<t>", "</t>", opened=opened, n_thoughts=3, closing=CLOSING), grammar=False)
    write(each, "hmm" if opened else "\n<t>hmm")
    assert each.forced() == list(CLOSING)
    assert not each.allows(ord("x"))
    assert each.n_valid([*CLOSING[:2], 65]) == 2
    mask = each.mask()
    assert mask is not None
    assert mask.nonzero()[0].tolist() == [CLOSING[0]]
    for token in CLOSING:
        each.consume(token)
    assert is_free(each)


def test_no_thoughts_at_all() -> None:
    each = guide(Bounds("<t>", "</t>", opened=True, n_thoughts=0, closing=CLOSING))
    assert spell(each.forced()) == b"</t>"
    for token in CLOSING:
        each.consume(token)
    assert not each.allows(ord("x"))


def test_a_budget_does_not_cut_a_character() -> None:
    each = guide(Bounds("<t>", "</t>", opened=True, n_thoughts=1, closing=CLOSING), grammar=False)
    first, second = "é".encode()
    each.consume(first)
    assert is_free(each)
    each.consume(second)
    assert each.forced() == list(CLOSING)


def test_who_ends_in_time_is_left_alone() -> None:
    each = guide(Bounds("<t>", "</t>", opened=True, n_thoughts=9, closing=CLOSING), grammar=False)
    write(each, "a</t>and so on and on")
    assert is_free(each)
