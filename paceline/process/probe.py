"""Before the first request: does the draft model, or a head, say what the target says?

The target writes the beginning of a short answer, and the drafter is asked for one token at every place. So a good one
is used from the start, one that is no use is known as such before it has slowed anybody down, and what a question takes
between two steps of the target is known. Knows text and contexts, nothing of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from statistics import median
from time import perf_counter

from paceline.drafters.base import Drafter, DraftRequest
from paceline.engine.readers import TargetRows
from paceline.engine.warmup import Computes
from paceline.errors import ConfigError, PromptError
from paceline.llama.model import Vocab
from paceline.planner.base import Agreement
from paceline.text.chat import ChatTemplate

QUESTION = "How do I make tea?"
OPENING = "The best way to make tea is"  # for a model that does not chat
N_WRITTEN = 40  # tokens
LEAST = 16  # or nothing is said
SECONDS = (0.6, 3.0)  # for N_WRITTEN and for LEAST tokens
POOR = 0.1  # share of tokens a model and the target agree on, under which it is no use


@dataclass(frozen=True, slots=True)
class Interview:
    """What a drafter said to each token, and what being asked for one took it."""

    agreements: Sequence[Agreement] = ()
    seconds: float = 0.0


def question(
    vocab: Vocab, template: Callable[[], ChatTemplate] | None, words: str = QUESTION, opening: str = OPENING
) -> list[int]:
    """A plain question as the model's tokens; the beginning of an answer for a model that does not chat, or whose
    template is broken or does not take a plain question."""
    try:
        return vocab.tokenize(template().render([{"role": "user", "content": words}]) if template else opening)
    except (ConfigError, PromptError):
        return vocab.tokenize(opening)


def probe(
    target: Computes, drafter: Drafter, asked: Sequence[int], eog: frozenset[int], rows: TargetRows | None = None
) -> Interview:
    """Agreement on the tokens that the target writes, as many as there is time for; none where that are too few. `rows`
    are the target's, for a head that reads them."""
    text, guesses, took = list(asked), [], []
    n_most = min(N_WRITTEN, target.n_ctx_seq - 1 - len(asked)) if len(asked) <= target.n_batch else 0
    for token, first in islice(steps(target, asked, eog, rows), max(0, n_most)):
        start = len(text) - first
        if rows:
            drafter.observe(0, start, text, rows.rows(drafter.source, 0, first))
        text.append(token)
        before = perf_counter()
        (draft,) = drafter.draft([DraftRequest(0, text, 1, p_min=0.0)])
        took.append(perf_counter() - before)
        guesses.append((draft.confidence[0], draft.tokens[0]) if draft.tokens else (0.0, -1))
    drafter.begin(0, [])
    written = text[len(asked) + 1 :]
    found = [(sure, token == own) for own, (sure, token) in zip(written, guesses, strict=False)]
    return Interview(found, median(took)) if len(guesses) >= LEAST else Interview()


def steps(
    context: Computes,
    asked: Sequence[int],
    eog: frozenset[int],
    rows: TargetRows | None = None,
    seconds: tuple[float, float] | None = None,
) -> Iterator[tuple[int, int]]:
    """Each token it says greedily, and how many were computed for it, until its time is over."""
    seconds = seconds or SECONDS
    batch, feed, position, start = context.new_batch(), list(asked), 0, perf_counter()
    try:
        for n in count():
            if perf_counter() - start >= seconds[n < LEAST]:
                break
            batch.clear()
            batch.add(0, feed, position, 1)
            if rows:
                rows.wake(up=True)
                rows.switch(on=True)
            token = int(context.decode(batch)[0].argmax())
            if token in eog:
                break
            yield token, len(feed)
            position += len(feed)
            feed = [token]
    finally:
        context.remove(0, 0)
