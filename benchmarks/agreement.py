"""How often a draft or a head says what the target says, and what a token of it costs.

    python -m benchmarks.agreement DRAFT.gguf HEAD.gguf [-m TARGET.gguf] [--prompts FILE.jsonl] [--per-category 4]

The target answers each prompt greedily, one token after the other as it would without drafts. At every position of the
answer each file then drafts up to eight tokens, whatever its confidence. `agreement` is the share of positions where
the first of them is right; tokens per step is what drafts of fixed length would have come to, step by step.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Protocol

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import SPEC_BENCH, guarded, needed
from paceline.bench.suite import SUITE, SuitePrompt, load
from paceline.config import ContextParams, ModelParams
from paceline.distill.head_measuring import LONGEST, MeasuredHead, measured_head
from paceline.errors import ConfigError
from paceline.llama.context import Context
from paceline.llama.hidden import Hidden, Source
from paceline.llama.lib import Floats
from paceline.llama.model import Model
from paceline.models import demo_copy
from paceline.process.gguf_check import check_gguf
from paceline.process.heads import kind_of
from paceline.text.chat import ChatTemplate

N_CTX = 2048
WINDOW = 1024
"""Tokens that a draft model sees, as in the engine."""
N_TIMED = 8
"""Tokens after each answer by which a draft's cost is measured."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Tokens of prompt and answer, where the answer begins, and the target's rows of all but the last, by source."""

    category: str
    text: list[int]
    first: int
    rows: dict[Source, Floats]


class Writing:
    """The target; `milliseconds` of each token that it wrote."""

    def __init__(self, context: Context, sources: Sequence[Source]) -> None:
        self.context = context
        self.sources = sources
        self.hidden = Hidden(context.handle, context.model, sources)
        self.milliseconds: list[float] = []
        self._batch = context.new_batch()

    def answer(self, prompt: SuitePrompt, n: int) -> Answer | None:
        """None for a prompt that leaves no room."""
        vocab = self.context.model.vocab
        template = ChatTemplate.of(self.context.model.chat_template, vocab)
        text = vocab.tokenize(template.render([{"role": "user", "content": prompt.text}]))
        first, n_read = len(text), 0
        if first + n > N_CTX or first < 2:
            return None
        parts: dict[Source, list[Floats]] = {source: [] for source in self.sources}
        self.context.clear()
        while len(text) < first + n:
            start = perf_counter()
            logits = self._decode(text[n_read:], n_read, parts)
            if n_read:
                self.milliseconds.append(1e3 * (perf_counter() - start))
            n_read = len(text)
            token = int(logits[-1].argmax())
            text.append(token)
            if token in vocab.eog:
                break
        return Answer(prompt.category, text, first, {source: np.concatenate(rows) for source, rows in parts.items()})

    def _decode(self, tokens: list[int], position: int, parts: dict[Source, list[Floats]]) -> Floats:
        self._batch.clear()
        self._batch.add(0, tokens, position, 1)
        logits = self.context.decode(self._batch)
        for source, rows in parts.items():
            rows.append(self.hidden.rows(source, 0, len(tokens)))
        return logits


class Drafting(Protocol):
    """One file. `stands` says for each position of the answer how many tokens of a draft from there on are right."""

    def stands(self, answer: Answer) -> list[int]: ...
    def milliseconds(self, answer: Answer) -> Iterator[float]: ...


class DraftModel:
    """Where its drafts are right so far they are the text itself: one pass over the text tells all of them."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._batch = context.new_batch()

    def stands(self, answer: Answer) -> list[int]:
        seen = answer.text[-WINDOW:]
        n = len(answer.text) - answer.first
        self.context.clear()
        self._batch.clear()
        self._batch.add(0, seen[:-1], 0, n)
        right = self.context.decode(self._batch).argmax(-1) == answer.text[answer.first :]
        found = list[int]()
        for is_right in reversed(right.tolist()):
            found.append(min(LONGEST, 1 + (found[-1] if found else 0)) if is_right else 0)
        return found[::-1]

    def milliseconds(self, answer: Answer) -> Iterator[float]:
        position = len(answer.text[-WINDOW:]) - 1
        for token in answer.text[-N_TIMED:]:
            start = perf_counter()
            self._batch.clear()
            self._batch.add(0, [token], position, 1)
            self.context.decode(self._batch).argmax()
            position += 1
            yield 1e3 * (perf_counter() - start)


class HeadOfTarget:
    def __init__(self, head: MeasuredHead) -> None:
        self.head = head

    def stands(self, answer: Answer) -> list[int]:
        return self.head.stands(answer.rows[self.head.source], answer.text, answer.first)

    def milliseconds(self, answer: Answer) -> Iterator[float]:
        """Going on by itself, after the last pair of the text."""
        for i, token in enumerate(answer.text[-N_TIMED:]):
            start = perf_counter()
            row = self.head.context.own_rows(1)
            self.head.decode([token], len(answer.text) - 2 + i, row).argmax()
            yield 1e3 * (perf_counter() - start)
        self.head.context.clear()


