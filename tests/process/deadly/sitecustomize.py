"""Found by a child process whose PYTHONPATH begins here: some requests then end it, as a bug in libllama would."""

from __future__ import annotations

import os
import time

from paceline.engine.core import Core
from paceline.engine.loop import EngineLoop
from paceline.process import watch
from paceline.process.local import LocalEngine

POISON = [7, 7, 7]  # deadly at one place
CREEPING = [9, 9, 9]  # gets one token further each time
DEADLY_TEXT = b"deadly"
STRAY = [8, 8, 8]  # ends the computing thread, but not the process, the first time
AT_ONCE = [5, 5, 5]  # in the very step that it starts in
HANGING = [6, 6, 6]  # never comes back
DEADLY_AFTER = 12  # tokens of a poisonous answer

step, tokenize, turn = Core.step, LocalEngine.tokenize, EngineLoop._turn
watch.PATIENCE = 5.0  # more than a step takes on a busy machine


def deadly_step(self: Core) -> None:
    for slot in self.slots:
        n_known = len(slot.known) if slot.tokens[:3] == POISON else 0
        if slot.busy and slot.tokens[:3] in (POISON, CREEPING) and slot.n_generated + n_known >= DEADLY_AFTER:
            os.abort()
    step(self)
    if any(slot.tokens[:3] == AT_ONCE for slot in self.slots):
        os.abort()


def stray_turn(self: EngineLoop) -> bool:
    for slot in self.core.slots:
        if slot.busy and slot.n_generated >= DEADLY_AFTER and not slot.request.resume:
            if slot.tokens[:3] == STRAY:
                raise SystemExit("out of turn")
            if slot.tokens[:3] == HANGING:
                time.sleep(1000)
    return turn(self)


def deadly_tokenize(self: LocalEngine, text: bytes, special: bool, parse_special: bool) -> list[int]:
    if text == DEADLY_TEXT:
        os.abort()
    return tokenize(self, text, special, parse_special)


Core.step = deadly_step  # type: ignore[method-assign]
LocalEngine.tokenize = deadly_tokenize  # type: ignore[method-assign, assignment]
EngineLoop._turn = stray_turn  # type: ignore[method-assign]
