"""How drafters would do on a text that the target has written already: the engine's own drafting and policy, step by
step, but the target's steps are not computed. They take what its cost curve says, and a drafter what it usually does:
a moment in which the machine did something else shall not count. So what comes out is what the planner would say after
writing that text. Knows tokens and seconds; no files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import median
from time import perf_counter

from paceline.drafters.base import Draft, Drafter, DraftRequest
from paceline.drafters.proposal import Proposal
from paceline.engine.drafting import Drafting
from paceline.llama.lib import Floats
from paceline.planner.base import Agreement, DraftBudget, Drafted, ShouldContinue
from paceline.planner.planner import Planner
from paceline.planner.policy import AutoPolicy

LONGEST = 64  # tokens drafted at once


@dataclass(frozen=True, slots=True)
class Written:
    """A prompt, and what the target said to it."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(slots=True)
class KnownText:
    """A text as far as it has come, in the place of a slot. `rows` are the target's of all its tokens, where the
    drafter reads any."""

    written: Written
    rows: Floats | None = None
    tokens: list[int] = field(default_factory=list)
    n_heard: int = 0
    seq: int = 0
    draft: Proposal = field(default_factory=Proposal)
    candidates: list[Draft] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The prompt is read, and the first token drawn."""
        self.tokens = [*self.written.prompt, *self.written.answer[:1]]

    @property
    def rest(self) -> tuple[int, ...]:
        return self.written.answer[len(self.tokens) - len(self.written.prompt) :]

    def tell(self, drafter: Drafter) -> None:
        """The target has computed all tokens but the last."""
        n = len(self.tokens) - 1
        if self.rows is not None and drafter.reads_target and n > self.n_heard:
            drafter.observe(self.seq, self.n_heard, self.tokens, self.rows[self.n_heard : n])
            self.n_heard = n


@dataclass(slots=True)
class Ledger:
    """Seconds of the answers without speculation and with it, and what was drafted on the way."""

    plain: float = 0.0
    actual: float = 0.0
    n_steps: int = 0
    n_drafts: int = 0
    n_drafted: int = 0
    n_accepted: int = 0

    @property
    def speedup(self) -> float:
        return self.plain / self.actual if self.actual else 1.0


class Agreed:
    """What a drafter would say at each place of texts, how sure it is of that, and whether it is so."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.took: list[float] = []  # without the first of each text, which includes reading its prompt
        self.found: list[Agreement] = []

    def read(self, known: KnownText, seconds: float) -> None:
        """As many places as there is time for; at first at least two."""
        drafter, until = self.drafter, perf_counter() + seconds
        n_before = len(self.found)
        drafter.begin(known.seq, known.written.prompt)
        while known.rest and (perf_counter() < until or not self.took):
            known.tell(drafter)
            start = perf_counter()
            (draft,) = drafter.draft([DraftRequest(known.seq, known.tokens, 1, p_min=0.0)])
            if len(self.found) > n_before:
                self.took.append(perf_counter() - start)
            sure, said = (draft.confidence[0], draft.tokens[0]) if draft.tokens else (0.0, -1)
            self.found.append((sure, said == known.rest[0]))
            known.tokens.append(known.rest[0])
        drafter.end(known.seq, known.written.prompt)

    @property
    def share(self) -> float:
        return sum(right for _, right in self.found) / max(1, len(self.found))

    @property
    def token_seconds(self) -> float:
        """What a token takes it."""
        return median(self.took) if self.took else 0.0


