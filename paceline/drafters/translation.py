"""How two vocabularies are related, and what a token of one is in the other. Knows vocabularies, not contexts.

Most drafts share the target's token ids, or all but a few of them. With the others the target's tokens become text and
the text the draft's tokens, and back (`segments.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from typing import Protocol

from paceline.drafters.segments import Dictionary
from paceline.errors import VocabMismatch
from paceline.llama.model import Vocab

PADDING = 128  # tokens at the end that one of two vocabularies may have more, and is still the same
FEW = 50  # one token in so many may differ
BROKEN = re.compile("([\udc80-\udcff])")  # bytes that are no text, as Python decodes them
N_WORDS = 65536  # whose translation is kept
Replace = Sequence[tuple[str, str]]  # texts of the target, and what they are for the draft


class Relation(Enum):
    """SAME: token ids mean the same to both. NEAR: but for a few. FOREIGN: drafts have to be translated."""

    SAME = "same"
    NEAR = "nearly the same"
    FOREIGN = "another one: translated"


class SpelledVocab(Protocol):
    """What of a vocabulary tells how it is related to another; a file's header has it too."""

    n_tokens: int

    @property
    def kind(self) -> object: ...
    def text(self, token: int) -> bytes: ...


def relation(target: SpelledVocab, draft: SpelledVocab) -> Relation:
    """Takes a microsecond for each token."""
    if target.kind != draft.kind:
        return Relation.FOREIGN
    n_common, n_more = min(target.n_tokens, draft.n_tokens), abs(target.n_tokens - draft.n_tokens)
    n_unlike = len(unlike(target, draft, n_common // FEW + 1))
    if n_unlike > n_common // FEW or n_more > max(PADDING, n_common // FEW):
        return Relation.FOREIGN
    return Relation.NEAR if n_unlike or n_more > PADDING else Relation.SAME


def unlike(target: SpelledVocab, draft: SpelledVocab, n_most: int | None = None) -> list[int]:
    """Ids that both know and spell differently; the first `n_most` of them."""
    found: list[int] = []
    for token in range(min(target.n_tokens, draft.n_tokens)):
        if target.text(token) != draft.text(token):
            found.append(token)
            if len(found) == n_most:
                break
    return found


def check_vocab(target: Vocab, draft: Vocab) -> None:
    """Token ids must mean the same to both; say where they do not."""
    if target.kind != draft.kind:
        raise VocabMismatch(f"target and draft have different kinds of tokenizer ({target.kind} and {draft.kind})")
    if abs(target.n_tokens - draft.n_tokens) > PADDING:
        raise VocabMismatch(f"target has {target.n_tokens} tokens and draft {draft.n_tokens}: not one vocabulary")
    for name in ("add_bos", "add_eos", "bos", "eos"):
        ours, theirs = getattr(target, name), getattr(draft, name)
        if ours != theirs and not (name in ("bos", "eos") and not getattr(target, f"add_{name}")):
            raise VocabMismatch(f"target and draft differ in {name}: {ours} and {theirs}")
    for token in unlike(target, draft, 1):
        ours, theirs = (v.text(token).decode("utf-8", "replace") for v in (target, draft))
        raise VocabMismatch(f"token {token} is {ours!r} for the target and {theirs!r} for the draft")


# -- what a token or a text of one is in the other


def reads(target: Vocab, draft: Vocab) -> dict[int, int]:
    """For vocabularies that are nearly the same: what the draft reads in place of ids that mean something else to it,
    or nothing. A token of the same role or spelling, else the first of those that spell it."""
    tokenize, found = tokenizer(draft), counterparts(target, draft)
    strange = [*unlike(target, draft), *range(draft.n_tokens, target.n_tokens)]
    spelled = {token: target.render(token, special=True) for token in strange if token not in found}
    return {token: found[token] if token in found else first(tokenize(spelled[token])) for token in strange}


def first(tokens: Sequence[int]) -> int:
    return tokens[0] if tokens else 0


def dictionaries(target: Vocab, draft: Vocab, replace: Replace = ()) -> tuple[Dictionary, Dictionary]:
    """From the target's tokens to the draft's, and back."""
    to_draft = [(ours.encode(), theirs.encode()) for ours, theirs in replace]
    to_target = [(theirs, ours) for ours, theirs in to_draft]
    opening = (draft.bos,) if draft.add_bos and draft.bos >= 0 else ()
    return dictionary(target, draft, to_draft, opening), dictionary(draft, target, to_target)


def dictionary(
    source: Vocab, other: Vocab, replace: Sequence[tuple[bytes, bytes]], opening: Sequence[int] = ()
) -> Dictionary:
    """Control tokens that have no counterpart are read as they are spelled. Those that occur in texts to replace are
    phrases like these. What begins every text of one vocabulary is nothing in the other, which has its own
    `opening`."""
    tokenize = tokenizer(other)
    phrases: dict[bytes, Sequence[int]] = {ours: tokenize(theirs) for ours, theirs in replace if ours}
    signs: dict[int, tuple[int, ...]] = {
        token: (counterpart,) for token, counterpart in counterparts(source, other).items()
    }
    if source.add_bos:
        signs[source.bos] = ()
    spelled = {token: source.render(token, special=True) for token in source.control}
    for token, text in spelled.items():
        if token in signs and any(text in phrase for phrase in phrases):
            phrases = {text: signs.pop(token)} | phrases
    spelled = {token: text for token, text in spelled.items() if token not in signs}

    def spell(token: int) -> bytes:
        return spelled[token] if token in spelled else source.piece(token)

    return Dictionary(spell, tokenize, signs, phrases, opening)


def counterparts(source: Vocab, other: Vocab) -> dict[int, int]:
    """Control tokens of one vocabulary and the other's of the same spelling or role."""
    spelled = {other.text(token): token for token in other.control}
    end = other.eos if other.eos >= 0 else other.eot
    roles = dict.fromkeys(source.eog, end)
    roles[source.eot] = other.eot if other.eot >= 0 else end
    roles[source.eos] = end
    same = {token: spelled[source.text(token)] for token in source.control if source.text(token) in spelled}
    return {token: found for token, found in (roles | same).items() if token >= 0 and found >= 0}


def tokenizer(vocab: Vocab) -> Callable[[bytes], Sequence[int]]:
    """A piece of text as its tokens, which are kept for the next time."""
    known: dict[bytes, Sequence[int]] = {}
    prefixes = join(vocab, spells(vocab, b"a")) == b" a"
    single = cache(
        lambda: {vocab.piece(token): token for token in range(vocab.n_tokens) if len(vocab.piece(token)) == 1}
    )

    def whole(piece: bytes) -> list[int]:
        return without_prefix(vocab, piece) if prefixes else spells(vocab, piece)

    def spelled(piece: bytes) -> list[int]:
        """Bytes that are no text one by one: libllama would read something else."""
        text = "" if piece.isascii() else piece.decode("utf-8", "surrogateescape")
        if not BROKEN.search(text):
            return whole(piece)
        parts = [part.encode("utf-8", "surrogateescape") for part in BROKEN.split(text) if part]
        found = ([single()[part]] if part in single() else whole(part) for part in parts)
        return [token for tokens in found for token in tokens]

    def tokenize(piece: bytes) -> Sequence[int]:
        tokens = known.get(piece)
        if tokens is None:
            if len(known) >= N_WORDS:
                known.clear()
            tokens = known[piece] = tuple(spelled(piece))
        return tokens

    return tokenize


def without_prefix(vocab: Vocab, piece: bytes) -> list[int]:
    """Sentencepiece puts a blank before what it takes for the beginning of a text: give it one, or take it away."""
    if piece.startswith(b" ") and len(piece) > 1:
        return spells(vocab, piece[1:])
    tokens = spells(vocab, b"\n" + piece)
    before = b""
    for n, token in enumerate(tokens):
        if before == b" \n":
            return tokens[n:]
        before += vocab.piece(token)
    return spells(vocab, piece)


def spells(vocab: Vocab, text: bytes) -> list[int]:
    return vocab.tokenize_bytes(text, parse_special=True)


def join(vocab: Vocab, tokens: Sequence[int]) -> bytes:
    return b"".join(vocab.piece(token) for token in tokens)