@dataclass(slots=True)
class Tally:
    """Of one file: what stood at each position, by category; milliseconds of single tokens."""

    stood: dict[str, list[list[int]]] = field(default_factory=dict)
    milliseconds: list[float] = field(default_factory=list)

    def agreement(self, *categories: str) -> float:
        """Of these; of all where none are named."""
        found = [n > 0 for stands in self._answers(*categories) for n in stands]
        return round(sum(found) / max(1, len(found)), 3)

    def per_step(self, most: int, *categories: str) -> float:
        """Tokens of a step when each drafts so many."""
        n_tokens = n_steps = 0
        for stands in self._answers(*categories):
            position = 0
            while position < len(stands):
                position += 1 + min(most, stands[position])
                n_steps += 1
            n_tokens += len(stands)
        return round(n_tokens / max(1, n_steps), 3)

    def _answers(self, *categories: str) -> Iterator[list[int]]:
        for name, answers in self.stood.items():
            if not categories or name in categories:
                yield from answers

    def result(self, target_ms: float) -> dict[str, object]:
        token_ms = median(self.milliseconds)
        return {
            "agreement": self.agreement(),
            "by_category": {category: self.agreement(category) for category in self.stood},
            "tokens_per_step": [self.per_step(k) for k in range(1, LONGEST + 1)],
            "ms_per_token": round(token_ms, 3),
            "of_the_targets": round(token_ms / target_ms, 4),
            "positions": sum(len(stands) for stands in self._answers()),
        }


def opened(path: str, target: Context, args: argparse.Namespace, stack: ExitStack) -> Drafting:
    kind = kind_of(check_gguf(needed(path, "a draft or a head")))
    if kind == "draft-eagle3":
        return HeadOfTarget(stack.enter_context(measured_head(path, target, args.threads)))
    if kind:
        raise ConfigError(f"{Path(path).name} is for {kind}; only draft models and EAGLE-3 heads are measured")
    params = ContextParams(n_ctx=WINDOW + N_TIMED, n_threads=args.threads, n_threads_batch=args.threads)
    return DraftModel(stack.enter_context(Context(stack.enter_context(Model(ModelParams(path=path))), params)))


def chosen(args: argparse.Namespace) -> list[SuitePrompt]:
    """So many of every category, from its beginning."""
    given = args.prompts or (SPEC_BENCH if SPEC_BENCH.exists() else None)
    found: dict[str, list[SuitePrompt]] = {}
    for prompt in load(given) if given else SUITE:
        found.setdefault(prompt.category, []).append(prompt)
    return [prompt for group in found.values() for prompt in group[: args.per_category or None]]


def measure(args: argparse.Namespace) -> tuple[dict[str, Tally], float]:
    """By file, and the milliseconds of one of the target's own tokens."""
    tallies = {name: Tally() for name in args.files}
    with ExitStack() as stack:
        params = ContextParams(n_ctx=N_CTX, n_batch=N_CTX, n_threads=args.threads, n_threads_batch=args.threads)
        target = stack.enter_context(Context(stack.enter_context(Model(ModelParams(path=args.model))), params))
        drafts = {name: opened(name, target, args, stack) for name in args.files}
        sources = {draft.head.source for draft in drafts.values() if isinstance(draft, HeadOfTarget)}
        writing = Writing(target, [*sources])
        for prompt in track(chosen(args), "answers", console=Console(stderr=True)):
            answer = writing.answer(prompt, args.tokens)
            if answer is None:
                continue
            for name, draft in drafts.items():
                tallies[name].stood.setdefault(prompt.category, []).append(draft.stands(answer))
                tallies[name].milliseconds += draft.milliseconds(answer)
    return tallies, median(writing.milliseconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="draft models and EAGLE-3 heads")
    parser.add_argument("-m", "--model", help="the target; the demo model if not given")
    parser.add_argument("--kind", default="F16", help="precision of the demo model")
    parser.add_argument("--prompts", help="questions as Spec-Bench has them, JSON lines")
    parser.add_argument("--per-category", type=int, default=0, help="so many of each category; 0: all")
    parser.add_argument("--tokens", type=int, default=96, help="of an answer, at most")
    parser.add_argument("-t", "--threads", type=int, default=2)
    args = parser.parse_args()
    args.model = needed(args.model, "the target") if args.model else demo_copy(args.kind)[0]
    tallies, target_ms = measure(args)
    results = {Path(name).name: tally.result(target_ms) for name, tally in tallies.items()}
    table = Table("", *results)
    for row in next(iter(results.values())):
        table.add_row(row, *(str(result[row]) for result in results.values()))
    Console().print(table)
    about = {"target": Path(args.model).name, "target_ms_per_token": round(target_ms, 3)}
    print(json.dumps(about | results))


if __name__ == "__main__":
    guarded(main)
