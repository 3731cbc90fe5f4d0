"""The vocabulary of the story models: pieces as in SentencePiece's files, the earlier the sooner they are merged.

They were searched for (by adding and dropping pieces at random) until the prompts of llama.cpp's server tests had as many
tokens as those tests say they have: the tests that count tokens then mean something with files that can be made anywhere."""

from __future__ import annotations

import string

SPACE = "▁"
MERGED = """
▁y ▁t ▁a ▁bi ▁dol em om an st ▁ju ha do nd ▁aut rit ▁b ing ▁j ▁but od en ▁then ▁big ▁h me ▁are ore ▁tre ▁labo ▁tru
▁w ▁ei er im ▁e bo ru fter re ▁ca end ▁O ▁whi ou ▁life ▁jum ▁o ▁whic ▁l ter ▁hap ▁m ▁wh ▁temp ▁la ▁do ut ▁tem ▁g ssi
ll rom ▁th id ▁ha ▁c ss is ▁ad ▁li ▁and ▁He ▁you ▁lif ▁H ill ay ▁of um lit ▁ea rite in ok ▁be ▁p ▁is ▁lit ▁et ip it
Bu But ▁But
""".split()
PIECES = [SPACE, *string.ascii_letters, *string.digits, *string.punctuation, *MERGED]
