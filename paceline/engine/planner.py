"""How many tokens each slot may draft. Knows limits and counts, never token values."""

from __future__ import annotations

from paceline.config import SpeculativeParams
from paceline.drafters.base import Draft


class FixedPlanner:
    """Takes the user's limits literally, as llama-server does."""

    def limit(self, wishes: SpeculativeParams, room: int) -> int:
        """The longest draft worth asking for; `room` is what the context and the request still have place for."""
        return room if wishes.n_max is None else min(room, wishes.n_max)

    def trim(self, wishes: SpeculativeParams, draft: Draft, room: int) -> Draft:
        """What of the draft to check: all of it, or nothing when it is shorter than asked for."""
        if wishes.n_min is not None and len(draft) < wishes.n_min:
            return Draft(source=draft.source)
        return draft if len(draft) <= room else draft.cut(room)
