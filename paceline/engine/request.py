"""What goes into the engine and what comes out: requests, events, timings. Data only: all of it can cross to another
process. Tokens, never text, but for what a text is ended and bound by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from paceline.config import SamplingParams, SpeculativeParams
from paceline.engine.stats import DrafterStats
from paceline.errors import ConfigError, ContextFull, PromptError


class Token(msgspec.Struct, frozen=True, array_like=True):
    """One emitted token. `source` names the drafter that guessed it, None when the target wrote it itself."""

    id: int
    source: str | None = None
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


class Timings(msgspec.Struct, frozen=True, array_like=True):
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


class Started(msgspec.Struct, frozen=True, array_like=True, tag="started"):
    """The request has a slot."""

    slot: int


class Progressed(msgspec.Struct, frozen=True, array_like=True, tag="progressed"):
    """So far the prompt is read; for requests that want to hear of it. `timings` have what was read, and how long that
    took."""

    timings: Timings = Timings()


class Emitted(msgspec.Struct, frozen=True, array_like=True, tag="emitted"):
    """One step's tokens of one request, and how it has gone so far."""

    tokens: tuple[Token, ...]
    timings: Timings = Timings()

    @property
    def is_first(self) -> bool:
        return self.timings.predicted_n <= len(self.tokens)


class Finished(msgspec.Struct, frozen=True, array_like=True, tag="finished"):
    """The last event: reason is "stop", "length" or "cancelled"."""

    reason: str
    timings: Timings = Timings()


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """The last event of a request that could not be served: `kind` is the error's name, see `errors.named`."""

    kind: str
    message: str
    timings: Timings = Timings()


Event = Started | Progressed | Emitted | Finished | Failed


def failed(error: Exception, timings: Timings | None = None) -> Failed:
    return Failed(type(error).__name__, str(error), timings or Timings())


class Tokens(msgspec.Struct, frozen=True, tag="tokens"):
    """A part of a prompt."""

    ids: list[int]


class Grammar(msgspec.Struct, frozen=True):
    """A grammar as it was written: `kind` is "gbnf", "json_schema", "lark" or "regex"."""

    kind: str
    source: str

    @classmethod
    def gbnf(cls, text: str) -> Grammar:
        """llama.cpp's notation; a text that starts with %llguidance is Lark."""
        return cls("gbnf", text)

    @classmethod
    def json_schema(cls, schema: str | bool | Mapping[str, Any]) -> Grammar:
        """JSON that fits the schema, given as such or as its text."""
        if isinstance(schema, str):
            return cls("json_schema", schema)
        try:
            return cls("json_schema", json.dumps(schema, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"the JSON schema cannot be read: {error}") from None

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """The whole text matches the pattern (Rust's regular expressions, no look-around)."""
        return cls("regex", pattern)

    @classmethod
    def lark(cls, text: str) -> Grammar:
        """llguidance's own notation."""
        return cls("lark", text)


class Bounds(msgspec.Struct, frozen=True):
    """Where a text's freedom ends. Thoughts stand between `start` and `end`; `opened`: the prompt has the start.
    After `n_thoughts` tokens of them (-1: never) the tokens of `closing` come. The grammar begins after the first of
    the texts in `after`, outside of thoughts; without any it begins where the thoughts end. With `lenient` a grammar
    that cannot be compiled is left out."""

    start: str = ""
    end: str = ""
    opened: bool = False
    n_thoughts: int = -1
    closing: tuple[int, ...] = ()
    after: tuple[str, ...] = ()
    lenient: bool = False


class Resume(msgspec.Struct, frozen=True):
    """What of a request is written already, by an engine that is no more: it is neither sampled nor emitted again."""

    tokens: list[int]
    timings: Timings


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt to continue.

    `submitted` is its time on the clock of this machine (`perf_counter`), the same in all its processes. Requests of
    one `group` end with the first of them that is done. With `sampled_probs` probabilities are those the filters left.
    `spelled` are control tokens that are part of the text.
    """

    id: int
    prompt: tuple[Tokens, ...]
    sampling: SamplingParams = SamplingParams()
    speculative: SpeculativeParams = SpeculativeParams()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    n_logprobs: int | None = None
    sampled_probs: bool = False
    progress: bool = False
    grammar: Grammar | None = None
    bounds: Bounds | None = None
    spelled: tuple[int, ...] = ()
    adapter: str | None = None
    cache_prompt: bool = True
    n_keep: int | None = None
    slot: int | None = None
    group: int | None = None
    submitted: float = 0.0
    resume: Resume | None = None

    @property
    def tokens(self) -> list[int]:
        """The whole prompt."""
        return self.prompt[0].ids if len(self.prompt) == 1 else [token for part in self.prompt for token in part.ids]


class Limits(msgspec.Struct, frozen=True):
    """What a request has to fit into."""

    n_room: int
    n_vocab: int
    n_slots: int

    def check(self, request: Request) -> None:
        """Refuse at once what could never be served."""
        tokens = request.tokens
        n, n_room = len(tokens), self.n_room
        if not n:
            raise PromptError("the prompt is empty: give at least one token")
        if n >= n_room:
            has = f"the prompt has {n} tokens, a slot holds {n_room} including the answer"
            raise ContextFull(f"{has}: it exceeds the available context size; raise -c", n, n_room)
        if min(tokens) < 0 or max(tokens) >= self.n_vocab:
            raise PromptError(f"the prompt has token ids outside the vocabulary of {self.n_vocab}")
        if request.slot is not None and not 0 <= request.slot < self.n_slots:
            raise ConfigError(f"there is no slot {request.slot}; slots are 0 to {self.n_slots - 1}")
        if request.max_tokens is not None and request.max_tokens < 0:
            raise ConfigError(f"max_tokens must be 0 or more, got {request.max_tokens}")
