"""The accept rule where a row has no numbers."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.engine.verify import verify
from paceline.errors import NoNumbers
from paceline.llama.lib import Floats


class Fussy:
    """Draws the largest, and remembers what it drew."""

    def __init__(self) -> None:
        self.drawn: list[int] = []

    def sample(self, row: Floats, position: int) -> int:
        if np.isnan(row).any():
            raise NoNumbers("NaN")
        self.drawn.append(int(row.argmax()))
        return self.drawn[-1]


def test_what_was_drawn_before_a_row_without_numbers_stands() -> None:
    rows = np.eye(4, dtype=np.float32)
    rows[2] = np.nan
    fussy = Fussy()
    assert verify(fussy, rows, [0, 1, 2], 5) == fussy.drawn == [0, 1]
    with pytest.raises(NoNumbers):
        verify(fussy, rows[2:], [2], 7)
    assert fussy.drawn == [0, 1]
