"""The library: an engine that takes text and gives text. Joins the text room to the engine room.

from paceline import Engine
with Engine("model.gguf") as engine:
    for chunk in engine.generate("Once upon a time", max_tokens=50):
        print(chunk.text, end="")
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from paceline import models
from paceline.config import (
    ContextParams,
    DrafterSettings,
    DraftModelParams,
    EngineParams,
    ModelParams,
    SamplingParams,
    Settings,
    SpeculativeParams,
)
from paceline.drafters import registry
from paceline.drafters.base import Drafter
from paceline.drafters.draft_model import DraftModel, check_vocab, sharpness
from paceline.engine.drafting import Drafting
from paceline.engine.engine import Engine as Core
from paceline.engine.loop import EngineLoop
from paceline.engine.request import Request
from paceline.engine.stats import DrafterStats
from paceline.engine.warmup import IdleMeasuring, Measurement, warm_up
from paceline.engine.worker import WORKER
from paceline.errors import ConfigError, PromptError
from paceline.generation import Generation, stop_check
from paceline.llama.context import Context
from paceline.llama.embedder import Embedder
from paceline.llama.model import Model
from paceline.llama.shared import SharedModels
from paceline.opening import Finding, open_exactly
from paceline.planner.base import Policy
from paceline.planner.costs import CostCurve
from paceline.planner.fixed import FixedPolicy
from paceline.planner.planner import Planner
from paceline.planner.policy import AutoPolicy
from paceline.probe import POOR, probe, question
from paceline.text.chat import CHATML, ChatTemplate
from paceline.text.grammar import Grammar, GrammarCompiler

log = logging.getLogger("paceline")

MEASURING = 0.55  # seconds for the target's cost curve, before the first request
READING = 0.01  # of an answer's time may go into the draft model's reading of its prompt
USUAL_ANSWER = 256  # tokens, where a request sets no lower limit
LARGE = 128  # tokens in a batch where each costs as little as it ever will
HANDFUL = 64  # tokens: with fewer to go by a draft model drafts much worse
Prompt = str | bytes | Sequence[int]
Owned = TypeVar("Owned", Model, Context)
Params = TypeVar("Params", SamplingParams, SpeculativeParams)


class Engine:
    """A model ready to write. Opening loads it; use it as a context manager, or `close()` it."""

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
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        types = tuple(spec_types) if spec_types is not None else default_types(draft is not None)
        context = ContextParams(n_ctx=n_ctx, n_threads=n_threads)
        settings = Settings(
            model=ModelParams(path=model or models.default_model()),
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
        self._open(settings, on_progress)

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        on_progress: Callable[[float], None] | None = None,
        drafters: Sequence[Drafter] = (),
        models: SharedModels | None = None,
    ) -> Self:
        """For programs that have every setting at hand, drafters of their own (asked before ours), or several engines
        on the same models."""
        engine = cls.__new__(cls)
        engine._open(settings, on_progress, drafters, models)
        return engine

    def _open(
        self,
        settings: Settings,
        on_progress: Callable[[float], None] | None,
        drafters: Sequence[Drafter] = (),
        models: SharedModels | None = None,
    ) -> None:
        self.settings = settings
        self._own_drafters = drafters
        self._shared = models
        self._closers: list[Callable[[], None]] = []
        self._draft_costs = CostCurve()
        try:
            self._build(settings, on_progress)
        except BaseException:
            self.close()
            raise

    def _build(self, settings: Settings, on_progress: Callable[[float], None] | None) -> None:
        params = settings.engine
        types = registry.canonical(params.spec_types)
        self.exactness = self._open_target(settings, on_progress)
        self.vocab = self.model.vocab
        self.draft_context = self._open_draft(settings) if "draft-simple" in types else None
        if types and not self.model.can_roll_back:
            types = ()
        self.policy = self._policy(settings, types)
        self._drafter = self._draft_model(params)
        drafters = [*self._own_drafters, *registry.build(types, params.drafters, self._drafter)]
        drafting = Drafting(drafters, self.policy, self.vocab.eog)
        layout = self.exactness.layout if self.exactness else None
        self.core = Core(self.context, self.vocab, drafting, params, layout)
        self.loop = EngineLoop(self.core, self._idle_measuring())
        self._closers.append(self.loop.close)

    def _open_target(self, settings: Settings, on_progress: Callable[[float], None] | None) -> Finding | None:
        """Model and context; in exact mode also by which batches they are exact."""
        shape = replace(settings.context, n_seqs=settings.engine.n_slots)
        if not settings.engine.exact:
            self.model = self._model(settings.model, on_progress)
            self.context = self._owned(Context(self.model, shape))
            return None
        shape = replace(shape, kv_unified=False, flash_attn=True)
        opening, found = open_exactly(settings.model, shape, on_progress, self._shared)
        self._closers.append(opening.close)
        self.model, self.context = opening.model, opening.context
        return found

    def _open_draft(self, settings: Settings) -> Context:
        """The draft's context holds one window per slot, whatever the target's size."""
        if settings.draft is None:
            raise ConfigError("draft-simple needs a draft model: give one with -md")
        params = settings.engine.drafters.draft_model
        model = self._model(settings.draft)
        check_vocab(self.vocab, model.vocab)
        window = min(params.window or model.n_ctx_train, model.n_ctx_train or params.window)
        n_slots = settings.engine.n_slots
        shape = replace(settings.draft_context, n_seqs=n_slots, n_ctx=window * n_slots)
        context = replace(shape, n_batch=params.n_batch, n_ubatch=settings.context.n_ubatch)
        return self._owned(Context(model, context))

    def _policy(self, settings: Settings, types: Sequence[str]) -> Policy:
        """Literal flags, or a planner with this machine's cost curves, measured now or kept from an earlier run."""
        if settings.engine.spec_policy == "fixed" or not (types or self._own_drafters):
            return FixedPolicy()
        target = self._curve(self.context, MEASURING)
        policy = AutoPolicy(Planner(target, least=self.exactness.layout.least if self.exactness else 0))
        if self.draft_context:
            self._draft_costs = self._curve(self.draft_context, MEASURING / 4)
            self._probe(self.draft_context, policy)
        return policy

    def _probe(self, draft: Context, policy: AutoPolicy) -> None:
        """Tell the policy how far the draft model can be trusted, and people if it cannot."""
        asked = question(self.vocab, (lambda: self.chat_template) if self.model.chat_template else None)
        opinions = WORKER.call(lambda: probe(self.context, draft, asked, self.vocab.eog))
        policy.set_agreement(DraftModel.name, opinions, self._draft_costs.predict(1))
        agreement = policy.agreement.get(DraftModel.name, 1.0)
        if agreement < POOR:
            log.warning(
                "%s says what the target says in %.0f %% of a test text: it will hardly ever draft. "
                "A smaller model of the target's own family does better.",
                Path(draft.model.path).name,
                100 * agreement,
            )

    def _curve(self, context: Context, seconds: float) -> CostCurve:
        path = models.cache_folder() / "costs" / f"{context.fingerprint}.json"
        curve = CostCurve.load(path, context.about)
        WORKER.call(lambda: warm_up(context, curve, seconds))
        self._closers.append(lambda: curve.save(path, context.about))
        return curve

    def _draft_model(self, params: EngineParams) -> DraftModel | None:
        if self.draft_context is None:
            return None
        planner = self.policy.planner if isinstance(self.policy, AutoPolicy) else None
        return DraftModel(
            self.draft_context,
            params.drafters.draft_model,
            self._draft_costs,
            sharpness=sharpness(self.draft_context.model, self.model),
            n_worth=worth_reading(planner, self._draft_costs) if planner else None,
        )

    def _idle_measuring(self) -> IdleMeasuring | None:
        if not isinstance(self.policy, AutoPolicy):
            return None
        measured = [(Measurement(self.context, self.policy.planner.target), self.core.idle_place)]
        if self._drafter and self.draft_context:
            measured.append((Measurement(self.draft_context, self._draft_costs), self._drafter.idle_place))
        return IdleMeasuring(measured)

    def _model(self, params: ModelParams, on_progress: Callable[[float], None] | None = None) -> Model:
        """Our own to free, or one of those that are shared."""
        if self._shared:
            return self._shared.get(params, on_progress)
        return self._owned(Model(params, on_progress))

    def _owned(self, resource: Owned) -> Owned:
        self._closers.append(resource.close)
        return resource

    # -- what there is

    @property
    def n_slots(self) -> int:
        return len(self.core.slots)

    @property
    def n_ctx(self) -> int:
        """Tokens one slot can hold."""
        return self.core.n_room

    @property
    def model_name(self) -> str:
        return self.model.description

    @property
    def chat_template(self) -> ChatTemplate:
        return self.template_of(self.model.chat_template or CHATML)

    def template_of(self, source: str) -> ChatTemplate:
        """A chat template of somebody's own, with this model's special tokens."""
        vocab = self.vocab
        bos, eos = (vocab.render(t, special=True).decode() if t >= 0 else "" for t in (vocab.bos, vocab.eos))
        return ChatTemplate(source, bos, eos, adds_bos=vocab.add_bos)

    @cached_property
    def grammars(self) -> GrammarCompiler:
        """Compiles JSON schemas, GBNF and the like for this model's tokens."""
        vocab = self.vocab
        pieces = [b"" if t in vocab.control else vocab.piece(t) for t in range(vocab.n_tokens)]
        return GrammarCompiler(pieces, sorted(vocab.eog), sorted(vocab.control), vocab.tokenize_bytes)

    def drafter_stats(self) -> list[DrafterStats]:
        """Records since the start, over all requests."""
        return list(self.core.drafting.stats.values())

    @property
    def speedup(self) -> float | None:
        """The planner's estimate against no speculation, over all requests; None where nothing was planned yet."""
        plain, actual = self.planned_seconds or (0.0, 0.0)
        if not actual:
            return None
        return plain / actual if any(stats.n_tokens for stats in self.drafter_stats()) else 1.0

    @property
    def planned_seconds(self) -> tuple[float, float] | None:
        """What the planner thinks all answers would have taken without speculation, and what they took."""
        if not isinstance(self.policy, AutoPolicy):
            return None
        return self.policy.planner.seconds_plain, self.policy.planner.seconds_actual

    def explain(self) -> dict[str, Any]:
        """Why the planner does what it does: cost curves in milliseconds, chances, who is switched off."""
        if not isinstance(self.policy, AutoPolicy):
            return {"policy": "fixed"}
        planner = self.policy.planner
        return {
            "policy": "auto",
            "speedup": self.speedup,
            "target_ms": {n: 1e3 * s for n, s in planner.target.sizes.items()},
            "draft_ms": {n: 1e3 * s for n, s in self._draft_costs.sizes.items()},
            "change_ms": [1e3 * s for s in planner.target.change],
            "attention": planner.target.drift.attention,
            "predicted_ms": 1e3 * planner.predicted,
            "actual_ms": 1e3 * planner.actual,
            "p_accept": self.policy.acceptance.means(),
            "agreement": self.policy.agreement,
            "resting": sorted(name for name in self.policy.resting if self.policy.gains.n_asked[name]),
        }

    def tokenize(self, text: str | bytes) -> list[int]:
        """A prompt's tokens, with what the model wants around it."""
        return self.vocab.tokenize(text)

    # -- what it does

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        sampling: SamplingParams | None = None,
        stop: Sequence[str] = (),
        speculative: SpeculativeParams | Mapping[str, Any] | None = None,
        logprobs: int | None = None,
        grammar: Grammar | None = None,
        **overrides: Any,
    ) -> Generation:
        """Start writing. Further keywords set single sampling parameters, as in `temperature=0`.

        `grammar` comes from `engine.grammars`, as in `engine.grammars.json_schema({...})`.
        """
        generation = Generation(self.vocab, stop)
        request = Request(
            prompt=self._tokens(prompt),
            on_event=generation.on_event,
            sampling=with_overrides(sampling or SamplingParams(), overrides),
            speculative=self._wishes(speculative),
            max_tokens=max_tokens,
            n_logprobs=logprobs,
            stop=stop_check(self.vocab, stop),
            grammar=grammar.matcher() if grammar else None,
        )
        generation.request = request
        self.loop.submit(request)
        return generation

    def _tokens(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str | bytes):
            return self.tokenize(prompt)
        if not all(isinstance(token, int) for token in prompt):
            raise PromptError("a prompt is text, or a list of token ids")
        return list(prompt)

    def _wishes(self, wishes: SpeculativeParams | Mapping[str, Any] | None) -> SpeculativeParams:
        default = self.settings.engine.speculative
        if wishes is None:
            return default
        if isinstance(wishes, Mapping):
            wishes = with_overrides(default, wishes)
        if wishes.types is None:
            return wishes
        types = registry.canonical(wishes.types)
        unknown = set(types) - set(self.core.drafting.stats)
        if unknown:
            raise ConfigError(f"drafter {sorted(unknown)[0]} is not loaded; start the engine with it")
        return replace(wishes, types=types)

    def embed(self, prompt: Prompt) -> list[float]:
        """The text as a vector of length one. The first call opens a context for it, beside the one that writes."""
        tokens = self._tokens(prompt)
        if not tokens or not all(0 <= token < self.vocab.n_tokens for token in tokens):
            raise PromptError("there is nothing to embed: the text is empty, or has tokens that the model does not")
        return self.loop.call(lambda: self._embedder.embed(tokens).tolist())

    @cached_property
    def _embedder(self) -> Embedder:
        """Closed after the loop that uses it, before the model it reads."""
        embedder = Embedder(self.model, self.settings.context)
        self._closers.insert(1, embedder.close)
        return embedder

    # -- slots, between requests

    def save_slot(self, slot: int, path: str) -> tuple[int, int]:
        """Keep an idle slot's memory in a file, the draft model's beside it; returns tokens and bytes."""

        def save() -> tuple[int, int]:
            tokens = self.core.idle_tokens(slot)
            n_bytes = self.context.save(slot, tokens, path)
            if self._drafter:
                self._drafter.save(slot, f"{path}.draft")
            return len(tokens), n_bytes

        return self.loop.call(save)

    def restore_slot(self, slot: int, path: str) -> tuple[int, int]:
        """Bring back what `save_slot` kept; returns tokens and bytes."""

        def restore() -> tuple[int, int]:
            self.core.forget(slot)
            tokens, n_bytes = self.context.load(slot, path)
            self.core.remember(slot, tokens)
            if self._drafter and Path(f"{path}.draft").exists():
                self._drafter.load(slot, f"{path}.draft")
            return len(tokens), n_bytes

        return self.loop.call(restore)

    def erase_slot(self, slot: int) -> int:
        """Empty an idle slot; returns how many tokens it held."""
        return self.loop.call(lambda: self.core.forget(slot))

    def close(self) -> None:
        """Ends running requests and frees the models. Idempotent."""
        while self._closers:
            self._closers.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def worth_reading(planner: Planner, draft: CostCurve) -> Callable[[int], int]:
    """How many tokens of a prompt the draft model should read for an answer of this length; never a handful."""

    def n_worth(n_left: int) -> int:
        seconds = READING * min(n_left, USUAL_ANSWER) * planner.plain_seconds / planner.n_slots
        return max(HANDFUL, int(seconds * LARGE / max(1e-9, draft.predict(LARGE))))

    return n_worth


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
