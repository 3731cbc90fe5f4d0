"""Answers of the target, recorded with what a draft model and look-ups would have proposed at every place of them."""

from __future__ import annotations

import json
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
from paceline.engine.drafting import noise_of
from paceline.models import demo_copy

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


def record(path: Path, draft: str, n_prompts: int, n: int, temperature: float) -> None:
    """Texts of the target, and the draft model's own continuation at every place of them."""
    model, _ = demo_copy("F16")
    texts = []
    with Engine(model, draft=draft, n_ctx=4096, n_threads=2, spec_policy="fixed") as engine:
        drafter = inside(engine).core.drafting.drafters[MODEL]
        for seed, prompt in enumerate(track(prompts(n_prompts), "recording", console=Console(stderr=True))):
            tokens = chat(engine, prompt.text)[:1500]
            sampling = SamplingParams(temperature=temperature, seed=seed, ignore_eos=True)
            generation = engine.generate(tokens, max_tokens=n, sampling=sampling, speculative={"types": []})
            written = [piece.token.id for chunk in generation for piece in chunk.pieces]
            drafter.begin(0, tokens)
            rows = []
            for i in range(len(written)):
                ask = DraftRequest(0, [*tokens, *written[: i + 1]], N_DRAFT, p_min=0.0, noise=noise_of(sampling, seed))
                guess = drafter.draft([ask])[0]
                rows.append({"tokens": guess.tokens, "confidence": guess.confidence})
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
