"""Drafts accepted by chance and not by the target's word: what speculation costs and gains at a rate of one's choice.
For benchmarks; the text means nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.config import EngineParams
from paceline.engine.slot import Slot
from paceline.engine.verify import Draws

N_HALVINGS = 40


class Synthetic:
    """`rates[n]` is how often the first n + 1 tokens of a draft are all accepted; beyond them nothing is."""

    def __init__(self, rates: Sequence[float]) -> None:
        before = [1.0, *rates[:-1]]
        self._chances = [rate / earlier if earlier else 0.0 for rate, earlier in zip(rates, before, strict=True)]

    @classmethod
    def of(cls, params: EngineParams) -> Synthetic | None:
        if not params.is_synthetic:
            return None
        length = params.synth_len
        return cls(params.synth_rates if length is None else rates_for(length, params.n_draft_max))

    def checked(self, slot: Slot, eog: frozenset[int]) -> tuple[list[int], Draws]:
        """What of the slot's draft stands, and draws that begin with it."""
        assert slot.sampler
        draft = self.accepted(slot.draft.tokens, slot.sampler.seed, len(slot.tokens), eog)
        return draft, slot.draws(known=draft)

    def accepted(self, draft: Sequence[int], seed: int, position: int, eog: frozenset[int]) -> list[int]:
        """How much of the draft stands, always the same for a seed and a position. A text does not end by chance."""
        draws = np.random.default_rng([abs(seed), position]).random(len(self._chances))
        tokens: list[int] = []
        for token, chance, draw in zip(draft, self._chances, draws, strict=False):
            if draw >= chance or token in eog:
                break
            tokens.append(token)
        return tokens


def rates_for(length: float, n: int) -> list[float]:
    """Rates p, p^2, p^3 ... of n tokens, so that a step writes so many on average, the target's own included."""
    low, high = 0.0, 1.0
    for _ in range(N_HALVINGS):
        p = (low + high) / 2
        low, high = (p, high) if 1 + sum(powers(p, n)) < length else (low, p)
    return powers(1.0 if length >= n + 1 else (low + high) / 2, n)


def powers(p: float, n: int) -> list[float]:
    return [p**i for i in range(1, n + 1)]
