"""Before the first request: does the draft model say what the target says?

Both read the beginning of a short answer at once, the target in one batch; so a draft model that is no use is known
as such before it has slowed anybody down. Knows text and contexts, nothing of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.drafters.guess import likeliest
from paceline.engine.costs import CostCurve
from paceline.engine.warmup import Computes
from paceline.errors import ConfigError, PromptError
from paceline.llama.lib import Floats
from paceline.llama.model import Vocab
from paceline.text.chat import ChatTemplate

QUESTION = "How do I make tea?"
ANSWER = """\
Making tea is simple. Here are the steps:

1. Boil fresh water in a kettle.
2. Put a tea bag in your cup.
3. Pour the hot water into the cup"""
LEAST = 16  # tokens of the answer, or nothing is said
MEASURED = 16  # a batch whose cost is known; larger ones take less time for each token
Opinion = tuple[float, bool]  # how sure the draft model was of its token, and whether it was the target's


def script(vocab: Vocab, template: Callable[[], ChatTemplate] | None) -> tuple[list[int], int]:
    """Question and answer as the model's tokens, and how many of them are the question: none of a model that does not
    chat, or whose template is broken or does not take a plain question."""
    try:
        asked = vocab.tokenize(template().render([{"role": "user", "content": QUESTION}])) if template else []
    except (ConfigError, PromptError):
        asked = []
    return asked + vocab.tokenize(ANSWER, special=not asked), len(asked)


def interview(
    target: Computes, draft: Computes, curve: CostCurve, tokens: Sequence[int], n_asked: int, seconds: float
) -> list[Opinion]:
    """The draft's opinion on each token after those asked, as many as the target computes in this time; none where
    that is too few to judge by."""
    room = min(len(tokens), *(min(context.n_batch, context.n_ctx_seq - 1) for context in (target, draft)))
    room = min(room, int(seconds / max(1e-9, curve.predict(MEASURED) / MEASURED)))
    n_judged = room - max(0, n_asked - 1)
    if n_judged < LEAST:
        return []
    ours, theirs = (read(context, tokens[:room], n_judged) for context in (target, draft))
    return [
        (sure, bool(token == row.argmax())) for row, (token, sure) in zip(ours, map(likeliest, theirs), strict=True)
    ]


def read(context: Computes, tokens: Sequence[int], n_outputs: int) -> Floats:
    """Logits after each of the last tokens. Leaves the context empty."""
    batch = context.new_batch()
    batch.add(0, list(tokens), 0, n_outputs)
    rows = context.decode(batch)
    context.remove(0, 0)
    return rows
