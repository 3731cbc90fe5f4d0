"""`draft-mtp`: heads that were trained with the target, mostly in its own file.

At position P a head computes the token there together with the target's last state of the one before. One head goes on
with its own rows; several are chained, each for one token further ahead; one that shares the target's memory looks at
what the target has computed and has nothing to read.
"""

from __future__ import annotations

from paceline.drafters.base import Resources
from paceline.drafters.pairs import Chain, Feed, PairHead
from paceline.drafters.reader import HeadMemory
from paceline.llama.hidden import NEXTN


class Mtp(PairHead):
    """A context for each head that is chained."""

    name = "draft-mtp"

    def __init__(self, resources: Resources) -> None:
        heads = resources.computing(self.name).heads
        super().__init__([HeadMemory(context, offset=1, lag=1) for context in heads], (NEXTN,), resources)
        self._shares = heads[0].shares_memory

    def _feed(self, chain: Chain, depth: int) -> Feed:
        """In the target's own memory all that is drafted stands where the last token will."""
        if not self._shares:
            return super()._feed(chain, depth)
        seq, end = chain.request.seq, chain.end
        token = chain.tokens[depth - 1] if depth else chain.request.tokens[-1]
        return Feed(seq, end, [token], chain.rows[-1:] if depth else self._traces[seq].rows(end - 1, end))

    def _settle(self, chain: Chain) -> None:
        if not self._shares:
            super()._settle(chain)
