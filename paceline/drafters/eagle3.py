"""`draft-eagle3`: a head of one layer that reads three layers of the target.

The head's encoder makes one row of the three. At position P it computes that row of P together with the token at P + 1,
and guesses the one at P + 2.
"""

from __future__ import annotations

import numpy as np

from paceline.drafters.base import Resources
from paceline.drafters.pairs import PairHead
from paceline.drafters.reader import HeadMemory
from paceline.llama.hidden import target_layers
from paceline.llama.lib import Floats


class Eagle3(PairHead):
    """Rows of the target's pass the encoder when they are read."""

    name = "draft-eagle3"

    def __init__(self, resources: Resources) -> None:
        context = resources.computing(self.name).heads[0]
        source = target_layers(context.model, resources.target)
        super().__init__([HeadMemory(context, lag=1)], source, resources)
        self._encoding = context.row_batch(len(source) * resources.target.n_embd)

    def _read(self, rows: Floats) -> Floats:
        batch, context = self._encoding, self.memories[0].context
        parts = []
        for first in range(0, len(rows), batch.capacity):
            part = rows[first : first + batch.capacity]
            batch.clear()
            batch.add_rows(0, [0] * len(part), 0, len(part), part)
            parts.append(context.encode(batch))
        return np.concatenate(parts) if len(parts) > 1 else parts[0]
