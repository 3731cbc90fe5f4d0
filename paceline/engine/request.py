"""What goes into the engine and what comes out: requests, events, timings. Tokens only, never text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.config import SamplingParams, SpeculativeParams
from paceline.engine.constrained import Grammar
from paceline.engine.stats import DrafterStats

StopCheck = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token. `source` names the drafter that guessed it, None when the target wrote it itself."""

    id: int
    source: str | None = None
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Timings:
    """How one request went. Times in milliseconds; names follow llama-server's `timings`."""

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0
    draft_n: int = 0
    draft_n_accepted: int = 0
    n_steps: int = 0
    queue_ms: float = 0.0
    drafters: tuple[DrafterStats, ...] = ()

    @property
    def prompt_per_second(self) -> float:
        return 1e3 * self.prompt_n / self.prompt_ms if self.prompt_ms else 0.0

    @property
    def predicted_per_second(self) -> float:
        return 1e3 * self.predicted_n / self.predicted_ms if self.predicted_ms else 0.0

    @property
    def acceptance(self) -> float:
        return self.draft_n_accepted / self.draft_n if self.draft_n else 0.0

    @property
    def tokens_per_step(self) -> float:
        return self.predicted_n / self.n_steps if self.n_steps else 0.0


@dataclass(frozen=True, slots=True)
class Emitted:
    """One step's tokens of one request."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event: reason is "stop", "length" or "cancelled"."""

    reason: str
    timings: Timings


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a request that could not be served."""

    error: Exception
    timings: Timings


Event = Emitted | Finished | Failed


@dataclass(slots=True, kw_only=True)
class Request:
    """One prompt to continue. `on_event` is called on the engine's thread and must not block.

    `stop` sees each emitted token once, in order, and answers whether to end after it.
    """

    prompt: list[int]
    on_event: Callable[[Event], None]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    speculative: SpeculativeParams = field(default_factory=SpeculativeParams)
    max_tokens: int | None = None
    n_logprobs: int | None = None
    stop: StopCheck | None = None
    grammar: Grammar | None = None
    cache_prompt: bool = True
    slot: int | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Safe from any thread: takes effect when the current step ends."""
        self.cancelled = True
