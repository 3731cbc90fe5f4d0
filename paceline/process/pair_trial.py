"""A process that measures how well candidates draft for a target: opened as the engine would open them, on texts that
the target writes first. It may die of a file: libllama asserts. So it says what it begins, and every result at once.
`python -m paceline.process.pair_trial` is started by `pairing`, never by people: an order on stdin, a line of JSON for
each message on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter

import msgspec

from paceline.config import EngineParams, ModelParams, Settings
from paceline.drafters.base import Drafter
from paceline.engine.warmup import warm_up
from paceline.engine.worker import WORKER
from paceline.errors import ConfigError, PacelineError
from paceline.llama.lib import Floats
from paceline.llama.shared import SharedModels
from paceline.planner.change import ChangeCosts
from paceline.planner.costs import CostCurve
from paceline.planner.planner import Planner
from paceline.process.candidates import Candidate
from paceline.process.parts import Parts
from paceline.process.probe import LEAST, question, steps
from paceline.process.replay import Agreed, KnownText, Ledger, Replay, Written
from paceline.text.chat import ChatTemplate

LOOK_UPS = ("suffix",)  # what drafts beside a model when nobody chose, in texts without a grammar
LOOKING = 2.0  # seconds at most for look-ups in one text
MEASURING = 0.1  # of the seconds go into the target's cost curve
N_CTX = 1024  # tokens: enough for every text here, and the cost curve does not depend on it
N_ANSWER = 64  # tokens of each answer
PATIENT = 3  # times its share may a text take that has only a few tokens yet
TEXTS = {
    "Why is the sky blue, and why is it red in the evening? Explain it in a few sentences.": "The sky is blue because",
    "Write a Python function that returns the largest number of a list, with a docstring.": "def largest(numbers):",
    "Correct the spelling and change nothing else: The lighthose stood at the end of the long stone peer. Every evning "
    "the keeper climed the ninety steps, cleened the great lens, and lit the lamp.": "Once upon a time there was a",
}
"""Prose, code, and a text that is mostly repeated; each with an opening for models that do not chat."""


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The target is ready: its texts, what its steps cost by size, by context and when sizes change, and what look-ups
    alone would gain."""

    texts: list[Written]
    seconds: dict[int, float]
    attention: float
    change: dict[int, list[float]]
    look_ups: float = 1.0

    def curve(self) -> CostCurve:
        """All candidates are judged by the same."""
        return CostCurve(self.seconds, self.attention, ChangeCosts(self.change))


class Order(msgspec.Struct, frozen=True):
    """What to measure. The first process prepares the target, later ones are told what that said."""

    settings: Settings
    candidates: list[Candidate]
    seconds: float
    prepared: Prepared | None = None


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """How much of the target."""

    share: float


class Begun(msgspec.Struct, frozen=True, tag=True):
    """A candidate is being opened: if nothing follows, it was the end of us."""

    path: str


