"""How a model drafts a token: from its logits to a guess, and whether to go on after it. Knows no contexts."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.config.drafters import DraftModelParams
from paceline.drafters.base import Draft, DraftRequest
from paceline.drafters.guess import guess
from paceline.llama.lib import Floats, Ints

P_MIN = 0.75  # where nobody says otherwise


@dataclass(frozen=True, slots=True)
class Writing:
    """`eog` are the tokens that end a text; the target knows `n_target` tokens, where not as many as the model. The
    model's rows are of these `words`, where not of all tokens."""

    params: DraftModelParams
    eog: frozenset[int]
    n_target: int
    sharpness: float = 1.0
    words: Ints | None = None

    def extend(self, request: DraftRequest, draft: Draft, row: Floats, limit: int) -> bool:
        """Add the likeliest token unless it is too unlikely; answers whether to go on after it."""
        row, where = row[: self.n_target], place(request, draft)
        token, confidence = guess(row, request.noise, where, self.sharpness, self.words)
        return self.take(request, draft, token, confidence, limit)

    def take(self, request: DraftRequest, draft: Draft, token: int, confidence: float, limit: int) -> bool:
        if confidence < self.least(request) or limit <= 0:
            return False
        draft.tokens.append(token)
        draft.confidence.append(confidence)
        if len(draft) >= limit or token in self.eog:
            return False
        return request.should_continue is None or request.should_continue(draft)

    def least(self, request: DraftRequest) -> float:
        """Confidence below which a token is dropped: as the request or the user says, else ours without a planner."""
        if request.p_min is not None:
            return request.p_min
        if self.params.p_min is not None:
            return self.params.p_min
        return P_MIN if request.should_continue is None else 0.0

    def long_enough(self, draft: Draft) -> Draft:
        return draft if len(draft) >= self.params.n_min else Draft(source=draft.source)


def place(request: DraftRequest, draft: Draft) -> int:
    """Where in the text the draft's next token stands."""
    return request.n_dropped + len(request.tokens) + len(request.ahead) + len(draft)