class Replay(Drafting):
    """Drafters and a policy on texts that are known."""

    def __init__(self, drafters: Sequence[Drafter], planner: Planner, eog: frozenset[int]) -> None:
        self.planner = planner
        self._auto = AutoPolicy(planner)
        super().__init__(drafters, self._auto, eog)
        self._took: defaultdict[str, list[float]] = defaultdict(list)
        self._now = 0.0
        self.ledger = Ledger()

    def trust(self, agreed: Agreed) -> None:
        """What is known of a drafter beforehand; of one that computes the engine's policy is told that too."""
        name = agreed.drafter.name
        self._took[name] += agreed.took
        if agreed.drafter.costs is not None:
            self._auto.set_agreement(name, agreed.found, self.token_seconds(name, 1))

    def write(self, known: KnownText, seconds: float = float("inf")) -> None:
        """The whole answer, or as much of it as there is time for."""
        until = perf_counter() + seconds
        before = self.planner.seconds_plain, self.planner.seconds_actual
        for drafter in self.drafters.values():
            drafter.begin(known.seq, known.written.prompt)
        self.policy.begin(known.seq, sampled=False)
        while known.rest and perf_counter() < until:
            self.step(known)
        self.policy.end(known.seq)
        for drafter in self.drafters.values():
            drafter.end(known.seq, known.written.prompt)  # as if nothing was said: other texts shall not know this one
        self.ledger.plain += self.planner.seconds_plain - before[0]
        self.ledger.actual += self.planner.seconds_actual - before[1]

    def step(self, known: KnownText) -> None:
        """Draft, then see how the text goes on."""
        known.draft, known.candidates = Proposal(), []
        for drafter in self.drafters.values():
            known.tell(drafter)
        if not self.policy.rests:
            limit = min(LONGEST, len(known.rest))
            self.policy.propose(self, [DraftBudget(known, limit, list(self.drafters), len(known.tokens))])
        draft, rest = known.draft.tokens, known.rest
        n_right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft, rest, strict=False)))
        emitted = rest[: n_right + 1]
        self._settle(known, n_right, emitted)
        self._charge(len(draft), n_right, len(emitted), len(known.tokens))
        known.tokens += emitted

    def _settle(self, known: KnownText, n_right: int, emitted: Sequence[int]) -> None:
        self.policy.settled(known, emitted)
        for part, n_accepted, reached in known.draft.outcome(n_right):
            if reached and part.source in self.drafters:
                self.drafters[part.source].accept(known.seq, part, n_accepted)

    def _charge(self, n_drafted: int, n_right: int, n_emitted: int, n_context: int) -> None:
        curve = self.planner.target
        n = max(1 + n_drafted, self.policy.size(1 + n_drafted))
        self.policy.observe_step(n, n_emitted, n_drafted, curve.predict(n, n_context) + curve.changing(n))
        ledger = self.ledger
        ledger.n_steps += 1
        ledger.n_drafts += n_drafted > 0
        ledger.n_drafted += n_drafted
        ledger.n_accepted += n_right

    def ask(
        self, name: str, drafted: Sequence[Drafted], limits: Sequence[int], rules: Sequence[ShouldContinue | None]
    ) -> list[Draft]:
        """Of one text."""
        (known,), (limit,), (rule,) = drafted, limits, rules
        assert isinstance(known, KnownText)
        request = DraftRequest(0, known.tokens, limit, should_continue=rule, ahead=known.draft.tokens)
        start = perf_counter()
        (draft,) = self.drafters[name].draft([request])
        n = max(1, len(draft)) if self.continues(name) else 1
        self._took[name].append((perf_counter() - start) / n)
        self._now += n * self._usual(name)
        draft = self._cut(draft, request)
        if draft.tokens:
            known.candidates.append(draft)
        return [draft]

    def _usual(self, name: str) -> float:
        """What a token of its drafts takes, or a draft as a whole where it makes them so."""
        took = self._took[name]
        return median(took) if took else super().token_seconds(name, 1)

    def token_seconds(self, name: str, n_slots: int) -> float:
        return self._usual(name) if self.continues(name) else 0.0

    def question_seconds(self, name: str, n_slots: int) -> float:
        return self._usual(name) if self._block(name) else 2 * self.token_seconds(name, n_slots)

    def clock(self) -> float:
        """Seconds that went into drafting."""
        return self._now
