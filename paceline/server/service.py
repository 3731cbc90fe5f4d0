"""The engine behind the server: loads it in the background, starts requests, knows what runs. Nothing of HTTP."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from paceline import garbage
from paceline.config import Settings
from paceline.errors import CannotWrite, PacelineError, QueueFull
from paceline.generation import Chunk, Generation
from paceline.library import Engine
from paceline.process.base import Backend, OnProgress, Status
from paceline.server.dialogue import Manner, Template
from paceline.server.errors import ApiError, not_supported, unavailable
from paceline.server.grammars import Grammars
from paceline.server.marks import Marks
from paceline.server.metrics import Metrics
from paceline.server.params import ServerParams
from paceline.server.prompt_log import PromptLog
from paceline.server.recording import RequestLog
from paceline.server.records import loaded_lines, request_lines
from paceline.server.schema import SamplingBody
from paceline.server.text_request import Defaults, TextRequest
from paceline.text.formats import Style

log = logging.getLogger("paceline")

Body = TypeVar("Body", bound=SamplingBody)
Prepared = TypeVar("Prepared")
OpenBackend = Callable[[Settings, OnProgress], Backend]


class Choice:
    """One text at work. Every way out of a request passes `close`; leaving early frees the slot at once."""

    def __init__(self, service: Service, wanted: TextRequest, owner: bytes) -> None:
        self.service = service
        self.owner = owner
        self.wanted = wanted
        self.generation = wanted.start(service.engine)
        self._begun = perf_counter()
        self._last_ms: float | None = None  # of writing, by the engine's clock: several steps may come at once
        self._closed = False
        self.has_new_line = False
        self.tokens: list[int] = []

    def observe(self, chunk: Chunk) -> None:
        if not chunk.pieces:
            return
        if self.service.request_log:
            self.tokens += [piece.token.id for piece in chunk.pieces]
        self.has_new_line = self.has_new_line or "\n" in chunk.text
        first, written_ms = self._last_ms is None, chunk.timings.predicted_ms
        seconds = perf_counter() - self._begun if self._last_ms is None else (written_ms - self._last_ms) / 1e3
        self.service.metrics.step(chunk, seconds, first=first)
        self._last_ms = written_ms

    def close(self) -> None:
        """Nobody reads any more. Idempotent."""
        if not self._closed:
            self._closed = True
            self.service.leave(self)


class Service:
    """One model and the requests it serves. Asynchronous parts run on one event loop; `load` on a thread of its own.
    `process` puts the engine in a child process; `open_backend` puts it anywhere else."""

    def __init__(
        self,
        settings: Settings,
        params: ServerParams,
        defaults: Defaults | None = None,
        *,
        process: bool = True,
        open_backend: OpenBackend | None = None,
    ) -> None:
        if params.reranking:
            settings = replace(settings, context=replace(settings.context, pooling="rank"))
        self.settings = settings
        self.params = params
        self.defaults = defaults or Defaults(cache_prompt=params.cache_prompt)
        self.manner = Manner(params.template_variables(), params.prefill_assistant, params.describe_tools)
        self.metrics = Metrics()
        self.created = int(time.time())
        self.ui_settings = params.ui_settings()
        self.prompt_log = PromptLog(params.log_prompts_dir) if params.log_prompts_dir else None
        self.request_log = RequestLog(params.record, params.record_max, self.model_name) if params.record else None
        self.progress = 0.0
        self.error: Exception | None = None
        self.grammars = Grammars(self.defaults.grammar, self.defaults.json_schema)
        self.running: set[Choice] = set()
        self._marks: dict[Style, Marks] = {}
        self._process = process
        self._open_backend = open_backend
        self._engine: Engine | None = None
        self._template: Template | None = None
        self._closing = False
        self._draining: set[asyncio.Task[None]] = set()

    # -- loading

    def load(self, on_progress: Callable[[float], None] | None = None) -> None:
        """Blocks until the model is there; raises what went wrong, and remembers it for /health."""

        def report(share: float) -> None:
            self.progress = share
            if on_progress:
                on_progress(share)

        try:
            engine = self._opened(report)
            template = self._prepared(engine)
        except Exception as error:
            self.error = error
            raise
        garbage.settle()
        self._template, self._engine, self.progress = template, engine, 1.0
        for line in loaded_lines(self.settings, engine.info):
            log.info("%s", line)
        if self._closing:
            engine.close()

    def _opened(self, on_progress: OnProgress) -> Engine:
        if self._open_backend:
            return Engine.on(self.settings, self._open_backend(self.settings, on_progress))
        return Engine.from_settings(self.settings, on_progress, process=self._process)

    def _prepared(self, engine: Engine) -> Template:
        """A server that could not do what it was started for ends at once."""
        try:
            embeds = self.params.embeddings or self.settings.context.pooling == "rank"
            if not (engine.info.writes or embeds):
                path = self.settings.model.path
                raise CannotWrite(f"{path} makes embeddings and cannot write text; start it with --embeddings")
            if embeds:
                engine.embed([0])
            return self._chosen_template(engine)
        except BaseException:
            engine.close()
            raise

    def load_in_background(self, load: Callable[[], None] | None = None) -> None:
        """`load` may do more than the service's own, such as showing a bar."""

        def work() -> None:
            with suppress(PacelineError):
                (load or self.load)()

        threading.Thread(target=work, name="paceline-load", daemon=True).start()

    def _chosen_template(self, engine: Engine) -> Template:
        template = engine.template_of(self.params.template(), jinja=self.params.jinja)
        log.debug("the chat template can think: %s, %s", template.thinks, template.capabilities)
        return template

    @property
    def ready(self) -> bool:
        return self._engine is not None and not self._closing

    @property
    def engine(self) -> Engine:
        if self._closing:
            raise unavailable("the server is shutting down")
        if self.error:
            raise unavailable(f"the model could not be loaded: {self.error}", 60)
        if self._engine is None:
            raise unavailable("Loading model", status="loading model", progress=round(self.progress, 3))
        return self._engine

    @property
    def template(self) -> Template:
        assert self.engine and self._template
        return self._template

    def marks(self, style: Style) -> Marks:
        """A style's marks as this model's tokens."""
        if style not in self._marks:
            self._marks[style] = Marks(self.engine, style)
        return self._marks[style]

    @property
    def model_names(self) -> tuple[str, ...]:
        """What clients may call the model; the first is what it is called in replies."""
        path = Path(self.settings.model.path)
        return (*self.params.aliases, path.stem, path.name, str(path))

    @property
    def model_name(self) -> str:
        return self.model_names[0]

    def check_model(self, name: str | None, *, strict: bool = False) -> None:
        """Another name means this model too, unless names are to be taken at their word."""
        if name and name not in self.model_names and (strict or self.params.strict_model):
            message = f"there is no model {name!r} here; this server has {self.model_name!r}"
            raise ApiError(404, message, "not_found_error", param="model", extra={"code": "model_not_found"})

    def adapters_json(self) -> list[dict[str, Any]]:
        """Each LoRA, and how much it counts for requests that do not say."""
        chosen, adapters = self.defaults.adapter, self.settings.model.adapters
        scales = [scale for _, scale in adapters] if chosen is None else map(float, chosen.split(","))
        about = self.engine.info.adapters
        return [
            {"id": id, "path": path, "scale": scale, "task_name": task, "prompt_prefix": prefix}
            for id, ((path, _), scale, (task, prefix)) in enumerate(zip(adapters, scales, about, strict=True))
        ]

    async def status(self) -> Status:
        """Waits for the current step to end, beside the event loop."""
        return await asyncio.to_thread(self.engine.status)

    # -- requests

    async def prepare(self, work: Callable[[Service, Body], Prepared], body: Body) -> Prepared:
        """Templates and tokens, off the event loop."""
        if not self.engine.info.writes:
            raise not_supported("this model makes embeddings and cannot write text; start the server with another one")
        return await asyncio.get_running_loop().run_in_executor(None, work, self, body)

    def start(self, wanted: Sequence[TextRequest], owner: bytes) -> list[Choice]:
        """All of them or none. `owner` is who asked."""
        started: list[Choice] = []
        try:
            for text_request in wanted:
                started += [Choice(self, text_request, owner)]
                self.running.add(started[-1])
        except QueueFull as error:
            self._give_up(started)
            raise unavailable(str(error), self._seconds_until_free()) from error
        except BaseException:
            self._give_up(started)
            raise
        if self.prompt_log:
            self.prompt_log.write_beside([each.prompt for each in wanted], self.engine.vocab)
        return started

    def _give_up(self, started: Sequence[Choice]) -> None:
        for choice in started:
            choice.close()

    def leave(self, choice: Choice) -> None:
        """Its reader is done. One that was cancelled is read to its end on the side, for the records."""
        self.running.discard(choice)
        generation = choice.generation
        if self.request_log and self._engine:
            self.request_log.write_beside(choice.wanted.prompt, choice.tokens, self._engine.vocab)
        if generation.finish:
            self._record(generation)
            return
        generation.cancel()
        task = asyncio.get_running_loop().create_task(self._drain(generation))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _drain(self, generation: Generation) -> None:
        with suppress(PacelineError):
            async for _ in generation:
                pass
        self._record(generation)

    def _record(self, generation: Generation) -> None:
        """It has ended: counters and log hear how it went."""
        self.metrics.finished(generation.timings)
        for line in request_lines(generation.slot, generation.request.id, generation.timings):
            log.info("%s", line)

    def _seconds_until_free(self) -> int:
        """A guess: everyone who waits takes as long as those before did, side by side."""
        engine = self.engine
        rounds = (len(self.running) + 1) / max(1, engine.n_slots)
        return max(1, min(60, round(rounds * self.metrics.mean_request_s)))

    # -- the end

    def stop_accepting(self) -> None:
        self._closing = True

    def cancel_all(self) -> None:
        for choice in list(self.running):
            choice.generation.cancel()

    def close(self) -> None:
        """Blocks until the engine has ended."""
        self._closing = True
        if self._engine:
            self._engine.close()
        if self.request_log:
            self.request_log.close()
