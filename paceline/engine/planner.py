"""How many tokens each slot may draft. Knows limits and counts, never token values."""

from __future__ import annotations

from paceline.config import SpeculativeParams
from paceline.engine.proposal import Proposal


class FixedPlanner:
    """Takes the user's limits literally, as llama-server does."""

    def limit(self, wishes: SpeculativeParams, room: int) -> int:
        """The longest draft worth asking for; `room` is what the context and the request still have place for."""
        return room if wishes.n_max is None else min(room, wishes.n_max)

    def trim(self, wishes: SpeculativeParams, proposal: Proposal, room: int) -> None:
        """Leave of the proposal what is to be checked: all of it, or nothing when it is shorter than asked for."""
        too_short = wishes.n_min is not None and len(proposal) < wishes.n_min
        proposal.cut(0 if too_short else room)
