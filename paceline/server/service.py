"""The engine behind the server: loads it in the background, starts requests, knows what runs. Nothing of HTTP."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from paceline.config import Settings
from paceline.engine.request import Event, Request, Timings
from paceline.engine.slot import Slot
from paceline.errors import PacelineError, QueueFull
from paceline.generation import Chunk, Generation, stop_check
from paceline.library import Engine
from paceline.server.errors import unavailable
from paceline.server.grammars import Grammars
from paceline.server.jobs import Defaults, Job
from paceline.server.metrics import Metrics
from paceline.server.params import ServerParams
from paceline.server.schema import SamplingBody
from paceline.text.chat import CHATML, ChatTemplate

log = logging.getLogger("paceline")

MAX_COMPILING = 32
Body = TypeVar("Body", bound=SamplingBody)
Prepared = TypeVar("Prepared")


class Running:
    """One job at work. `chunks()` is read once; leaving it early frees the slot at once."""

    def __init__(self, service: Service, job: Job) -> None:
        self.service = service
        self.job = job
        self.id_slot = -1
        self._last = perf_counter()
        self._n_chunks = 0
        self._closed = False
        self._engine = service.engine
        self.generation = Generation(self._engine.vocab, job.stop)
        self.generation.request = self._request()
        self._engine.loop.submit(self.generation.request)

    def _request(self) -> Request:
        job = self.job
        return Request(
            prompt=job.prompt,
            on_event=self._on_event,
            sampling=job.sampling,
            speculative=job.speculative,
            max_tokens=job.max_tokens,
            n_logprobs=job.n_logprobs,
            stop=stop_check(self._engine.vocab, job.stop),
            grammar=job.grammar.matcher() if job.grammar else None,
            cache_prompt=job.cache_prompt,
            slot=job.slot,
        )

    def _on_event(self, event: Event) -> None:
        """On the engine's thread, where a request's slot is certain."""
        if self.id_slot < 0 and (slot := self._slot()):
            self.id_slot = slot.seq
        self.generation.on_event(event)

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        try:
            async with aclosing(self.generation.__aiter__()) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    self._observe(chunk)
                    yield chunk
        finally:
            self.close()

    def close(self) -> None:
        """Nobody reads any more. Idempotent; every way out of a request passes here."""
        if not self._closed:
            self._closed = True
            self.service.leave(self)

    def _observe(self, chunk: Chunk) -> None:
        now = perf_counter()
        self.service.metrics.step(chunk, now - self._last, first=not self._n_chunks)
        self._last = now
        self._n_chunks += 1

    def timings(self) -> Timings:
        """So far, or at the end."""
        if self.generation.finish:
            return self.generation.finish.timings
        slot = self._slot()
        return slot.timings() if slot else Timings()

    def _slot(self) -> Slot | None:
        return next((slot for slot in self._engine.core.slots if slot.request is self.generation.request), None)


class Service:
    """One model and the requests it serves. Asynchronous parts run on one event loop; `load` on a thread of its own."""

    def __init__(self, settings: Settings, params: ServerParams, defaults: Defaults | None = None) -> None:
        self.settings = settings
        self.params = params
        self.defaults = defaults or Defaults(cache_prompt=params.cache_prompt)
        self.template_variables = params.template_variables()
        self.metrics = Metrics()
        self.created = int(time.time())
        self.progress = 0.0
        self.error: Exception | None = None
        self.grammars = Grammars(lambda: self.engine.grammars, self.defaults.grammar, self.defaults.json_schema)
        self.running: set[Running] = set()
        self._engine: Engine | None = None
        self._template: ChatTemplate | None = None
        self._closing = False
        self._draining: set[asyncio.Task[None]] = set()
        self._compiling = ThreadPoolExecutor(1, "paceline-grammars")
        self._n_compiling = 0

    # -- loading

    def load(self, on_progress: Callable[[float], None] | None = None) -> None:
        """Blocks until the model is there; raises what went wrong, and remembers it for /health."""

        def report(share: float) -> None:
            self.progress = share
            if on_progress:
                on_progress(share)

        try:
            engine = Engine.from_settings(self.settings, report)
            template = self._chosen_template(engine)
        except Exception as error:
            self.error = error
            raise
        self._template, self._engine, self.progress = template, engine, 1.0
        if self._closing:
            engine.close()

    def load_in_background(self, load: Callable[[], None] | None = None) -> None:
        """`load` may do more than the service's own, such as showing a bar."""

        def work() -> None:
            with suppress(PacelineError):
                (load or self.load)()

        threading.Thread(target=work, name="paceline-load", daemon=True).start()

    def _chosen_template(self, engine: Engine) -> ChatTemplate:
        given = self.params.template()
        if given is None:
            return engine.chat_template
        return engine.template_of(CHATML if given == "chatml" else given)

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
    def template(self) -> ChatTemplate:
        assert self.engine and self._template
        return self._template

    @property
    def model_names(self) -> tuple[str, ...]:
        """What clients may call the model; the first is what it is called in replies."""
        path = Path(self.settings.model.path)
        return (*self.params.aliases, path.stem, path.name, str(path))

    @property
    def model_name(self) -> str:
        return self.model_names[0]

    # -- requests

    async def prepare(self, work: Callable[[Service, Body], Prepared], body: Body) -> Prepared:
        """Templates and tokens, off the event loop. Grammars have a thread of their own: one may take a minute."""
        pool = self._compiling if self.grammars.wanted(body) else None
        if pool and self._n_compiling >= MAX_COMPILING:
            raise unavailable("too many grammars are waiting to be compiled", 10)
        self._n_compiling += bool(pool)
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work, self, body)
        finally:
            self._n_compiling -= bool(pool)

    def start(self, jobs: Sequence[Job]) -> list[Running]:
        """All of them or none."""
        started: list[Running] = []
        try:
            for job in jobs:
                started += [Running(self, job)]
                self.running.add(started[-1])
        except QueueFull as error:
            self._give_up(started)
            raise unavailable(str(error), self._seconds_until_free()) from error
        except BaseException:
            self._give_up(started)
            raise
        return started

    def _give_up(self, started: Sequence[Running]) -> None:
        for running in started:
            running.close()

    def leave(self, running: Running) -> None:
        """Its reader is done. One that was cancelled is read to its end on the side, for the records."""
        self.running.discard(running)
        finish = running.generation.finish
        if finish:
            self.metrics.finished(finish.timings)
            return
        running.generation.cancel()
        task = asyncio.get_running_loop().create_task(self._drain(running.generation))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _drain(self, generation: Generation) -> None:
        with suppress(PacelineError):
            async for _ in generation:
                pass
        if generation.finish:
            self.metrics.finished(generation.finish.timings)

    def _seconds_until_free(self) -> int:
        """A guess: everyone who waits takes as long as those before did, side by side."""
        engine = self.engine
        rounds = (len(self.running) + 1) / max(1, engine.n_slots)
        return max(1, min(60, round(rounds * self.metrics.mean_request_s)))

    # -- the end

    def stop_accepting(self) -> None:
        self._closing = True

    def cancel_all(self) -> None:
        for running in list(self.running):
            running.generation.cancel()

    def close(self) -> None:
        """Blocks until the engine's thread has ended."""
        self._closing = True
        self._compiling.shutdown(wait=False, cancel_futures=True)
        if self._engine:
            self._engine.close()
