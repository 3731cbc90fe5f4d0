"""A drafter that knows the answer: what the engine could gain on this machine if every guess were right."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.drafters.base import Draft, Drafter, DraftRequest

N_MAX = 64


class Oracle(Drafter):
    """Is told each prompt's answers before it is asked, the last first. Where the text parts from all, it is silent."""

    name = "oracle"

    def __init__(self) -> None:
        self._answers: dict[tuple[int, ...], list[list[int]]] = {}
        self._running: dict[int, tuple[int, list[list[int]]]] = {}

    def learn(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        self._answers.setdefault(tuple(prompt), []).insert(0, list(answer))

    def forget(self) -> None:
        self._answers.clear()

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        self._running[seq] = len(tokens), self._answers.get(tuple(tokens), [])

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        n_prompt, answers = self._running.get(request.seq, (len(request.tokens), []))
        said = [*request.tokens[n_prompt:], *request.ahead]
        answer = next((answer for answer in answers if answer[: len(said)] == said), [])
        tokens = answer[len(said) :][: min(request.n_max, N_MAX)]
        return Draft(tokens, self.name, [1.0] * len(tokens))

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        """Nothing to learn."""

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        self._running.pop(seq, None)

    def close(self) -> None:
        self._running.clear()
