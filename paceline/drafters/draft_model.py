"""`draft-simple`: a smaller model with the target's vocabulary writes ahead.

One context serves all sequences. Each sees a window of its history: the first few tokens and the latest ones. When the
window is full the oldest of the latter go, so time and memory stay flat however long the text gets. Tokens
that turn out right stay in the cache; only wrong ones are removed.

Bound: window tokens per sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Self

from paceline.config.drafters import DraftModelParams
from paceline.drafters.base import Costs, Draft, Drafter, DraftRequest, Resources
from paceline.drafters.writing import Writing
from paceline.errors import RequestError
from paceline.llama.context import Context
from paceline.llama.lib import Floats
from paceline.llama.model import Model, Vocab

SHARPER = 0.3  # measured: a draft a tenth of the target's size agrees most often when its logits count 1.3 times
SLIDE = 16  # a sixteenth at a time: less often would cost context, more often time


def sharpness(draft: Model, target: Model) -> float:
    """The smaller the draft, the flatter its distribution; a draft as large as the target needs no sharpening."""
    return 1.0 + SHARPER * (1.0 - min(1.0, draft.n_params / max(1, target.n_params)))


@dataclass(slots=True)
class View:
    """What the draft's cache holds of one sequence: its first `n_keep` tokens, and what follows `skipped` more.

    The first `n_sure` cached tokens are known to be the text's; the rest was drafted and is checked next time.
    """

    n_keep: int
    cached: list[int] = field(default_factory=list)
    skipped: int = 0
    n_sure: int = 0

    def index(self, position: int) -> int:
        """Where in the text the token at this position of the cache stands."""
        return position if position < self.n_keep else position + self.skipped

    def missing(self, text: list[int]) -> list[int]:
        """Tokens of the window that are not cached."""
        n = len(self.cached)
        if n >= self.n_keep or not self.skipped:
            return text[n + self.skipped :]
        return text[n : self.n_keep] + text[self.n_keep + self.skipped :]

    def n_right(self, text: Sequence[int], n_max: int) -> int:
        """How many cached tokens are the text's, none beyond its first `n_max`."""
        n = self.n_sure
        end = max(0, min(len(self.cached), n_max - self.skipped))
        while n < end and self.cached[n] == text[self.index(n)]:
            n += 1
        return min(n, end)


