"""What a drafter is. Knows token ids and confidences; nothing of slots, batches or text.

A drafter guesses how a token sequence goes on. It is asked for all sequences at once, hears what became of
its guesses, and must never grow without bound: `seq` numbers are few and reused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from paceline.config.drafters import DrafterSettings
from paceline.errors import ConfigError
from paceline.llama.context import Context
from paceline.llama.head import HeadContext
from paceline.llama.hidden import Source
from paceline.llama.lib import Floats
from paceline.llama.model import Model

NO_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Noise:
    """What a drafter needs to draw as the target will: the seed of the Gumbel noise and the mild filters."""

    seed: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float


class Constraint(Protocol):
    """A grammar as drafters see it."""

    def forced(self) -> list[int]:
        """Tokens that must come next."""

    def n_valid(self, tokens: Sequence[int]) -> int:
        """How many of these may come next, in this order."""


@dataclass(slots=True)
class DraftRequest:
    """One sequence that wants a draft.

    `tokens` is the live history, last sampled token included: read it, never keep or change it.
    `ahead` are tokens another drafter has proposed already; go on after them.
    `should_continue`, where given, says from the draft so far whether one more token can pay; `p_min` counts otherwise.
    `n_left` is how long the text may still become, at most. `n_dropped` tokens of it are not in `tokens` any more.
    """

    seq: int
    tokens: list[int]
    n_max: int
    p_min: float | None = None
    noise: Noise | None = None
    ahead: Sequence[int] = ()
    grammar: Constraint | None = None
    should_continue: Callable[[Draft], bool] | None = None
    n_left: int = NO_LIMIT
    n_dropped: int = 0


@dataclass(slots=True)
class Draft:
    """Tokens proposed to follow the history; confidence[j] is the drafter's raw belief in token j. They follow the
    token `before`, where that was noted."""

    tokens: list[int] = field(default_factory=list)
    source: str = ""
    confidence: list[float] = field(default_factory=list)
    before: int = -1

    def __len__(self) -> int:
        return len(self.tokens)

    def cut(self, n: int) -> Draft:
        """The first n tokens."""
        return Draft(self.tokens[:n], self.source, self.confidence[:n], self.before)


class Costs(Protocol):
    """What a drafter's own steps cost."""

    @property
    def price(self) -> float:
        """What changing the size of batches costs."""

    def predict(self, n: int) -> float:
        """Seconds for a batch of n tokens, after others of its size."""

    def observe(self, n: int, seconds: float) -> object:
        """A batch of n tokens took this long."""


class Drafter(Protocol):
    """One algorithm. `begin` and `end` bracket a request in sequence `seq`.

    One that computes keeps what its steps cost in `costs`. Token by token it is asked to continue what others began;
    with a `block` it computes so many at once, however many are wanted. One that reads the target says which rows of
    its by `source`.
    """

    name: str
    costs: Costs | None = None
    block: int = 0
    reads_target: bool = False
    source: Source = ()

    def can_help(self, grammar: Constraint | None) -> bool:
        """Whether it has anything to say about a request with this grammar, or with none."""
        return True

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        """A request starts with this prompt."""

    def is_ready(self, seq: int, tokens: Sequence[int]) -> bool:
        """Whether it has what it needs to go on with this text."""
        return True

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One draft for each request, in order; an empty one where there is nothing to say."""

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        """This draft of yours was checked: the target agreed with its first `n_accepted` tokens."""

    def n_rows(self, n_text: int, n_left: int) -> int:
        """For those that read the target: how many rows at the end of such a text are worth having, when so many tokens
        may follow it."""
        return 0

    def observe(self, seq: int, start: int, text: Sequence[int], rows: Floats) -> None:
        """For those that read the target: it has computed the text's tokens from position `start` on, and these are
        its rows of them. Tokens after those may be known, but are not computed."""
        return

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        """The request is over; `tokens` is its whole history."""

    def idle_place(self) -> tuple[int, int]:
        """For those that compute: the sequence of which least is cached, and how much that is."""
        return 0, 0

    def save(self, seq: int, path: str) -> None:
        """Keep what took time to compute for this sequence in a file, if there is such."""
        return

    def load(self, seq: int, path: str) -> None:
        """Bring it back."""
        return

    def close(self) -> None:
        """The engine shuts down: free native memory, save what is to be saved."""


@dataclass(slots=True)
class OwnContexts:
    """What a drafter that computes has of its own: a model's context, or those of heads, and what their steps cost.

    `window` is how much of a text it may hold; `n_worth` says how much of a text of this length is worth reading when
    so many tokens may follow it, where somebody knows.
    """

    costs: Costs
    window: int
    context: Context | None = None
    heads: Sequence[HeadContext] = ()
    n_worth: Callable[[int, int], int] | None = None

    @property
    def main(self) -> Context:
        """The one whose steps cost what `costs` say."""
        return self.context or self.heads[0]


@dataclass(slots=True)
class Resources:
    """What drafters are made of."""

    settings: DrafterSettings
    target: Model
    own: Mapping[str, OwnContexts] = field(default_factory=dict)

    def computing(self, name: str) -> OwnContexts:
        if name not in self.own:
            raise ConfigError(f"{name} needs a model of its own: give one with -md")
        return self.own[name]
