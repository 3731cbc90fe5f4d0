"""A vocabulary written by hand: every byte, a few longer tokens, twins, an empty one, special ones."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.text.grammar import GrammarCompiler

MERGED = [b"name", b'"name"', b'": "', b'{"', b'": ', b", ", b"true", b"tr", b"  ", b' "', b"age", b'":', b"ab", b"abc"]
DOUBLE = b"abc"
SPECIAL_TEXT = [b"<s>", b"</s>", b"<|end|>", b"<tool>"]
TOKENS = [bytes([byte]) for byte in range(256)] + MERGED + [DOUBLE, b""] + SPECIAL_TEXT
N_TEXT = 256 + len(MERGED)
LONGEST_FIRST = sorted(range(256, N_TEXT), key=lambda token: -len(TOKENS[token]))
BOS, EOS, END, TOOL = range(len(TOKENS) - 4, len(TOKENS))


def tokenize(text: bytes) -> list[int]:
    """The longest token first, always."""
    tokens: list[int] = []
    while text:
        tokens.append(next((token for token in LONGEST_FIRST if text.startswith(TOKENS[token])), text[0]))
        text = text[len(TOKENS[tokens[-1]]) :]
    return tokens


def spell(tokens: Sequence[int]) -> bytes:
    return b"".join(TOKENS[token] for token in tokens)


COMPILER = GrammarCompiler(TOKENS, [EOS, END], [BOS, TOOL], tokenize)
