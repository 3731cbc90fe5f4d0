"""The token a draft model would write, and how sure it is. Numpy only.

With a temperature the draft adds the very noise that the target's draw will use. The confidence is the softmax of the
scores whose largest was taken: for a greedy draft its plain probability; for a sampled one, squared, about the chance
that target and draft, which disagree about the logits, take the same token (measured: 0.77 at 0.95, 0.3 at 0.65).
"""

from __future__ import annotations

import math

import numpy as np

from paceline.drafters.base import Noise
from paceline.llama.candidates import at_least, columns
from paceline.llama.gumbel import gumbel
from paceline.llama.lib import Floats

K_MAX = 256
MANY = 256  # columns, whose largest values stand for the row


def guess(row: Floats, noise: Noise | None, position: int, sharpness: float = 1.0) -> tuple[int, float]:
    """Token and confidence for this position of the text."""
    return likeliest(row) if noise is None else draw(row, noise, position, sharpness)


def likeliest(row: Floats) -> tuple[int, float]:
    """A large row is laid out in columns, as in `at_least`, and its softmax taken over the largest of each: a quarter
    of the time, the same token, and a confidence that is too high only where it is low."""
    grid = columns(row)
    n_columns = grid.shape[1]
    if n_columns < MANY or grid.size < len(row):
        token = int(row.argmax())
        scores = row - row[token]
        return token, 1.0 / float(np.exp(scores, out=scores).sum())
    highest = grid.max(axis=0)
    column = int(highest.argmax())
    highest -= highest[column]
    return int(grid[:, column].argmax()) * n_columns + column, 1.0 / float(np.exp(highest, out=highest).sum())


def draw(row: Floats, noise: Noise, position: int, sharpness: float = 1.0) -> tuple[int, float]:
    """llama-server's usual filters, then the noisy maximum. A draft is less sure than the target: sharpen it."""
    k = min(noise.top_k, K_MAX) if noise.top_k > 0 else K_MAX
    ids = at_least(row, k)
    logits = row[ids].astype(np.float64) * sharpness
    order = np.argsort(-logits)[:k]
    ids, logits = ids[order], logits[order]
    n = n_kept(logits, noise)
    scores = logits[:n] / noise.temperature + gumbel(noise.seed, position, ids[:n])
    best = int(scores.argmax())
    return int(ids[best]), float(np.exp(scores - scores[best]).sum()) ** -2


def n_kept(logits: np.ndarray[tuple[int], np.dtype[np.float64]], noise: Noise) -> int:
    """How many of the sorted candidates top-p and min-p leave."""
    n = len(logits)
    if noise.top_p < 1:
        cumulated = np.exp(logits - logits[0]).cumsum()
        n = int(np.searchsorted(cumulated, noise.top_p * cumulated[-1])) + 1
    if noise.min_p > 0:
        n = min(n, int((logits >= logits[0] + math.log(noise.min_p)).sum()))
    return max(1, n)
