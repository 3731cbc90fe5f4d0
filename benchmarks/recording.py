"""Answers of the target, recorded with what a draft model and look-ups would have proposed at every place of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks.common import chat, inside, needed, prompts
from paceline import Engine
from paceline.config import SamplingParams
from paceline.config.drafters import SuffixParams
from paceline.drafters.base import Draft, DraftRequest
from paceline.drafters.suffix import Suffix
from paceline.models import demo_copy
from paceline.planner.base import DraftBudget, DrafterPool
from paceline.planner.fixed import FixedPolicy
from paceline.process.gguf_check import check_gguf
from paceline.process.heads import kind_of

MODEL = "draft-simple"
RECORDED = "answers recorded with `python -m benchmarks.replay --record FILE`"
N_DRAFT = 16


@dataclass(slots=True)
class Text:
    """A recorded text: its prompt, what the target wrote, and what each drafter would have proposed at every place."""

    category: str
    prompt: list[int]
    written: list[int]
    drafts: dict[str, list[Draft]] = field(default_factory=dict)


def n_right(draft: Sequence[int], text: Sequence[int]) -> int:
    pairs = enumerate(zip(draft, text, strict=False))
    return next((i for i, (drafted, shown) in pairs if drafted != shown), min(len(draft), len(text)))


class Listening(FixedPolicy):
    """Asks for a long draft at every place and has none checked: the text is the target's own, token by token."""

    def __init__(self) -> None:
        self.heard: list[Draft] = []

    def propose(self, pool: DrafterPool, budgets: Sequence[DraftBudget]) -> None:
        for budget in budgets:
            (name,) = pool.names()
            self.heard += pool.ask(name, [budget.slot], [N_DRAFT], [lambda draft: True])


def record(path: Path, draft: str, n_prompts: int, n: int, temperature: float) -> None:
    """Texts of the target, and how a draft model or a head would have gone on at every place of them."""
    model, _ = demo_copy("F16")
    kind = kind_of(check_gguf(draft)) or MODEL
    texts, listening = [], Listening()
    with Engine(model, draft=draft, n_ctx=4096, n_threads=2, spec_types=[kind], spec_policy="fixed") as engine:
        inside(engine).core.drafting.policy = listening
        for seed, prompt in enumerate(track(prompts(n_prompts), "recording", console=Console(stderr=True))):
            tokens = chat(engine, prompt.text)[:1500]
            sampling = SamplingParams(temperature=temperature, seed=seed, ignore_eos=True)
            listening.heard.clear()
            generation = engine.generate(tokens, max_tokens=n, sampling=sampling)
            written = [piece.token.id for chunk in generation for piece in chunk.pieces]
            rows = [{"tokens": heard.tokens, "confidence": heard.confidence} for heard in listening.heard]
            rows += [{"tokens": [], "confidence": []}] * (len(written) - len(rows))
            texts.append({"category": prompt.category, "prompt": tokens, "written": written, "model": rows})
    path.write_text(json.dumps(texts))


def load(path: Path) -> list[Text]:
    texts = []
    suffix = Suffix(SuffixParams())
    for entry in json.loads(Path(needed(path, RECORDED)).read_text()):
        text = Text(entry.get("category", ""), entry["prompt"], entry["written"])
        text.drafts[MODEL] = [Draft(r["tokens"], MODEL, r["confidence"]) for r in entry["model"]]
        history = [*text.prompt]
        suffix.begin(0, history)
        text.drafts["suffix"] = []
        for token in text.written:
            history.append(token)
            text.drafts["suffix"] += suffix.draft([DraftRequest(0, history, 64)])
        suffix.end(0, history)
        texts.append(text)
    return texts
