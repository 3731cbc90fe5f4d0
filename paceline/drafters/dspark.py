"""`draft-dspark`: a DFlash head whose places know the token before them, and say how sure they are.

The block starts with the last token's own place, unless the file says that it is not trained for that.
"""

from __future__ import annotations

from paceline.drafters.base import Draft, DraftRequest, Resources
from paceline.drafters.dflash import DFlash
from paceline.drafters.guess import guess
from paceline.drafters.writing import place
from paceline.llama.head import says
from paceline.llama.lib import Floats


class DSpark(DFlash):
    """Where the head has a confidence of its own, that is the draft's."""

    name = "draft-dspark"

    def __init__(self, resources: Resources) -> None:
        model = resources.computing(self.name).heads[0].model
        self.first = 0 if says(model, "dflash.sample_from_anchor", default=True) else 1
        self._has_confidence = says(model, "dflash.has_confidence_head", default=True)
        super().__init__(resources)

    def _fill(self, request: DraftRequest, draft: Draft, logits: Floats, at: int) -> None:
        if not self._has_confidence:
            super()._fill(request, draft, logits, at)
            return
        limit = min(request.n_max, self.params.n_max)
        sure = self._context.own_rows(at + self.block)[:, 0]
        for i in range(at + self.first, at + self.block):
            token, _ = guess(logits[i, : self._writing.n_target], request.noise, place(request, draft))
            if not self._writing.take(request, draft, token, float(sure[i]), limit):
                break
