"""What the tests of the look-up drafters share: short asks, and a request that grows at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from paceline.drafters.base import Draft, Drafter, DraftRequest

histories = st.integers(1, 4).flatmap(lambda top: st.lists(st.integers(0, top), max_size=40))


def ask(drafter: Drafter, tokens: Sequence[int], n_max: int = 64, seq: int = 0, ahead: Sequence[int] = ()) -> Draft:
    (draft,) = drafter.draft([DraftRequest(seq=seq, tokens=list(tokens), n_max=n_max, ahead=ahead)])
    assert draft.source == drafter.name
    assert len(draft.confidence) == len(draft.tokens) <= max(n_max, 0)
    assert all(0.0 < c <= 1.0 for c in draft.confidence)
    return draft


def grow(
    drafter: Drafter,
    prompts: Sequence[Sequence[int]],
    seed: int,
    check: Callable[[list[int], int, Draft], None],
    n_steps: int = 12,
) -> None:
    """Runs each prompt as a request in the same seq: draft, accept part of it, add a few tokens, draft again."""
    rng = random.Random(seed)
    for prompt in prompts:
        history = list(prompt)
        drafter.begin(0, history)
        for _ in range(n_steps):
            n_max = rng.randint(0, 20)
            draft = ask(drafter, history, n_max)
            check(history, n_max, draft)
            n_accepted = rng.randint(0, len(draft))
            if draft.tokens:
                drafter.accept(0, draft, n_accepted)
            history += draft.tokens[:n_accepted]
            history += [rng.randint(0, 3) for _ in range(rng.randint(1, 4))]
        drafter.end(0, history)