class Rejected(msgspec.Struct, frozen=True, tag=True):
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured: the share of tokens on which draft and target agree, and over how many; what a token of each
    takes; by the planner's account how many times as fast the texts would have been written, with it alone and with
    look-ups beside it, and how long its drafts were."""

    agreement: float
    n_places: int
    draft_ms: float
    plain_ms: float
    alone: float
    speedup: float
    n_per_draft: float
    acceptance: float | None
    n_per_step: float
    can_pay: bool


class Tried(msgspec.Struct, frozen=True, tag=True):
    path: str
    figures: Figures


Message = Loaded | Prepared | Begun | Rejected | Tried
Say = Callable[[Message], None]


def main() -> None:
    say = own_line()
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Order)
    with SharedModels() as models:
        try:
            prepared = order.prepared or prepare(order, models, say)
        except PacelineError as error:
            say(Rejected(order.settings.model.path, str(error)))
            return
        for candidate in order.candidates:
            say(Begun(candidate.path))
            try:
                say(Tried(candidate.path, measure(candidate, order, prepared, models)))
            except PacelineError as error:
                say(Rejected(candidate.path, str(error)))
            if candidate.path != order.settings.model.path:
                models.drop(candidate.path)


def own_line() -> Say:
    """Our end of the pipe; what others print goes to stderr."""
    line = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def say(message: Message) -> None:
        line.write(msgspec.json.encode(message) + b"\n")
        line.flush()

    return say


def settings_for(settings: Settings, candidate: Candidate | None) -> Settings:
    """As `paceline serve -m … -md …` would have it, for one request at a time."""
    own = candidate is not None and candidate.path == settings.model.path
    types = (*LOOK_UPS, candidate.kind) if candidate else LOOK_UPS
    engine = EngineParams(spec_types=types, drafters=settings.engine.drafters)
    context = replace(settings.context, n_ctx=N_CTX, n_batch=N_CTX)
    draft = None
    if candidate and not own:
        draft = replace(settings.draft or ModelParams(path=candidate.path), path=candidate.path)
    return replace(settings, draft=draft, engine=engine, context=context)


# -- the target


def prepare(order: Order, models: SharedModels, say: Say) -> Prepared:
    parts = Parts(settings_for(order.settings, None), loading(say), shared=models)
    try:
        assert parts.planner
        curve = parts.planner.target
        WORKER.call(lambda: warm_up(parts.context, curve, MEASURING * order.seconds))
        texts = WORKER.call(lambda: written(parts, order.seconds))
        found = Prepared(texts, curve.sizes, curve.drift.attention, curve.change.by_size)
        found = msgspec.structs.replace(found, look_ups=look_ups(parts, found))
        say(found)
        return found
    finally:
        parts.close()


def look_ups(parts: Parts, prepared: Prepared) -> float:
    """What they would gain without any model."""
    studied = [Agreed(drafter) for drafter in parts.drafters]
    for each in studied:
        for text in prepared.texts:
            each.read(KnownText(text), LOOKING)
    return replayed(parts, prepared, studied, LOOKING).ledger.speedup


def loading(say: Say) -> Callable[[float], None]:
    """Every hundredth part: libllama tells of every tensor."""
    told = -1

    def on_progress(share: float) -> None:
        nonlocal told
        if int(100 * share) > told:
            told = int(100 * share)
            say(Loaded(share))

    return on_progress


def written(parts: Parts, seconds: float) -> list[Written]:
    """What the target says greedily to each question; less of it where it is slow."""
    vocab, source = parts.model.vocab, parts.model.chat_template
    template = (lambda: ChatTemplate.of(source, vocab)) if source else None
    texts, start = [], perf_counter()
    for n_left, (words, opening) in zip(range(len(TEXTS), 0, -1), TEXTS.items(), strict=True):
        share = (seconds - perf_counter() + start) / n_left
        asked = question(vocab, template, words, opening)
        said = steps(parts.context, asked, vocab.eog, seconds=(share, PATIENT * share))
        texts.append(Written(tuple(asked), tuple(token for token, _ in islice(said, N_ANSWER))))
    n_written = sum(len(text.answer) for text in texts)
    if n_written < LEAST:
        raise ConfigError(f"the target wrote {n_written} tokens in {seconds:.0f} s, too few to compare: more --seconds")
    return [text for text in texts if len(text.answer) > 1]


# -- a candidate


def measure(candidate: Candidate, order: Order, prepared: Prepared, models: SharedModels) -> Figures:
    parts = Parts(settings_for(order.settings, candidate), shared=models, hurried=True)
    try:
        (drafter,) = (drafter for drafter in parts.drafters if drafter.name in parts.computing)
        return WORKER.call(lambda: figures(parts, drafter, prepared, order.seconds))
    finally:
        parts.close()


def figures(parts: Parts, drafter: Drafter, prepared: Prepared, seconds: float) -> Figures:
    """A part of the time for what it says at every place, two for what it gains alone, two with look-ups beside it."""
    studied = [Agreed(each) for each in parts.drafters]
    agreed = next(each for each in studied if each.drafter is drafter)
    share = seconds / 5 / len(prepared.texts)
    for each in studied:
        for text in known(parts, each.drafter, prepared.texts):
            each.read(text, share)
    alone, together = (replayed(parts, prepared, who, share) for who in ([agreed], studied))
    ledger, ms = together.ledger, 1e3 * agreed.token_seconds
    return Figures(
        agreement=agreed.share,
        n_places=len(agreed.found),
        draft_ms=ms,
        plain_ms=1e3 * together.planner.target.predict(1),
        alone=alone.ledger.speedup,
        speedup=ledger.speedup,
        n_per_draft=alone.ledger.n_drafted / max(1, alone.ledger.n_drafts),
        acceptance=ledger.n_accepted / ledger.n_drafted if ledger.n_drafted else None,
        n_per_step=(ledger.n_accepted + ledger.n_steps) / max(1, ledger.n_steps),
        can_pay=can_pay(together, drafter, agreed.token_seconds),
    )


def replayed(parts: Parts, prepared: Prepared, studied: Sequence[Agreed], seconds: float) -> Replay:
    """The texts once more, with these drafters: a rehearsal first, since an engine's first answers pay for learning."""
    planner = Planner(prepared.curve(), n_rollback=parts.context.n_rollback)
    replay = Replay([each.drafter for each in studied], planner, parts.model.vocab.eog)
    for each in studied:
        replay.trust(each)
    reader = studied[-1].drafter
    for _ in ("rehearsal", "replay"):
        replay.ledger = Ledger()
        for text in known(parts, reader, prepared.texts):
            replay.write(text, seconds)
    return replay


def can_pay(replay: Replay, drafter: Drafter, seconds: float) -> bool:
    """Whether it could gain anything if it were almost always right: it takes so long for a token, or for a block."""
    whole = not replay.continues(drafter.name)
    return replay.planner.can_ever_pay(N_ANSWER, 0.0 if whole else seconds, seconds if whole else 0.0)


def known(parts: Parts, drafter: Drafter, texts: Sequence[Written]) -> Iterator[KnownText]:
    """With what the drafter reads of the target, which is in its memory meanwhile: some heads look at that."""
    for text in texts:
        yield KnownText(text, target_rows(parts, drafter, text))
        parts.context.remove(0, 0)


def target_rows(parts: Parts, drafter: Drafter, text: Written) -> Floats | None:
    """What the drafter reads of the target, of the whole text, where it reads any."""
    if not parts.rows or not drafter.reads_target:
        return None
    tokens = [*text.prompt, *text.answer]
    batch = parts.context.new_batch()
    batch.add(0, tokens, 0, 1)
    parts.rows.wake(up=True)
    parts.rows.switch(on=True)
    parts.context.decode(batch)
    return parts.rows.rows(drafter.source, 0, len(tokens))


if __name__ == "__main__":
    main()
