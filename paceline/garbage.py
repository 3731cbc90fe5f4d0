"""Python's garbage collector, kept out of the way of steps."""

from __future__ import annotations

import gc


def settle() -> None:
    """What is there now, all of a program that has started, is never looked through again: that takes 10 to 25 ms,
    as long as a step or ten of them, whenever enough has been made since. For processes of our own."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
