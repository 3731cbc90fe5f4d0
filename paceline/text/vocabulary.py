"""A vocabulary as text work sees it: the bytes of each token. Data only; the tokenizer is elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import msgspec


class Vocabulary(Protocol):
    """What texts need of a vocabulary."""

    bos: int
    eos: int
    add_bos: bool

    @property
    def n_tokens(self) -> int:
        """How many there are."""

    @property
    def eog(self) -> frozenset[int]:
        """Tokens that end a generation."""

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; control tokens stand for none."""

    def render(self, token: int, *, special: bool) -> bytes:
        """`special` spells control tokens out, as `<|im_end|>`."""

    @property
    def kind(self) -> int:
        """Which sort of tokenizer it belongs to, by libllama's number."""


class VocabularyTable(msgspec.Struct, dict=True):
    """All of a vocabulary, for a process without the model. `spelled` has the tokens that are spelled out otherwise."""

    pieces: list[bytes]
    spelled: dict[int, bytes]
    ends: list[int]
    bos: int
    eos: int
    add_bos: bool
    kind: int

    @property
    def n_tokens(self) -> int:
        return len(self.pieces)

    @cached_property
    def eog(self) -> frozenset[int]:
        return frozenset(self.ends)

    def piece(self, token: int) -> bytes:
        return self.pieces[token]

    def render(self, token: int, *, special: bool) -> bytes:
        return self.spelled.get(token, self.pieces[token]) if special else self.pieces[token]


def spelling(vocab: Vocabulary, spelled: Sequence[int]) -> Callable[[int], bytes]:
    """The bytes of tokens in a text in which these control tokens are spelled out."""
    if not spelled:
        return vocab.piece
    texts = {token: vocab.render(token, special=True) for token in spelled}
    return lambda token: texts[token] if token in texts else vocab.piece(token)


def table_of(vocab: Vocabulary) -> VocabularyTable:
    pieces = [vocab.render(token, special=False) for token in range(vocab.n_tokens)]
    spelled = {
        token: text for token, piece in enumerate(pieces) if (text := vocab.render(token, special=True)) != piece
    }
    return VocabularyTable(pieces, spelled, sorted(vocab.eog), vocab.bos, vocab.eos, vocab.add_bos, vocab.kind)
