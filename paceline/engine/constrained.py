"""Draws that are not quite the sampler's own: under a grammar, or of a text that is known already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paceline.drafters.base import Constraint
from paceline.engine.verify import Draws
from paceline.llama.lib import Floats
from paceline.llama.sampler import Sampler


class GrammarState(Constraint, Protocol):
    """What sampling needs of a matcher: see `text/grammar.py`."""

    def mask(self) -> npt.NDArray[np.bool_] | None: ...
    def allows(self, token: int) -> bool: ...
    def consume(self, token: int) -> None: ...


class Constrained:
    """Draws like the sampler, from the tokens the grammar allows; each draw moves the grammar on."""

    def __init__(self, sampler: Sampler, grammar: GrammarState) -> None:
        self._sampler = sampler
        self._grammar = grammar

    def sample(self, row: Floats, position: int) -> int:
        token = self._draw(row, position)
        self._grammar.consume(token)
        return token

    def _draw(self, row: Floats, position: int) -> int:
        """A greedy choice the grammar allows needs no mask, which can be costly."""
        if self._sampler.greedy:
            token = self._sampler.sample(row, position)
            if self._grammar.allows(token):
                return token
        return self._sampler.sample(row, position, self._grammar.mask())


class Known:
    """The first tokens are known; sampler and grammar go along as if they had been drawn. Then comes a real draw."""

    def __init__(self, tokens: Sequence[int], draws: Draws, sampler: Sampler, grammar: GrammarState | None) -> None:
        self._tokens = iter(list(tokens))
        self._draws = draws
        self._sampler = sampler
        self._grammar = grammar

    def sample(self, row: Floats, position: int) -> int:
        token = next(self._tokens, None)
        if token is None:
            return self._draws.sample(row, position)
        if self._grammar:
            self._sampler.force(row, position, token, self._grammar.mask())
            self._grammar.consume(token)
        else:
            self._sampler.force(row, position, token)
        return token
