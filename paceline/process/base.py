"""What an engine is to those outside: what it tells of itself, and what can be asked of it. Data, and one protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from paceline.engine.request import Event, Limits, Request
from paceline.engine.stats import DrafterStats
from paceline.text.infill import FimTokens
from paceline.text.vocabulary import Vocabulary

OnEvent = Callable[[Event], None]
OnProgress = Callable[[float], None]
Vectors = list[list[list[float]]]
"""For each text, one or several."""


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What was opened, and stays as it is. `speculation_off` says why nothing is drafted, where that is not by choice;
    `exactness` by which batches the text is exact, in exact mode; `heads` who reads the target, and what of it.
    `adapters` are what each one's file says of its task and of how prompts begin. One that does not write makes
    embeddings only."""

    description: str
    limits: Limits
    n_ctx_train: int
    n_embd: int
    n_params: int
    n_bytes: int
    chat_template: str | None
    drafters: tuple[str, ...]
    devices: tuple[str, ...]
    speculation_off: str | None = None
    exactness: str | None = None
    heads: tuple[str, ...] = ()
    tool_template: str | None = None
    builtin_templates: tuple[str, ...] = ()
    adapters: tuple[tuple[str, str], ...] = ()
    writes: bool = True
    fim: FimTokens = FimTokens()


class SlotStatus(msgspec.Struct, frozen=True):
    """One slot: the request it serves, if any, how many tokens it holds and how many of them were written for it; and
    in which replica it is, where there are several."""

    id: int
    request: int | None
    n_tokens: int
    n_generated: int
    replica: int | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How it goes, read off between two steps. `planned` are the seconds that all answers would have taken without
    speculation and those they took, where a planner keeps account; `n_busy` the slots at work, added up over all
    steps."""

    n_steps: int
    n_busy: int
    seconds: float
    n_waiting: int
    slots: list[SlotStatus]
    drafters: list[DrafterStats]
    planned: tuple[float, float] | None
    why: dict[str, Any]

    @property
    def speedup(self) -> float | None:
        """The planner's estimate against no speculation, over all requests; None where nothing was planned yet."""
        plain, actual = self.planned or (0.0, 0.0)
        if not actual:
            return None
        return plain / actual if any(stats.n_tokens for stats in self.drafters) else 1.0


class ReplicaHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One engine of several: where it is, whether it computes, how often it was started again, and what this front had
    of it. A replica that is replaced leaves its number and its counters to the next."""

    number: int
    host: str
    ready: bool
    n_restarts: int
    n_running: int
    n_requests: int
    n_prompt: int
    n_cached: int
    n_predicted: int


class Health(msgspec.Struct, frozen=True):
    """Whether requests are computed at the moment, how often the engine was started again, and why the last time. One
    that is asleep is ready too: the next request wakes it. `replicas` are those there are, where there are several."""

    ready: bool = True
    n_restarts: int = 0
    reason: str = ""
    asleep: bool = False
    replicas: tuple[ReplicaHealth, ...] = ()


class Backend(Protocol):
    """An engine, here or in a child process. May be called from any thread."""

    @property
    def info(self) -> Info: ...
    @property
    def vocabulary(self) -> Vocabulary: ...
    @property
    def health(self) -> Health:
        """Answers at once, whatever is computed."""

    def submit(self, request: Request, on_event: OnEvent) -> None:
        """Its events come to `on_event`, on another thread, which must not be kept waiting. What can be told at once
        may be raised."""

    def cancel(self, id: int) -> None:
        """Takes effect when the current step ends; the request's last event says so."""

    def tokenize(self, text: bytes, special: bool, parse_special: bool) -> list[int]:
        """`special` adds what the model wants around a prompt; `parse_special` reads `<|im_start|>` as one token."""

    def apply_template(self, template: str, messages: list[tuple[bytes, bytes]], opening: bool) -> bytes:
        """The prompt that libllama's own templates make of messages of role and content."""

    def embed(self, texts: Sequence[Sequence[int]], normalize: int, n_values: int | None) -> Vectors:
        """Each text's vectors; see `llama/embedder.py`."""

    def pairs(self, query: bytes, documents: Sequence[bytes]) -> list[list[int]]:
        """The query with each document, as tokens of a text to rank."""

    def status(self) -> Status:
        """Waits for the current step to end. Does not wake an engine that sleeps: it is then as it was before."""

    def save_slot(self, slot: int, path: str) -> tuple[int, int]:
        """Keep an idle slot's memory in a file; returns tokens and bytes."""

    def restore_slot(self, slot: int, path: str) -> tuple[int, int]:
        """Bring back what `save_slot` kept; returns tokens and bytes."""

    def erase_slot(self, slot: int) -> int:
        """Empty an idle slot; returns how many tokens it held."""

    def close(self) -> None:
        """Ends running requests and frees everything. Idempotent."""
