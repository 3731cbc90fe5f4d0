"""The library: an engine that takes text and gives text. Joins the text room to an engine, here or in a child process.

from paceline import Engine
with Engine("model.gguf") as engine:
    for chunk in engine.generate("Once upon a time", max_tokens=50):
        print(chunk.text, end="")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from itertools import count
from math import isfinite
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from paceline.config import (
    MAX_TEXTS,
    ContextParams,
    EngineParams,
    ModelParams,
    SamplingParams,
    Settings,
    SpeculativeParams,
    resolve_seed,
)
from paceline.config.drafters import DrafterSettings, DraftModelParams
from paceline.drafters.names import canonical
from paceline.engine.request import Bounds, Event, Failed, Finished, Grammar, Request, Tokens
from paceline.engine.stats import DrafterStats
from paceline.engine.worker import WORKER
from paceline.errors import CannotWrite, ConfigError, PromptError, QueueFull
from paceline.generation import Generation
from paceline.process.base import Backend, Health, Info, OnProgress, Status, Vectors
from paceline.process.supervisor import ChildEngine
from paceline.text.builtin import BuiltinTemplate
from paceline.text.chat import CHATML, ChatTemplate
from paceline.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from paceline.drafters.base import Drafter
    from paceline.llama.shared import SharedModels
    from paceline.process.pairing import PairingStage, PairReport

Prompt = str | bytes | Sequence[int]
Params = TypeVar("Params", SamplingParams, SpeculativeParams)
Result = TypeVar("Result")
IDS = count(1)


class Engine:
    """A model ready to write. Opening loads it; use it as a context manager, or `close()` it. With `process` it lives
    in a child process: when that dies another is started, and every generation goes on where it was."""

    def __init__(
        self,
        model: str | None = None,
        *,
        draft: str | None = None,
        n_ctx: int = 0,
        n_slots: int = 1,
        n_threads: int = 0,
        exact: bool = False,
        spec_types: Sequence[str] | None = None,
        spec_policy: str = "auto",
        draft_window: int = DraftModelParams().window,
        process: bool = False,
        on_progress: OnProgress | None = None,
    ) -> None:
        types = tuple(spec_types) if spec_types is not None else default_types(draft is not None)
        context = ContextParams(n_ctx=n_ctx, n_threads=n_threads)
        settings = Settings(
            model=ModelParams(path=model or default_model()),
            draft=ModelParams(path=draft) if draft else None,
            context=context,
            draft_context=context,
            engine=EngineParams(
                n_slots=n_slots,
                exact=exact,
                spec_types=types,
                spec_policy=spec_policy,
                drafters=DrafterSettings(draft_model=DraftModelParams(window=draft_window)),
            ),
        )
        self._use(settings, ChildEngine(settings, on_progress) if process else here(settings, on_progress))

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        on_progress: OnProgress | None = None,
        drafters: Sequence[Drafter] = (),
        models: SharedModels | None = None,
        *,
        process: bool = False,
    ) -> Self:
        """For programs that have every setting at hand, drafters of their own (asked before ours), or several engines
        on the same models; the latter two in this process only."""
        if process and (drafters or models):
            raise ConfigError("drafters and models of your own cannot be taken to another process")
        engine = cls.__new__(cls)
        local = None if process else here(settings, on_progress, drafters, models)
        engine._use(settings, local or ChildEngine(settings, on_progress))
        return engine

    @classmethod
    def on(cls, settings: Settings, backend: Backend) -> Self:
        """For programs that have opened the settings in a way of their own, such as several engines behind one."""
        engine = cls.__new__(cls)
        engine._use(settings, backend)
        return engine

    def _use(self, settings: Settings, backend: Backend) -> None:
        self.settings = settings
        self.backend = backend
        self._running: dict[int, Generation] = {}

    # -- what there is

    @property
    def info(self) -> Info:
        """What was opened: model, limits, drafters, devices."""
        return self.backend.info

    @property
    def vocab(self) -> Vocabulary:
        return self.backend.vocabulary

    @property
    def n_slots(self) -> int:
        return self.info.limits.n_slots

    @property
    def n_ctx(self) -> int:
        """Tokens one slot can hold."""
        return self.info.limits.n_room

    @property
    def model_name(self) -> str:
        return self.info.description

    @property
    def speculation_off(self) -> str | None:
        """Why nothing is drafted, where nobody chose that."""
        return self.info.speculation_off

    @cached_property
    def chat_template(self) -> ChatTemplate:
        return ChatTemplate.of(self.info.chat_template, self.vocab, self.info.tool_template)

    def template_of(self, source: str | None, *, jinja: bool = True) -> ChatTemplate | BuiltinTemplate:
        """A chat template of somebody's own, with this model's special tokens; or one of libllama's, by its name.
        Without `jinja` libllama makes the prompt, of formats that it recognises."""
        if jinja and source == "chatml":
            return ChatTemplate.of(CHATML, self.vocab)
        if not jinja or source in self.info.builtin_templates:
            return BuiltinTemplate(source or self.info.chat_template or CHATML, self.backend.apply_template)
        return ChatTemplate.of(source, self.vocab) if source else self.chat_template

    # -- how it goes

    @property
    def health(self) -> Health:
        """Whether it computes, and how often its process was started again. Answers at once."""
        return self.backend.health

    def status(self) -> Status:
        """Counters since the start, slots, the planner's account: read off between two steps."""
        return self.backend.status()

    def drafter_stats(self) -> list[DrafterStats]:
        """Records since the start, over all requests."""
        return self.status().drafters

    @property
    def speedup(self) -> float | None:
        """The planner's estimate against no speculation, over all requests; None where nothing was planned yet."""
        return self.status().speedup

    def explain(self) -> dict[str, Any]:
        """Why the planner does what it does: cost curves in milliseconds, chances, who is switched off."""
        status = self.status()
        return {**status.why, "speedup": status.speedup}

    # -- what it does

    def tokenize(self, text: str | bytes, *, special: bool = True, parse_special: bool = True) -> list[int]:
        """A prompt's tokens: `special` adds what the model wants around it, `parse_special` reads `<|im_start|>` as
        one."""
        return self.backend.tokenize(utf8(text), special, parse_special)

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        sampling: SamplingParams | None = None,
        stop: Sequence[str] = (),
        speculative: SpeculativeParams | Mapping[str, Any] | None = None,
        logprobs: int | None = None,
        sampled_probs: bool = False,
        progress: bool = False,
        grammar: Grammar | None = None,
        bounds: Bounds | None = None,
        spelled: Sequence[int] = (),
        adapter: str | None = None,
        cache_prompt: bool = True,
        n_keep: int | None = None,
        slot: int | None = None,
        group: int | None = None,
        **overrides: Any,
    ) -> Generation:
        """Start writing. Further keywords set single sampling parameters, as in `temperature=0`.

        `grammar` is one of `Grammar`'s, as in `Grammar.json_schema({...})`, from the start on or as `bounds` say.
        Control tokens in `spelled` are part of the text. `adapter` says how much each LoRA counts, as in "0.5,1.0".
        `logprobs` are the model's own, with `sampled_probs` those the filters left. With `progress` chunks tell how
        far the prompt is read. Of a `group` all end with the first. `n_keep` tokens stay when the context shifts.
        """
        sampling = with_overrides(sampling or SamplingParams(), overrides)
        request = Request(
            id=next(IDS),
            prompt=(Tokens(self._tokens(prompt)),),
            sampling=replace(sampling, seed=resolve_seed(sampling.seed)),
            speculative=self._speculative(speculative),
            max_tokens=max_tokens,
            stop=checked_stops(stop),
            n_logprobs=logprobs,
            sampled_probs=sampled_probs,
            progress=progress,
            grammar=grammar,
            bounds=bounds,
            spelled=tuple(spelled),
            adapter=checked_scales(adapter, len(self.settings.model.adapters)),
            cache_prompt=cache_prompt,
            n_keep=n_keep,
            slot=slot,
            group=group,
            submitted=perf_counter(),
        )
        return self._start(request)

    def _start(self, request: Request) -> Generation:
        if not self.info.writes:
            raise CannotWrite(f"{self.settings.model.path} makes embeddings and cannot write text")
        self.info.limits.check(request)
        n_max = self.settings.engine.n_queue
        if len(self._running) - self.n_slots >= n_max:
            raise QueueFull(f"{n_max} requests are waiting already; try again later")
        generation = Generation(request, self.vocab, self.backend.cancel)

        def on_event(event: Event) -> None:
            if isinstance(event, Finished | Failed):
                self._running.pop(request.id, None)
            generation.on_event(event)

        self._running[request.id] = generation
        try:
            self.backend.submit(request, on_event)
        except BaseException:
            self._running.pop(request.id, None)
            raise
        return generation

    def _tokens(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str | bytes):
            return self.tokenize(prompt)
        if not all(isinstance(token, int) for token in prompt):
            raise PromptError("a prompt is text, or a list of token ids")
        return list(prompt)

    def _speculative(self, wanted: SpeculativeParams | Mapping[str, Any] | None) -> SpeculativeParams:
        default = self.settings.engine.speculative
        if wanted is None:
            return default
        params = with_overrides(default, wanted) if isinstance(wanted, Mapping) else wanted
        if params.types is None:
            return params
        types, loaded = canonical(params.types), self.info.drafters
        unknown = [name for name in types if name not in loaded]
        if unknown:
            raise ConfigError(f"drafter {unknown[0]} is not loaded; there are {', '.join(loaded) or 'none'} here")
        return replace(params, types=types)

    def embed(self, prompt: Prompt) -> list[float]:
        """The text as a vector of length one. The first call opens a context for it, beside the one that writes."""
        return self.embed_all([prompt])[0][0]

    def embed_all(self, prompts: Sequence[Prompt], *, normalize: int = 2, n_values: int | None = None) -> Vectors:
        """Each text's vectors: one, or with `pooling="none"` one a token. `normalize` is the norm that they get, -1 for
        none; `n_values` keeps the first so many of each. Texts beyond `embedded_together` wait for their turn."""
        texts = [self._tokens(prompt) for prompt in prompts]
        for tokens in texts:
            if not tokens or not all(0 <= token < self.vocab.n_tokens for token in tokens):
                raise PromptError("there is nothing to embed: a text is empty, or has tokens that the model does not")
        return [
            found for some in self.embedded_together(texts) for found in self.backend.embed(some, normalize, n_values)
        ]

    def embedded_together(self, texts: Sequence[list[int]]) -> Iterator[list[list[int]]]:
        """The same texts, as many at a time as are computed at once; others get their turn in between."""
        batch: list[list[int]] = []
        n_most = self.settings.context.n_ubatch
        for tokens in texts:
            if batch and (len(batch) == MAX_TEXTS or sum(map(len, batch)) + len(tokens) > n_most):
                yield batch
                batch = []
            batch.append(tokens)
        if batch:
            yield batch

    def pairs(self, query: str, documents: Sequence[str]) -> list[list[int]]:
        """The query with each document, as texts for a model that ranks: `embed_all` then gives a score for each."""
        return self.backend.pairs(utf8(query), [utf8(document) for document in documents])

    # -- slots, between requests

    def save_slot(self, slot: int, path: str) -> tuple[int, int]:
        """Keep an idle slot's memory in a file, the draft model's beside it; returns tokens and bytes."""
        return self.backend.save_slot(slot, path)

    def restore_slot(self, slot: int, path: str) -> tuple[int, int]:
        """Bring back what `save_slot` kept; returns tokens and bytes."""
        return self.backend.restore_slot(slot, path)

    def erase_slot(self, slot: int) -> int:
        """Empty an idle slot; returns how many tokens it held."""
        return self.backend.erase_slot(slot)

    def close(self) -> None:
        """Ends running requests and frees the models. Idempotent."""
        self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def here(
    settings: Settings,
    on_progress: OnProgress | None,
    drafters: Sequence[Drafter] = (),
    models: SharedModels | None = None,
) -> Backend:
    """The engine in this process. Only now libllama is loaded: a process whose engine is in a child never does."""
    from paceline.process.local import open_engine

    return open_engine(settings, on_progress, drafters, models)


