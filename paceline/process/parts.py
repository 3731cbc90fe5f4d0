"""What an engine is put together from: models, contexts, drafters, a policy with this machine's costs. Opened in order,
closed in the opposite one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from paceline import models
from paceline.config import ContextParams, ModelParams, Settings
from paceline.config.cores import share_cores
from paceline.drafters import registry
from paceline.drafters.base import Drafter, OwnContexts, Resources
from paceline.drafters.draft_model import DraftModel
from paceline.drafters.mtp import Mtp
from paceline.drafters.names import canonical
from paceline.engine.warmup import reading_share, warm_up
from paceline.engine.worker import WORKER
from paceline.errors import ConfigError
from paceline.llama.context import Context
from paceline.llama.hidden import Hidden
from paceline.llama.loading import idle_flags
from paceline.llama.model import Model
from paceline.llama.rpc import WORKERS
from paceline.llama.shared import SharedModels
from paceline.planner.base import USUAL_ANSWER, Policy
from paceline.planner.costs import CostCurve
from paceline.planner.fixed import FixedPolicy
from paceline.planner.planner import Planner
from paceline.planner.policy import AutoPolicy
from paceline.process import heads
from paceline.process.base import OnProgress
from paceline.process.gguf_check import Contents, check_gguf
from paceline.process.opening import Finding, open_exactly
from paceline.process.probe import POOR, probe, question
from paceline.text.chat import ChatTemplate

log = logging.getLogger("paceline")

MEASURING = 0.75  # seconds for the target's cost curve, before the first request
READING = 0.01  # of an answer's time may go into the draft model's reading of its prompt
HANDING_OUT = 0.01  # of a prompt's time may go into handing out the target's rows of it
LARGE = 128  # tokens in a batch where each costs as little as it ever will
HANDFUL = 64  # tokens: with fewer to go by a draft model drafts much worse
SNAPSHOTS = 8  # of a recurrent state, which can be 50 MiB for each slot; longer drafts are taken back by a checkpoint
NO_GPU = "libllama sees no GPU here: %s cannot act (`paceline devices` says how to install a build for one)"
RECURRENT = "{} has a recurrent memory, which --exact computes one token at a time; run it without --exact"
USELESS = "%s says what the target says in %.0f %% of a test text: it will hardly ever draft. %s"
BETTER_MODEL = "A smaller model of the target's own family does better."
BETTER_HEAD = "Was the head trained for this very model?"


class Parts:
    """`exactness` says by which batches the target is exact, in exact mode. `drafters` of somebody's own are asked
    before ours. `hurried` measures nothing that was measured before: somebody is waiting."""

    def __init__(
        self,
        settings: Settings,
        on_progress: OnProgress | None = None,
        drafters: Sequence[Drafter] = (),
        shared: SharedModels | None = None,
        *,
        hurried: bool = False,
    ) -> None:
        self._again = hurried
        self._hurried = hurried or not settings.engine.warmup
        self.settings = share_cores(settings)
        self._shared = shared
        self._stack = ExitStack()
        self.computing: dict[str, OwnContexts] = {}
        self.curves: dict[str, CostCurve] = {}
        self.speculation_off: str | None = None
        try:
            self._open(on_progress, drafters)
        except BaseException:
            self.close()
            raise

    def _open(self, on_progress: OnProgress | None, own: Sequence[Drafter]) -> None:
        params = self.settings.engine
        types = self._types(check_gguf(self.settings.model.path))
        for adapter, _ in self.settings.model.adapters:
            check_gguf(adapter)
        WORKERS.join(self.settings.workers)
        if idle := idle_flags(self.settings):
            log.warning(NO_GPU, ", ".join(idle))
        self.exactness = self._open_target(on_progress, drafts=bool(types or own))
        if types and self.exactness and self.exactness.layout.most == 1:
            types, self.speculation_off = (), RECURRENT.format(Path(self.model.path).name)
        for name in registry.that_compute(types):
            self.computing[name] = self._open_draft() if name == DraftModel.name else self._open_heads(name)
        wanted = params.spec_policy == "auto" and not params.is_synthetic and bool(types or own)
        self.planner = self._planner() if wanted else None
        self.drafters = [*own, *registry.build(types, Resources(params.drafters, self.model, self.computing))]
        self.rows = self._rows()
        self.policy = self._policy()
        if params.is_synthetic:
            log.warning("drafts are accepted by chance (--spec-synth): what is written means nothing")
        if self.speculation_off:
            log.warning("speculation is off: %s", self.speculation_off)

    def _open_target(self, on_progress: OnProgress | None, *, drafts: bool) -> Finding | None:
        """Model and context; in exact mode also by which batches they are exact. Snapshots may change the bits: in
        exact mode they are there whether anybody drafts or not."""
        settings = self.settings
        longest = settings.engine.speculative.n_max
        shape = replace(settings.context, n_seqs=settings.engine.n_slots, n_snapshots=SNAPSHOTS)
        if not settings.engine.exact:
            n = SNAPSHOTS if longest is None else min(longest, SNAPSHOTS)
            shape = replace(shape, n_snapshots=n if drafts else 0)
            self.model = self._model(settings.model, on_progress)
            self.context = self._stack.enter_context(Context(self.model, self._apart(shape)))
            return None
        shape = replace(shape, kv_unified=False, flash_attn=True)
        opening, found = open_exactly(settings.model, shape, on_progress, self._shared, again=self._again)
        self._stack.callback(opening.close)
        self.model, self.context = opening.model, opening.context
        return found

    def _apart(self, shape: ContextParams) -> ContextParams:
        """Slots of a model with a sliding window have cells of their own: of one pool libllama gives away those that a
        window has left behind, and a prompt that goes on from there would miss them."""
        if not self.model.n_swa or shape.n_seqs == 1 or shape.kv_unified is False:
            return shape
        if shape.kv_unified:
            log.warning("-kvu cannot act: slots of a model with a sliding window have cells of their own")
        return replace(shape, kv_unified=False)

    def _types(self, target: Contents) -> tuple[str, ...]:
        """What drafts, with the files there are. The target's own heads are loaded with it where they are wanted, or
        where the model is shared with others who may want them."""
        draft = self.settings.draft.path if self.settings.draft else None
        types = heads.resolved(canonical(self.settings.engine.spec_types), target, draft)
        self._own_heads = heads.uses_own_blocks(types, draft)
        if self._own_heads or (self._shared and heads.has_blocks(target)):
            self.settings = replace(self.settings, model=replace(self.settings.model, mtp=True))
        return types

    # -- what drafts

    def _open_draft(self) -> OwnContexts:
        """The draft's context holds one window per slot, whatever the target's size."""
        draft = self.settings.draft
        if draft is None:
            raise ConfigError("draft-simple needs a draft model: give one with -md")
        check_gguf(draft.path)
        model = self._model(draft)
        window, shape = self._draft_shape(model.n_ctx_train)
        context = Context(model, replace(shape, n_ctx=window * shape.n_seqs))
        return OwnContexts(CostCurve(), window, self._stack.enter_context(context))

    def _draft_shape(self, n_trained: int) -> tuple[int, ContextParams]:
        """How much of each text a draft model or a head holds, and its context but for the size."""
        settings, params = self.settings, self.settings.engine.drafters.draft_model
        window = min(params.window or n_trained, n_trained or params.window)
        shape = replace(settings.draft_context, n_seqs=settings.engine.n_slots, kv_unified=True)
        return window, replace(shape, n_batch=params.n_batch)

    def _open_heads(self, name: str) -> OwnContexts:
        """From a file of their own, or from the target's."""
        own = name == Mtp.name and self._own_heads
        params = self.settings.model if own or self.settings.draft is None else self.settings.draft
        heads.check_fit(name, params.path, self.model)
        heads.try_out(self.model, params)
        head = self.model if own else self._model(replace(params, head=True, mtp=True))
        heads.check_words(name, head, self.model)
        window, shape = self._draft_shape(self.model.n_ctx_train)
        opened = heads.open_heads(name, head, self.context, shape, window, self._stack.enter_context)
        for each in opened:
            WORKER.call(each.try_shortcut)
        return OwnContexts(CostCurve(), window, heads=opened)

    def _rows(self) -> Hidden | None:
        """What the target hands out, where somebody reads it."""
        sources = [drafter.source for drafter in self.drafters if drafter.reads_target]
        if not sources:
            return None
        rows = Hidden(self.context.handle, self.model, sources)
        if self.exactness and rows.has_nextn:
            rows.is_free = WORKER.call(lambda: heads.change_nothing(rows, self.context))
        return rows

    def _model(self, params: ModelParams, on_progress: OnProgress | None = None) -> Model:
        """Our own to free, or one of those that are shared."""
        if self._shared:
            return self._shared.get(params, on_progress)
        return self._stack.enter_context(Model(params, on_progress))

    # -- the policy

    def _planner(self) -> Planner:
        """With this machine's cost curves, measured now or kept from an earlier run."""
        target = self._curve(self.context, MEASURING)
        least = self.exactness.layout.least if self.exactness else 0
        planner = Planner(target, least=least, n_rollback=self.context.n_rollback)
        for name, computing in self.computing.items():
            computing.costs = curve = self.curves[name] = self._curve(computing.main, MEASURING / 4)
            row = heads.row_seconds(self.model.n_embd) if computing.heads else 0.0
            share = self._reading_share(computing, curve)
            computing.n_worth = worth_reading(planner, curve, row, share)
        return planner

    def _reading_share(self, computing: OwnContexts, curve: CostCurve) -> float:
        """libllama computes the logits of most heads for whatever they read."""
        if not all(head.reads_apart for head in computing.heads):
            return 1.0
        return WORKER.call(lambda: reading_share(computing.main, curve))

    def _policy(self) -> Policy:
        """A planner's, or the flags taken literally."""
        if self.planner is None:
            return FixedPolicy()
        policy = AutoPolicy(self.planner)
        self._probe(policy)
        return policy

    def _curve(self, context: Context, seconds: float) -> CostCurve:
        path = models.cache_folder() / "costs" / f"{context.fingerprint}.json"
        curve = CostCurve.load(path, context.about)
        if not (self._hurried and curve.known):
            WORKER.call(lambda: warm_up(context, curve, seconds))
            curve.save(path, context.about)
        self._stack.callback(lambda: curve.save(path, context.about))
        return curve

    def _probe(self, policy: AutoPolicy) -> None:
        """Tell the policy how far a draft model or a head can be trusted, and people if it cannot."""
        source, vocab = self.model.chat_template, self.model.vocab
        asked = question(vocab, (lambda: ChatTemplate.of(source, vocab)) if source else None)
        for drafter in self.drafters:
            own = self.computing.get(drafter.name)
            if own is None:
                continue
            rows = self.rows if drafter.reads_target else None
            found = WORKER.call(partial(probe, self.context, drafter, asked, vocab.eog, rows))
            token = 0.0 if drafter.block or not drafter.costs else drafter.costs.predict(1)
            policy.set_agreement(drafter.name, found.agreements, token, max(0.0, found.seconds - token))
            agreement = policy.agreement.get(drafter.name, 1.0)
            if agreement < POOR:
                better = BETTER_HEAD if drafter.reads_target else BETTER_MODEL
                log.warning(USELESS, Path(own.main.model.path).name, 100 * agreement, better)

    def close(self) -> None:
        self._stack.close()


def worth_reading(
    planner: Planner, draft: CostCurve, row_seconds: float = 0.0, share: float = 1.0
) -> Callable[[int, int], int]:
    """How much of a text of this length should be read for an answer of that length; never a handful. Reading takes a
    `share` of what is computed with logits. Where it is the target's rows that are read, handing them out takes time
    too, and a prompt must not become much slower by it."""

    def n_worth(n_text: int, n_left: int) -> int:
        seconds = READING * min(n_left, USUAL_ANSWER) * planner.plain_seconds / planner.n_slots
        n = seconds / max(1e-9, share * draft.predict(LARGE) / LARGE + row_seconds)
        if row_seconds:
            n = min(n, HANDING_OUT * n_text * planner.target.predict(LARGE) / LARGE / row_seconds)
        return max(HANDFUL, int(n))

    return n_worth
