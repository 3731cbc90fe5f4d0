"""`grammar`: where the request's grammar leaves no choice, the next tokens are certain. Keeps nothing."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.drafters.base import Ask, Draft


class GrammarDrafter:
    """Drafts what the grammar forces; says nothing for requests without one."""

    name = "grammar"

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        """Nothing to remember."""

    def draft(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> Draft:
        if ask.grammar is None or ask.ahead:
            return Draft(source=self.name)
        tokens = ask.grammar.forced()[: ask.n_max]
        return Draft(tokens, self.name, [1.0] * len(tokens))

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        """Nothing to learn: forced tokens are always right."""

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        """Nothing to forget."""

    def close(self) -> None:
        """Nothing to free."""