def pair(
    settings: Settings,
    places: Sequence[str] = (),
    seconds: float = 20.0,
    on_stage: Callable[[PairingStage], None] | None = None,
) -> PairReport:
    """Which model files in these folders can draft for a target, and what each would gain on this machine; in its own
    folder and our cache folder where none is named. `seconds` for the target, and for each candidate."""
    from paceline.process.pairing import pair

    return pair(settings, places, seconds, on_stage)


def default_model() -> str:
    from paceline.models import demo_model

    return demo_model()


def between_steps(work: Callable[[], Result]) -> Result:
    """Run this while no engine in this process computes: several generations started here begin together."""
    return WORKER.call(work)


def default_types(has_draft: bool) -> tuple[str, ...]:
    """What drafts when nobody chose: what grammars force, look-ups in the text, and the draft model if there is one."""
    return ("grammar", "suffix", "draft-simple") if has_draft else ("grammar", "suffix")


def with_overrides(params: Params, overrides: Mapping[str, Any]) -> Params:
    """A copy with single values changed; unknown names are an error."""
    known = {field.name for field in fields(params)}
    unknown = set(overrides) - known
    if unknown:
        raise ConfigError(f"unknown parameter {sorted(unknown)[0]!r}; there are {', '.join(sorted(known))}")
    return replace(params, **overrides)


def checked_scales(text: str | None, n: int) -> str | None:
    """A finite number for each adapter, or None."""
    try:
        scales = [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        scales = [float("nan")]
    if text is not None and (len(scales) != n or not all(map(isfinite, scales))):
        raise ConfigError(f"adapter={text!r} does not say how much each of {n} LoRA adapters counts, as in '0.5,1.0'")
    return text


def checked_stops(stops: Sequence[str]) -> tuple[str, ...]:
    if isinstance(stops, str):
        raise ConfigError(f"stop strings must be a list, got the string {stops!r}")
    if not all(isinstance(stop, str) and stop for stop in stops):
        raise ConfigError("a stop string must be text, and not empty")
    return tuple(stops)


def utf8(text: str | bytes) -> bytes:
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeError as error:
        raise PromptError(f"the prompt is not valid UTF-8: {error}") from error
