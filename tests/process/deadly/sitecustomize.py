"""Found by a child process whose PYTHONPATH begins here: some requests then end it, as a bug in libllama would."""

from __future__ import annotations

import os

from paceline.engine.core import Core
from paceline.process.local import LocalEngine

POISON = [7, 7, 7]  # deadly at one place
CREEPING = [9, 9, 9]  # gets one token further each time
DEADLY_TEXT = b"deadly"
DEADLY_AFTER = 12  # tokens of a poisonous answer

step, tokenize = Core.step, LocalEngine.tokenize


def deadly_step(self: Core) -> None:
    for slot in self.slots:
        n_known = len(slot.known) if slot.tokens[:3] == POISON else 0
        if slot.busy and slot.tokens[:3] in (POISON, CREEPING) and slot.n_generated + n_known >= DEADLY_AFTER:
            os.abort()
    step(self)


def deadly_tokenize(self: LocalEngine, text: bytes, special: bool, parse_special: bool) -> list[int]:
    if text == DEADLY_TEXT:
        os.abort()
    return tokenize(self, text, special, parse_special)


Core.step = deadly_step  # type: ignore[method-assign]
LocalEngine.tokenize = deadly_tokenize  # type: ignore[method-assign]
