"""The engine in this process: requests in as data, events out, with what only a process of its own can hold between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.config import Settings
from paceline.drafters.base import Drafter
from paceline.engine.active import ActiveRequest
from paceline.engine.constrained import GrammarState
from paceline.engine.core import Core
from paceline.engine.drafting import Drafting
from paceline.engine.loop import EngineLoop
from paceline.engine.request import Event, Failed, Finished, Request
from paceline.engine.slot import Slot
from paceline.engine.warmup import IdleMeasuring, Measurement
from paceline.errors import CannotWrite, ConfigError, ContextFull, PacelineError, RequestError
from paceline.llama.lib import devices
from paceline.llama.shared import SharedModels
from paceline.llama.templates import builtin_templates
from paceline.process import heads
from paceline.process.base import Backend, Health, Info, OnEvent, OnProgress, SlotStatus, Status
from paceline.process.embedding import Answering, EmbeddingEngine, Embeddings
from paceline.process.grammar_cache import GrammarCache
from paceline.process.parts import Parts
from paceline.text.guide import Guide
from paceline.text.infill import fim_tokens
from paceline.text.stops import stop_check
from paceline.text.vocabulary import spelling

log = logging.getLogger("paceline")


class LocalEngine(Answering):
    """A model ready to write. Opening loads it. `after_step` is called on the engine's thread after each step."""

    def __init__(
        self,
        settings: Settings,
        on_progress: OnProgress | None = None,
        drafters: Sequence[Drafter] = (),
        shared: SharedModels | None = None,
        after_step: Callable[[], None] | None = None,
        *,
        hurried: bool = False,
    ) -> None:
        self.parts = parts = Parts(settings, on_progress, drafters, shared, hurried=hurried)
        self.vocabulary = vocab = parts.model.vocab
        layout = parts.exactness.layout if parts.exactness else None
        drafting = Drafting(parts.drafters, parts.policy, vocab.eog, parts.rows)
        self.core = Core(parts.context, vocab, drafting, settings.engine, layout)
        self.info = self._info()
        self.grammars = GrammarCache(vocab)
        self._active: dict[int, ActiveRequest] = {}
        self._closed = False
        self.loop = EngineLoop(self.core, self._idle_measuring(), after_step)
        self._embeddings = Embeddings(parts.model, settings.context, self.loop.call)

    def _info(self) -> Info:
        parts, model = self.parts, self.parts.model
        return Info(
            description=model.description,
            limits=self.core.limits,
            n_ctx_train=model.n_ctx_train,
            n_embd=model.n_embd,
            n_params=model.n_params,
            n_bytes=model.n_bytes,
            chat_template=model.chat_template,
            adapters=tuple((adapter.task, adapter.prefix) for adapter in model.adapters),
            drafters=tuple(self.core.drafting.stats),
            devices=tuple(devices()),
            speculation_off=parts.speculation_off,
            exactness=str(parts.exactness) if parts.exactness else None,
            heads=tuple(
                heads.described(drafter.name, parts.computing[drafter.name], drafter.source, model)
                for drafter in parts.drafters
                if drafter.reads_target and drafter.name in parts.computing
            ),
            tool_template=model.tool_template,
            builtin_templates=builtin_templates(),
            fim=fim_tokens(model.vocab.fim, model.vocab.token_of),
        )

    def _idle_measuring(self) -> IdleMeasuring | None:
        parts = self.parts
        if parts.planner is None:
            return None
        measured = [(Measurement(parts.context, parts.planner.target), self.core.memory.idle_place)]
        measured += [
            (Measurement(parts.computing[drafter.name].main, parts.curves[drafter.name]), drafter.idle_place)
            for drafter in parts.drafters
            if drafter.name in parts.curves
        ]
        return IdleMeasuring(measured)

    # -- requests

    @property
    def health(self) -> Health:
        failure = self.loop.failure
        return Health(ready=False, reason=str(failure)) if failure else Health()

    def submit(self, request: Request, on_event: OnEvent) -> None:
        """Compiles its grammar, which may take a while, and raises what is wrong with it."""
        self.core.limits.check(request)
        grammar = self._grammar(request)
        active = ActiveRequest(request, self._watched(request.id, on_event), self._stop(request), grammar)
        self._active[request.id] = active
        try:
            self.loop.submit(active)
        except BaseException:
            self._active.pop(request.id, None)
            raise

    def _stop(self, request: Request) -> Callable[[int], bool] | None:
        pieces = spelling(self.vocabulary, request.spelled)
        return stop_check(pieces, request.stop) if request.stop else None

    def _grammar(self, request: Request) -> GrammarState | None:
        """What the text is bound by, from its start or from some point on."""
        bounds, matcher = request.bounds, None
        try:
            matcher = self.grammars.matcher(request.grammar) if request.grammar else None
        except ConfigError as error:
            if not bounds or not bounds.lenient:
                raise
            log.warning("tool calls are not held to their schemas: %s", error)
        if not bounds:
            return matcher
        return Guide(bounds, spelling(self.vocabulary, request.spelled), self.vocabulary.n_tokens, matcher)

    def _watched(self, id: int, on_event: OnEvent) -> OnEvent:
        """Forgets the request with its last event."""

        def emit(event: Event) -> None:
            if isinstance(event, Finished | Failed):
                self._active.pop(id, None)
            on_event(event)

        return emit

    def cancel(self, id: int) -> None:
        active = self._active.get(id)
        if active:
            active.cancelled = True

    # -- questions

    def status(self) -> Status:
        return self.loop.call(self._status)

    def _status(self) -> Status:
        core = self.core
        return Status(
            n_steps=core.n_steps,
            n_busy=core.n_busy,
            seconds=core.seconds,
            n_waiting=len(core.queue),
            slots=[slot_status(slot) for slot in core.slots],
            drafters=[stats.copy() for stats in core.drafting.stats.values()],
            planned=self.parts.policy.planned_seconds,
            why=self._why(),
        )

    def _why(self) -> dict[str, Any]:
        curves = self.parts.curves
        draft_ms = {n: 1e3 * s for curve in list(curves.values())[:1] for n, s in curve.sizes.items()}
        return {**self.parts.policy.explain(), "draft_ms": draft_ms}

    # -- slots, between requests

    def save_slot(self, slot: int, path: str) -> tuple[int, int]:
        """What drafters have computed goes beside the target's memory, if it can."""

        def save() -> tuple[int, int]:
            tokens = self.core.memory.idle_tokens(slot)
            if not tokens:
                raise RequestError(f"slot {slot} is empty: there is nothing to save, and the file is as it was")
            if self.core.slots[slot].adapter is not None:
                raise RequestError(f"slot {slot} was computed with other adapters than the server's own")
            n_bytes = self.parts.context.save(slot, tokens, path)
            for drafter in self.parts.drafters:
                with told("what %s computed is not saved: %s", drafter.name):
                    drafter.save(slot, f"{path}.{drafter.name}")
            return len(tokens), n_bytes

        return self.loop.call(save)

    def restore_slot(self, slot: int, path: str) -> tuple[int, int]:
        """A file that is damaged or not ours changes nothing; a drafter whose file is starts afresh."""

        def restore() -> tuple[int, int]:
            self.core.memory.idle_tokens(slot)
            found = self.parts.context.read(path)
            self._make_room(slot, len(found.tokens))
            self.parts.context.fill(slot, found)
            self.core.memory.remember(slot, found.tokens)
            for drafter in self.parts.drafters:
                if Path(f"{path}.{drafter.name}").exists():
                    with told("what %s computed is not restored: %s", drafter.name):
                        drafter.load(slot, f"{path}.{drafter.name}")
            return len(found.tokens), found.n_bytes

        return self.loop.call(restore)

    def _make_room(self, slot: int, n: int) -> None:
        """Empty the slot, and others that are idle, where that is enough for so many tokens; else touch nothing."""
        core, context = self.core, self.parts.context
        n_busy = sum(slot.n_computed for slot in core.slots if slot.busy) if context.kv_unified else 0
        if n > min(core.n_room, context.n_ctx - n_busy):
            raise ContextFull(f"{n} tokens were saved; a slot has room for {core.n_room}, and {n_busy} are in use")
        core.memory.forget(slot)
        core.memory.make_room(n)

    def erase_slot(self, slot: int) -> int:
        return self.loop.call(lambda: self.core.memory.forget(slot))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.loop.close()
        self._embeddings.close()
        self.parts.close()


def open_engine(
    settings: Settings,
    on_progress: OnProgress | None = None,
    drafters: Sequence[Drafter] = (),
    shared: SharedModels | None = None,
    after_step: Callable[[], None] | None = None,
    *,
    hurried: bool = False,
) -> Backend:
    """Whatever the model can do: write, or make embeddings only."""
    try:
        return LocalEngine(settings, on_progress, drafters, shared, after_step, hurried=hurried)
    except CannotWrite:
        return EmbeddingEngine(settings, on_progress, shared)


def slot_status(slot: Slot) -> SlotStatus:
    request = slot.request.id if slot.busy else None
    return SlotStatus(slot.seq, request, len(slot.tokens), slot.n_generated if slot.busy else 0)


@contextmanager
def told(message: str, name: str) -> Iterator[None]:
    """A drafter's trouble goes to the log and touches nobody."""
    try:
        yield
    except PacelineError as error:
        log.warning(message, name, error)
