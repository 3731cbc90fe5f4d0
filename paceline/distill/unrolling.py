"""How an EAGLE-3 head learns to go on from its own rows (arXiv 2503.01840 calls it training-time test).

Step 0 computes every position of a text with the target's rows. Step s computes every position again with the rows of
step s - 1, as if drafting had begun s tokens earlier: a position then sees step 0 up to where drafting began, and
of each later step the one position that lies on its way. All steps share one pass of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from paceline.distill.compiling import faster
from paceline.distill.divergence import CHUNK, Guess, divergence
from paceline.distill.eagle3 import Eagle3Head, Memory, norm
from paceline.distill.target import Teacher


@dataclass(frozen=True, slots=True)
class Taught:
    """What the target says at pairs that count: `places` among all pairs, chances of the tokens that the head knows,
    the head's name of the likeliest token (-1 where it does not know it), how much the pair counts. And what the head
    reads at all pairs [rows, pairs, ...]. Nothing is asked about what people wrote, which may be half of a text."""

    places: Tensor
    chances: Tensor
    best: Tensor
    weights: Tensor
    embedded: Tensor
    features: Tensor

    @property
    def columns(self) -> Tensor:
        """How many pairs of the same row come before each place."""
        return self.places % self.features.shape[1]

    def at_all_pairs(self, values: Tensor) -> Tensor:
        """Of the places [rows, pairs]; zero elsewhere."""
        shape = self.features.shape[:2]
        return torch.zeros(shape.numel(), device=values.device).index_add(0, self.places, values.float()).view(shape)


@dataclass(frozen=True, slots=True)
class Lesson:
    """Of one batch: the loss, and for each step the share of pairs at which the head's choice is the target's."""

    loss: Tensor
    agreement: Tensor


def ahead(values: Tensor, n: int) -> Tensor:
    """What stands n positions later; the last ones are the first again, and must not count."""
    return values.roll(-n, 1)


@torch.no_grad()
def teach(teacher: Teacher, head: Eagle3Head, tokens: Tensor, weights: Tensor, boost: float = 0.0) -> Taught:
    """`weights` says how much the word after each token counts; `boost` adds weight to the likeliest."""
    with teacher.precision():
        seen = teacher(tokens, layers=head.shape.layers)
        counts = ahead(weights, 1)
        counts[:, -2:] = 0
        places, counts = counted(counts.flatten())
        states = ahead(seen.hidden, 1).flatten(0, 1)[places]
        chances, best = known_chances(teacher, states, head.tokens, boost)
    embedded = functional.embedding(ahead(tokens, 1), teacher.embedding.weight)
    return Taught(places, chances, best, counts, embedded, torch.cat(seen.inputs, -1))


def counted(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Where weights are not zero, and those; with some that are, so that all chunks are full: each size of a chunk is
    compiled anew."""
    places = weights.nonzero()[:, 0]
    n_more = -len(places) % min(CHUNK, len(weights))
    return functional.pad(places, (0, n_more)), functional.pad(weights[places], (0, n_more))


def known_chances(teacher: Teacher, states: Tensor, known: Tensor, boost: float) -> tuple[Tensor, Tensor]:
    """In half precision where the target computes so: these are the largest numbers of all."""
    names = torch.full((len(teacher.output),), -1, device=known.device)
    names[known] = torch.arange(len(known), device=known.device)
    chances = states.new_empty((len(states), len(known)), dtype=teacher.output.dtype)
    best = torch.empty(len(states), dtype=torch.long, device=known.device)
    more = torch.tensor(boost, device=known.device)
    for first in range(0, len(states), CHUNK):
        part = slice(first, first + CHUNK)
        chances[part], best[part] = telling(known.device.type)(teacher.logits(states[part]), known, names, more)
    return chances, best


def tell(logits: Tensor, known: Tensor, names: Tensor, boost: Tensor) -> tuple[Tensor, Tensor]:
    """Chances of what the head knows, with more for the likeliest token of all, and the head's name of that one."""
    values = logits.float()
    best = names[values.argmax(-1)]
    chances = (values[:, known] - values.logsumexp(-1, keepdim=True)).exp()
    favoured = torch.arange(len(known), device=known.device) == best[:, None]
    return ((chances + boost * favoured) / (1 + boost)).to(logits.dtype), best


@cache
def telling(device: str) -> Callable[..., tuple[Tensor, Tensor]]:
    return faster(tell, device)


def steps(head: Eagle3Head, taught: Taught, n: int) -> Iterator[Tensor]:
    """The head's rows at all pairs, step by step; those at the first s pairs of step s mean nothing."""
    memory: Memory = []
    n_pairs = taught.features.shape[1]
    turns = head.turns(0, n_pairs)
    rows = head.read(taught.features)
    for step in range(n):
        rows = head(taught.embedded, rows, memory, sight(n_pairs, step, rows.device), turns)
        yield rows
        rows = rows.roll(1, 1)


def sight(n_pairs: int, step: int, device: torch.device) -> Tensor | None:
    """Which keys of all steps so far a position of this step sees [pairs, (step + 1) * pairs]."""
    if step == 0:
        return None
    position = torch.arange(n_pairs, device=device)
    begun = position[:, None] - step
    blocks = [position[None] <= begun, *(position[None] == begun + i for i in range(1, step + 1))]
    return torch.cat(blocks, 1)


def lesson(head: Eagle3Head, taught: Taught, n_steps: int, fading: float = 0.8) -> Lesson:
    """Each step counts `fading` of the one before: a token late in a draft is needed less often."""
    loss = torch.zeros((), device=taught.weights.device)
    agreement = []
    share = (1 - fading) / (1 - fading**n_steps) if fading < 1 else 1 / n_steps
    for step, rows in enumerate(steps(head, taught, n_steps)):
        weights = taught.weights * (taught.columns >= step)
        guess = guessed(head, rows, taught, weights)
        total = weights.sum().clamp(min=1e-6)
        loss = loss + share * fading**step * guess.loss / total
        agreement.append((guess.right * weights).sum() / total)
    return Lesson(loss, torch.stack(agreement).detach())


def guessed(head: Eagle3Head, rows: Tensor, taught: Taught, weights: Tensor) -> Guess:
    normed = norm(rows, head.output_norm, head.shape.eps).to(taught.chances.dtype)
    states = normed.flatten(0, 1)[taught.places]
    return divergence(states, head.output.weight, taught.chances, taught.best, weights)


@torch.no_grad()
def accepted(head: Eagle3Head, taught: Taught, n_steps: int) -> Tensor:
    """How many tokens of a draft of n_steps would stand where it begins at a pair, for every pair whose whole draft
    counts. In a text that the target wrote greedily that is what drafting comes to."""
    right, counts = [], []
    matter = taught.at_all_pairs(taught.weights > 0)
    for step, rows in enumerate(steps(head, taught, n_steps)):
        matches = taught.at_all_pairs(guessed(head, rows, taught, taught.weights).right * (taught.weights > 0))
        end = matches.shape[1] - n_steps + step
        right.append(matches[:, step:end])
        counts.append(matter[:, step:end] > 0)
    stand = torch.stack(right, -1).cumprod(-1).sum(-1)
    return stand[torch.stack(counts, -1).all(-1)]
