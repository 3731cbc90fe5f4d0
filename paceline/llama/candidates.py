"""Cutting a row of logits down to the tokens that can still be drawn, exactly. Numpy only.

libllama's filters walk over every candidate they are given; with 50,000 or 250,000 tokens that costs milliseconds.
The first filter usually throws all but a few away, and which those are can be told from the logits alone.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from paceline.config import SamplingParams
from paceline.llama.lib import Floats

BLOCK = 64
MOST_INFILL = 256
"""How many tokens the filter `infill` may see: it compares each with each."""
Ids = npt.NDArray[np.int64]


def columns(row: Floats) -> Floats:
    """The row laid out in columns of BLOCK values, without the few that are left over."""
    n_columns = len(row) // BLOCK
    return row[: n_columns * BLOCK].reshape(BLOCK, n_columns)


def at_least(row: Floats, k: int) -> Ids:
    """Tokens among which the k largest logits are (and few others).

    The k columns whose maxima are largest hold k values at least as large as the smallest of these maxima, so nothing
    below it is among the k largest.
    """
    grid = columns(row)
    n_columns = grid.shape[1]
    if k * 2 > n_columns:
        return top(row, k)
    return reaching(row, np.partition(grid.max(axis=0), n_columns - k)[n_columns - k])


def reaching(values: Floats, threshold: np.float32) -> Ids:
    """Where a value is as large as the threshold; never where it is minus infinity, which means forbidden."""
    return (values >= threshold if threshold > -math.inf else values > threshold).nonzero()[0]


def top(row: Floats, k: int) -> Ids:
    """Tokens whose logit is at least the k-th largest."""
    if k >= len(row):
        return np.arange(len(row))
    return np.flatnonzero(row >= np.partition(row, len(row) - k)[len(row) - k])


class Cut:
    """How far a row may be cut before the filters of these parameters see it."""

    def __init__(self, params: SamplingParams) -> None:
        self.k = 0
        self.log_min_p = -math.inf
        self._choose(params)

    def _choose(self, params: SamplingParams) -> None:
        """The first filter that drops tokens decides; filters that only move some tokens' logits come before it."""
        if params.mirostat:
            return
        scaled = False
        for name in params.samplers:
            if name == "temperature":
                if params.dynatemp_range > 0:
                    return
                scaled = True
            elif name == "top_k" and params.top_k > 0:
                self.k = params.top_k
                return
            elif name == "infill":
                self.k = MOST_INFILL
                return
            elif name == "min_p" and params.min_p > 0:
                if not scaled and not params.min_keep:
                    self.log_min_p = math.log(params.min_p)
                return
            elif drops_tokens(name, params):
                return

    def __call__(self, row: Floats, moved: Ids, banned: Ids) -> Ids | None:
        """Tokens to keep, None for all. Penalties or biases may still change the logits of `moved` tokens and will
        forbid `banned` ones."""
        if self.k:
            return self._with(at_least(row, self.k + len(moved) + len(banned)), moved)
        if self.log_min_p > -math.inf:
            others = np.concatenate((moved, banned))
            highest = row.max() if not len(others) else np.delete(row, others).max(initial=-math.inf)
            return self._with(np.flatnonzero(row >= highest + self.log_min_p - 1e-3), moved)
        return None

    @staticmethod
    def _with(ids: Ids, moved: Ids) -> Ids:
        return np.union1d(ids, moved) if len(moved) else ids


def drops_tokens(name: str, params: SamplingParams) -> bool:
    """Whether this filter is on and looks at the whole distribution."""
    match name:
        case "top_n_sigma":
            return params.top_n_sigma > 0
        case "typ_p":
            return params.typical_p < 1
        case "top_p":
            return params.top_p < 1
        case "xtc":
            return params.xtc_probability > 0
    return False