class DraftModel(Drafter):
    """All sequences' drafts from one draft context."""

    name = "draft-simple"

    def __init__(
        self,
        context: Context,
        params: DraftModelParams,
        costs: Costs,
        *,
        sharpness: float = 1.0,
        n_worth: Callable[[int, int], int] | None = None,
        n_target: int | None = None,
    ) -> None:
        """`n_worth` says how much of a text of this length is worth reading when so many tokens may follow it; all that
        the window holds where nobody says. `costs` hear of every draft step. The target knows `n_target` tokens, where
        not as many as the draft."""
        self.context = context
        self.costs: Costs = costs
        self._step_costs = costs
        self.params = params
        trained = context.model.n_ctx_train or context.n_ctx_seq
        self.window = min(params.window or trained, trained, context.n_ctx_seq)
        self.n_keep = min(params.n_keep, self.window // 4)
        self._n_worth = n_worth or (lambda n_text, n_left: self.window)
        self._n_target = n_target or context.n_vocab
        self._writing = Writing(params, context.model.vocab.eog, self._n_target, sharpness)
        self._views = [View(self.n_keep) for _ in range(context.n_seqs)]
        self._batch = context.new_batch()
        self._can_shift = context.can_shift

    @classmethod
    def build(cls, resources: Resources) -> Self:
        own = resources.computing(cls.name)
        assert own.context
        how_sharp = sharpness(own.context.model, resources.target)
        params = resources.settings.draft_model
        n_target = resources.target.vocab.n_tokens
        made = cls(own.context, params, own.costs, sharpness=how_sharp, n_worth=own.n_worth, n_target=n_target)
        made.meet(resources.target.vocab)
        return made

    def meet(self, target: Vocab) -> None:
        """For whose vocabulary it drafts, before the first text. Here it is one and the same."""

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        """Keep what is cached of an earlier request as far as it is this prompt's beginning too."""
        view = self._views[seq]
        view.n_sure = 0
        text, n_stays = self._prompt(seq, tokens)
        self._align(seq, view, text, len(text))
        view.n_sure = max(0, min(view.n_sure, n_stays - view.skipped))

    def save(self, seq: int, path: str) -> None:
        """The window goes to a file; before its tokens how much of the text it keeps and skips."""
        view = self._views[seq]
        self.context.save(seq, [view.n_keep, view.skipped, *view.cached], path)

    def load(self, seq: int, path: str) -> None:
        """The next draft compares what was read with the text, as it does with what was cached."""
        self._views[seq] = View(self.n_keep)
        self.context.remove(seq, 0)
        found = self.context.read(path)
        n_keep, skipped, *cached = found.tokens
        if n_keep != self.n_keep or len(cached) > self.window:
            raise RequestError(f"{Path(path).name} was saved with another window (-cd)")
        self.context.fill(seq, found)
        self._views[seq] = View(self.n_keep, cached, skipped)

    def idle_place(self) -> tuple[int, int]:
        """The sequence of which least is cached, and how much that is."""
        seq = min(range(len(self._views)), key=lambda seq: len(self._views[seq].cached))
        return seq, len(self._views[seq].cached)

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        """Nothing to do: the next draft compares the cache with the text."""

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        """The cache stays, for a request that goes on from here."""

    def close(self) -> None:
        self.context.close()

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = [Draft(source=self.name) for _ in requests]
        limits = [min(request.n_max, self.params.n_max, self.window // 4) for request in requests]
        feeds = [self._catch_up(request, self._n_steps(n)) for request, n in zip(requests, limits, strict=True)]
        alive = list(range(len(requests)))
        if len(requests) == 1:
            self._catch_up_slowly(requests[0].seq, feeds[0])
        while alive:
            start = perf_counter()
            n_fed = sum(len(feeds[i]) for i in alive)
            rows = self._feed([requests[i].seq for i in alive], [feeds[i] for i in alive])
            for i, row in zip(alive, rows, strict=True):
                feeds[i] = self._extend(requests[i], drafts[i], row, limits[i])
            alive = [i for i in alive if feeds[i]]
            self._step_costs.observe(n_fed, perf_counter() - start)
        return [self._writing.long_enough(draft) for draft in drafts]

    # -- the text, in the draft's tokens

    def _prompt(self, seq: int, tokens: Sequence[int]) -> tuple[Sequence[int], int]:
        """A text that begins, and how many of its tokens are there to stay when it goes on."""
        return tokens, len(tokens)

    def _text(self, request: DraftRequest) -> tuple[list[int], int]:
        """The same of a text that is to be continued."""
        text = [*request.tokens, *request.ahead] if request.ahead else request.tokens
        return text, len(request.tokens)

    def _extend(self, request: DraftRequest, draft: Draft, row: Floats, limit: int) -> list[int]:
        """Add a token to the draft; returns what to compute next, nothing when the draft ends."""
        return draft.tokens[-1:] if self._writing.extend(request, draft, row, limit) else []

    def _n_steps(self, limit: int) -> int:
        """How many tokens of its own it may write for a draft of so many."""
        return limit

    def _known(self, tokens: list[int]) -> list[int]:
        """Vocabularies differ in length by a few unused tokens: one that is unknown here is read as the last."""
        last = self.context.n_vocab - 1
        return tokens if self._n_target <= last + 1 else [min(token, last) for token in tokens]

    # -- the window

    def _catch_up(self, request: DraftRequest, n_ahead: int) -> list[int]:
        """Bring the cache in line with the text; returns the tokens it has not seen, at least one."""
        view = self._views[request.seq]
        text, n_stays = self._text(request)
        self._align(request.seq, view, text, len(text) - 1)
        view.n_sure = max(0, min(view.n_sure, n_stays - view.skipped))
        n_new = len(text) - view.skipped - len(view.cached)
        if n_new > self.window or n_new > self._n_worth(len(text), request.n_left):
            self._refill(request.seq, view, len(text), self._n_worth(len(text), request.n_left))
        elif len(text) - view.skipped + n_ahead > self.window:
            self._slide(request.seq, view, len(text), n_ahead)
        return view.missing(text)

    def _align(self, seq: int, view: View, text: Sequence[int], n_max: int) -> None:
        """Remove cached tokens that are not the text's, or beyond its first `n_max`."""
        n = view.n_right(text, n_max)
        if n < len(view.cached) and not self.context.remove(seq, n):
            self.context.remove(seq, 0)
            n = 0
        del view.cached[n:]
        view.n_sure = n
        if n <= view.n_keep:
            view.skipped = 0

    def _slide(self, seq: int, view: View, n_text: int, n_ahead: int) -> None:
        """Drop the oldest tokens; where the memory cannot shift, or little would be left, refill it."""
        n_needed = n_text - view.skipped + n_ahead - self.window
        n_drop = max(self.window // SLIDE, n_needed + n_ahead)
        if not self._can_shift or n_drop > (len(view.cached) - view.n_keep) // 2:
            self._refill(seq, view, n_text, self.window)
            return
        start, end = view.n_keep, view.n_keep + n_drop
        self.context.remove(seq, start, end)
        self.context.shift(seq, end, -n_drop)
        del view.cached[start:end]
        view.skipped += n_drop
        view.n_sure -= n_drop

    def _refill(self, seq: int, view: View, n_text: int, n_latest: int) -> None:
        """Start afresh with the first tokens and the latest, half a window of them at most."""
        n_latest = min(n_latest, (self.window - view.n_keep) // 2)
        self.context.remove(seq, 0)
        view.cached, view.n_sure, view.skipped = [], 0, max(0, n_text - view.n_keep - n_latest)

    # -- computing

    def _catch_up_slowly(self, seq: int, feed: list[int]) -> None:
        """All but the last token, one by one where that is quicker: on a GPU the graph for one is warm, and leaving it
        costs more than a few tokens do."""
        costs, n = self._step_costs, len(feed)
        while len(feed) > 1 and costs.price and n * costs.predict(1) < costs.predict(n) + costs.price:
            start = perf_counter()
            self._decode([(seq, [feed.pop(0)])], n_outputs=1)
            costs.observe(1, perf_counter() - start)

    def _feed(self, seqs: list[int], feeds: list[list[int]]) -> list[Floats]:
        """Compute each sequence's tokens; returns the logits after the last of each."""
        room = max(1, self.context.n_batch // len(seqs))
        for seq, feed in zip(seqs, feeds, strict=True):
            while len(feed) > room:
                n = min(len(feed) - room, self.context.n_batch)
                self._decode([(seq, feed[:n])], n_outputs=0)
                del feed[:n]
        return list(self._decode(list(zip(seqs, feeds, strict=True)), n_outputs=1))

    def _decode(self, parts: list[tuple[int, list[int]]], n_outputs: int) -> Floats:
        batch = self._batch
        batch.clear()
        for seq, tokens in parts:
            cached = self._views[seq].cached
            batch.add(seq, self._known(tokens), len(cached), n_outputs)
            cached.extend(tokens)
        return self.context.decode(batch)
