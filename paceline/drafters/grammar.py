"""`grammar`: where the request's grammar leaves no choice, the next tokens are certain. Keeps nothing."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.drafters.base import Constraint, Draft, Drafter, DraftRequest


class GrammarDrafter(Drafter):
    """Drafts what the grammar forces; says nothing for requests without one."""

    name = "grammar"

    def can_help(self, grammar: Constraint | None) -> bool:
        return grammar is not None

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        """Nothing to remember."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        if request.grammar is None or request.ahead:
            return Draft(source=self.name)
        try:
            tokens = request.grammar.forced()[: request.n_max]
        except Exception:  # the request's own trouble: the next draw tells it
            return Draft(source=self.name)
        return Draft(tokens, self.name, [1.0] * len(tokens))

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        """Nothing to learn: forced tokens are always right."""

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        """Nothing to forget."""

    def close(self) -> None:
        """Nothing to free."""
