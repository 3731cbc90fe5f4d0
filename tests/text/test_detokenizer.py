from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from paceline.text.detokenizer import Detokenizer

# Random bytes hardly ever form a multi-byte character: mix in whole ones, cut ones, surrogates and overlong forms.
ODD = [
    b"\xe2\x82\xac",
    b"\xf0\x9f\x98\x80",
    b"\xf0\x9f",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\xf5",
    b"\xef\xbb\xbf",
]
PIECES = st.lists(st.one_of(st.binary(max_size=4), st.sampled_from(ODD), st.text(max_size=2).map(str.encode)))


def pushed(pieces: list[bytes]) -> list[str]:
    detokenizer = Detokenizer(pieces.__getitem__)
    return [detokenizer.push(token) for token in range(len(pieces))] + [detokenizer.flush()]


@given(PIECES)
@example([b"\xf0", b"\x9f", b"\x98", b"\x80"])
@example([b"\xe2\x82", b"A"])
def test_pieces_joined_are_the_whole_decoded(pieces: list[bytes]) -> None:
    assert "".join(pushed(pieces)) == b"".join(pieces).decode("utf-8", "replace")


@given(PIECES, st.integers(0, 20))
def test_push_all_is_many_pushes(pieces: list[bytes], cut: int) -> None:
    detokenizer = Detokenizer(pieces.__getitem__)
    tokens = range(len(pieces))
    texts = [detokenizer.push_all(tokens[:cut]), detokenizer.push_all(tokens[cut:]), detokenizer.flush()]
    assert "".join(texts) == b"".join(pieces).decode("utf-8", "replace")


@given(st.text(max_size=20))
def test_valid_text_is_never_shown_half(text: str) -> None:
    pieces = [bytes([byte]) for byte in text.encode()]
    assert pushed(pieces) == [text[n] if done else "" for n, done in _completed(text)] + [""]


def _completed(text: str) -> list[tuple[int, bool]]:
    """For every byte: which character it belongs to, and whether it is its last."""
    sizes = [len(char.encode()) for char in text]
    return [(n, k == size - 1) for n, size in enumerate(sizes) for k in range(size)]


def test_a_character_over_two_tokens_waits_for_the_second() -> None:
    pieces = [b"caf\xc3", b"\xa9!"]
    detokenizer = Detokenizer(pieces.__getitem__)
    assert detokenizer.push(0) == "caf"
    assert detokenizer.pending == b"\xc3"
    assert detokenizer.push(1) == "é!"
    assert detokenizer.pending == b""


def test_a_broken_off_character_is_replaced_at_the_end_and_forgotten() -> None:
    pieces = [b"\xf0\x9f\x98", b"ok"]
    detokenizer = Detokenizer(pieces.__getitem__)
    assert detokenizer.push(0) == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.push(1) == "ok"
    assert detokenizer.flush() == ""


def test_a_byte_order_mark_is_text() -> None:
    assert "".join(pushed([b"\xef\xbb", b"\xbfhi"])) == "\ufeffhi"
