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
from paceline.engine.worker import WORKER
from paceline.errors import ConfigError, PacelineError
from paceline.llama.lib import Floats
from paceline.llama.shared import SharedModels
from paceline.planner.planner import Planner
from paceline.process.candidates import Candidate
from paceline.process.parts import Parts
from paceline.process.probe import LEAST, question, steps
from paceline.process.replay import Agreed, KnownText, Replay, Written
from paceline.text.chat import ChatTemplate

LOOK_UPS = ("grammar", "suffix")  # what drafts beside a model when nobody chose
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


class Order(msgspec.Struct, frozen=True):
    """What to measure. The first process writes the texts, later ones are given them."""

    settings: Settings
    candidates: list[Candidate]
    seconds: float
    texts: list[Written] = []


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """How much of the target."""

    share: float


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The target is ready: its texts, what its steps cost by size, and what look-ups alone would gain."""

    texts: list[Written]
    plain_ms: float
    batch_ms: dict[int, float]
    look_ups: float


class Begun(msgspec.Struct, frozen=True, tag=True):
    """A candidate is being opened: if nothing follows, it was the end of us."""

    path: str


class Rejected(msgspec.Struct, frozen=True, tag=True):
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured: the share of tokens on which draft and target agree, and over how many; what a token of each
    takes; by the planner's account how much sooner the texts would have been written, with how long drafts."""

    agreement: float
    n_places: int
    draft_ms: float
    plain_ms: float
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
            texts = order.texts or prepare(order, models, say)
        except PacelineError as error:
            say(Rejected(order.settings.model.path, str(error)))
            return
        for candidate in order.candidates:
            say(Begun(candidate.path))
            try:
                say(Tried(candidate.path, measure(candidate, order, texts, models)))
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


def fresh(planner: Planner) -> Planner:
    """With the same costs, and nothing learned of texts."""
    return Planner(planner.target, least=planner.least, n_rollback=planner.n_rollback)


# -- the target


def prepare(order: Order, models: SharedModels, say: Say) -> list[Written]:
    parts = Parts(settings_for(order.settings, None), loading(say), shared=models)
    try:
        texts = WORKER.call(lambda: written(parts, order.seconds))
        assert parts.planner
        replay = Replay(parts.drafters, fresh(parts.planner), parts.model.vocab.eog)
        for text in texts:
            replay.write(KnownText(text))
        curve = parts.planner.target
        batch_ms = {n: 1e3 * seconds for n, seconds in curve.sizes.items()}
        say(Prepared(texts, 1e3 * curve.predict(1), batch_ms, replay.ledger.speedup))
        return texts
    finally:
        parts.close()


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


def measure(candidate: Candidate, order: Order, texts: Sequence[Written], models: SharedModels) -> Figures:
    parts = Parts(settings_for(order.settings, candidate), shared=models, hurried=True)
    try:
        (drafter,) = (drafter for drafter in parts.drafters if drafter.name in parts.computing)
        return WORKER.call(lambda: figures(parts, drafter, texts, order.seconds))
    finally:
        parts.close()


def figures(parts: Parts, drafter: Drafter, texts: Sequence[Written], seconds: float) -> Figures:
    """Half the time to see what it says at every place, half to draft as the engine would."""
    assert parts.planner
    share = seconds / 2 / len(texts)
    agreed = Agreed(drafter)
    for text in known(parts, drafter, texts):
        agreed.read(text, share)
    planner = fresh(parts.planner)
    replay = Replay(parts.drafters, planner, parts.model.vocab.eog)
    replay.trust(drafter.name, agreed.found)
    for text in known(parts, drafter, texts):
        replay.write(text, share)
    ledger, whole = replay.ledger, not replay.continues(drafter.name)
    seconds = agreed.token_seconds
    return Figures(
        agreement=agreed.share,
        n_places=len(agreed.found),
        draft_ms=1e3 * seconds,
        plain_ms=1e3 * planner.target.predict(1),
        speedup=ledger.speedup,
        n_per_draft=ledger.n_drafted / max(1, ledger.n_drafts),
        acceptance=ledger.n_accepted / ledger.n_drafted if ledger.n_drafted else None,
        n_per_step=(ledger.n_accepted + ledger.n_steps) / max(1, ledger.n_steps),
        can_pay=planner.can_ever_pay(N_ANSWER, 0.0 if whole else seconds, seconds if whole else 0.0),
    )


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
