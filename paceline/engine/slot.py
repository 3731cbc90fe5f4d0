"""One sequence of the target's memory and the request it serves at the moment. Knows tokens and clocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from paceline.config import SpeculativeParams
from paceline.drafters.base import NO_LIMIT, Draft
from paceline.drafters.proposal import Proposal
from paceline.engine.active import ActiveRequest
from paceline.engine.constrained import Constrained, Known
from paceline.engine.request import Progressed, Request, Resume, Timings, Token
from paceline.engine.stats import DrafterStats, Records
from paceline.engine.verify import Draws, log_probabilities
from paceline.llama.lib import Floats
from paceline.llama.sampler import Sampler


@dataclass(slots=True)
class Clock:
    """When a request was submitted, admitted, and wrote its first and last token."""

    submitted: float = 0.0
    admitted: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0

    @classmethod
    def resumed(cls, submitted: float, timings: Timings) -> Clock:
        """Of a request that an earlier engine began."""
        admitted = submitted + timings.queue_ms / 1e3
        first = admitted + timings.prompt_ms / 1e3
        return cls(submitted, admitted, first, first + timings.predicted_ms / 1e3)


@dataclass(slots=True)
class Slot:
    """tokens = prompt + generated; tokens[:n_computed] are in the target's memory.

    `n_reusable` of them may serve a later request: all, or in exact mode those up to a prefill border. `candidates` are
    all drafts made for the next step, whether they are checked or not. `known` are tokens that an earlier engine has
    written and this one has still to compute. `n_dropped` tokens of the text are there no more, to make room. `n_again`
    were computed, and taken back with a draft that was rejected.
    """

    seq: int
    tokens: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    n_computed: int = 0
    n_again: int = 0
    n_reusable: int = 0
    n_prompt: int = 0
    n_dropped: int = 0
    n_cached: int = 0
    n_steps: int = 0
    last_used: int = 0
    adapter: str | None = None
    active: ActiveRequest | None = None
    sampler: Sampler | None = None
    draft: Proposal = field(default_factory=Proposal)
    candidates: list[Draft] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    stats: dict[str, DrafterStats] = field(default_factory=dict)
    records: Records = field(default_factory=Records)

    @property
    def request(self) -> Request:
        assert self.active
        return self.active.request

    @property
    def speculative(self) -> SpeculativeParams:
        """What the request wants of speculation."""
        return self.request.speculative

    @property
    def busy(self) -> bool:
        return self.active is not None

    @property
    def generating(self) -> bool:
        """All but the last token is computed, or was: the next one can be drafted and sampled."""
        return (
            self.active is not None and self.n_computed + self.n_again == len(self.tokens) - 1 and self.n_generated > 0
        )

    @property
    def n_generated(self) -> int:
        return self.n_text - self.n_prompt

    @property
    def n_left(self) -> int:
        """Tokens the request may still write by its own limit."""
        limit = self.request.max_tokens
        return NO_LIMIT if limit is None else limit - self.n_generated

    @property
    def n_text(self) -> int:
        """Tokens of the text so far, with those that were dropped."""
        return self.n_dropped + len(self.tokens)

    def copy(self) -> Slot:
        """As it stands, with tokens of its own."""
        return replace(self, tokens=list(self.tokens))

    def take_over(self, paused: Slot) -> None:
        """Go on with another slot's text, sampler and clock; the memory stays as it is."""
        self.tokens, self.known, self.draft = paused.tokens, paused.known, Proposal()
        self.n_prompt, self.n_cached, self.n_steps = paused.n_prompt, paused.n_cached, paused.n_steps
        self.n_dropped = paused.n_dropped
        self.sampler, self.clock = paused.sampler, paused.clock

    def resume(self, resume: Resume) -> None:
        """Go on where an earlier engine was: its tokens come first, its clock and its records count."""
        self.known = list(resume.tokens)
        self.n_cached, self.n_steps = resume.timings.cache_n, resume.timings.n_steps
        self.clock = Clock.resumed(self.request.submitted, resume.timings)
        self.add_stats(resume.timings.drafters)

    def draws(self, known: Sequence[int] = ()) -> Draws:
        """The sampler, under its grammar if it has one; before it what is known already, or taken as such."""
        assert self.sampler and self.active
        grammar = self.active.grammar
        draws = Constrained(self.sampler, grammar) if grammar else self.sampler
        known = self.known or known
        return Known(known, draws, self.sampler, grammar) if known else draws

    def spoken(self, tokens: list[int], n_accepted: int, rows: Floats) -> tuple[Token, ...]:
        """The last tokens of the text as the client hears of them; the first `n_accepted` were drafted."""
        assert self.sampler
        sources, n_top, first = self.draft.sources(), self.request.n_logprobs, self.n_text - len(tokens)
        out = []
        for i, token in enumerate(tokens):
            source = sources[i] if i < n_accepted else None
            if n_top is None:
                out.append(Token(token, source))
            elif self.request.sampled_probs:
                out.append(Token(token, source, *self.sampler.chances(first + i)))
            else:
                out.append(Token(token, source, *log_probabilities(rows[i], token, n_top)))
        return tuple(out)

    def tell_progress(self, n_read: int) -> None:
        """A request that wants to hear of it hears how much of its prompt is read."""
        if self.active and self.request.progress and not self.n_generated and not self.known:
            n_new = n_read - self.n_cached
            ms = 1e3 * (perf_counter() - self.clock.admitted) if n_new else 0.0
            self.active.emit(Progressed(Timings(self.n_cached, n_new, ms)))

    def add_stats(self, records: Iterable[DrafterStats]) -> None:
        """Earlier records count, of drafters that are still wanted."""
        for stats in records:
            if stats.name in self.stats:
                self.stats[stats.name] += stats

    def timings(self) -> Timings:
        clock = self.clock
        now = perf_counter()
        admitted = clock.admitted or now
        first = clock.first_token or now
        records, drafters = self.records, self.records.of(self.stats)
        return Timings(
            self.n_cached,
            self.n_prompt - self.n_cached,
            1e3 * (first - admitted),
            self.n_generated,
            1e3 * max(0.0, clock.last_token - first),
            records.n_drafted,
            records.n_accepted,
            self.n_steps,
            1e3 * (admitted - clock.submitted),
            drafters,
        )
