"""Before the first request: does the draft model say what the target says?

The target writes the beginning of a short answer, the draft model reads it in one batch and says what it would have
written at every place; so a good one is used from the start, and one that is no use is known as such before it has
slowed anybody down. Knows text and contexts, nothing of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from paceline.drafters.guess import likeliest
from paceline.engine.warmup import Computes
from paceline.errors import ConfigError, PromptError
from paceline.llama.model import Vocab
from paceline.text.chat import ChatTemplate

QUESTION = "How do I make tea?"
OPENING = "The best way to make tea is"  # for a model that does not chat
N_WRITTEN = 40  # tokens
LEAST = 16  # or nothing is said
SECONDS = (0.6, 3.0)  # for N_WRITTEN and for LEAST tokens
POOR = 0.1  # share of tokens a model and the target agree on, under which it is no use
Agreement = tuple[float, bool]  # how sure the draft model was of its token, and whether it was the target's


def question(vocab: Vocab, template: Callable[[], ChatTemplate] | None) -> list[int]:
    """A plain question as the model's tokens; the beginning of an answer for a model that does not chat, or whose
    template is broken or does not take a plain question."""
    try:
        return vocab.tokenize(template().render([{"role": "user", "content": QUESTION}]) if template else OPENING)
    except (ConfigError, PromptError):
        return vocab.tokenize(OPENING)


def probe(target: Computes, draft: Computes, asked: Sequence[int], eog: frozenset[int]) -> list[Agreement]:
    """The draft's agreement on each token that the target writes; none where that would take too long."""
    room = min(min(context.n_batch, context.n_ctx_seq - 1) for context in (target, draft)) - len(asked)
    written = write(target, asked, min(N_WRITTEN, room), eog)
    if len(written) < LEAST:
        return []
    batch = draft.new_batch()
    batch.add(0, [*asked, *written[:-1]], 0, len(written))
    rows = draft.decode(batch)
    found = [(sure, token == own) for own, (token, sure) in zip(written, map(likeliest, rows), strict=True)]
    draft.remove(0, 0)
    return found


def write(context: Computes, asked: Sequence[int], n: int, eog: frozenset[int]) -> list[int]:
    """What it says greedily, n tokens at most. Leaves the context empty."""
    if n < LEAST:
        return []
    batch, feed, start = context.new_batch(), list(asked), perf_counter()
    written: list[int] = []
    while len(written) < n and perf_counter() - start < SECONDS[len(written) < LEAST]:
        batch.clear()
        batch.add(0, feed, len(asked) + len(written) - len(feed) if written else 0, 1)
        token = int(context.decode(batch)[0].argmax())
        if token in eog:
            break
        written.append(token)
        feed = [token]
    context.remove(0, 0)
    return written
