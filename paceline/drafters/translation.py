"""How two vocabularies are related, and what a token of one is in the other. Knows vocabularies, not contexts.

Most drafts share the target's token ids, or all but a few of them. With the others the target's tokens become text and
the text the draft's tokens, and back (`segments.py`).
"""

from __future__ import annotations

from enum import Enum

from paceline.errors import VocabMismatch
from paceline.llama.model import Vocab

PADDING = 128  # tokens at the end that one of two vocabularies may have more, and is still the same
FEW = 50  # one token in so many may differ


class Relation(Enum):
    """SAME: token ids mean the same to both. NEAR: but for a few. FOREIGN: drafts have to be translated."""

    SAME = "same"
    NEAR = "nearly the same"
    FOREIGN = "another one: translated"


def relation(target: Vocab, draft: Vocab) -> Relation:
    """Takes a microsecond for each token."""
    if target.kind != draft.kind:
        return Relation.FOREIGN
    n_common, n_more = min(target.n_tokens, draft.n_tokens), abs(target.n_tokens - draft.n_tokens)
    n_unlike = len(unlike(target, draft, n_common // FEW + 1))
    if n_unlike > n_common // FEW or n_more > max(PADDING, n_common // FEW):
        return Relation.FOREIGN
    return Relation.NEAR if n_unlike or n_more > PADDING else Relation.SAME


def unlike(target: Vocab, draft: Vocab, n_most: int | None = None) -> list[int]:
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
