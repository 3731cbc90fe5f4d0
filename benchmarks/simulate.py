"""The planner on other machines' cost curves: a simulation on recorded texts and drafts, no GPU needed.

    python -m benchmarks.simulate --record texts.json [--prompts 24 -n 128 --temp 0]     # once, runs the models
    python -m benchmarks.simulate --texts texts.json

Compares the auto policy with no speculation and with the best constant policy (drafter and length) found by search.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import chat, draft_model, prompts
from paceline import Engine
from paceline.config import SamplingParams, SuffixParams
from paceline.drafters.base import Ask, Draft
from paceline.drafters.suffix import Suffix
from paceline.engine.auto import AutoPolicy
from paceline.engine.costs import CostCurve
from paceline.engine.drafting import noise_of
from paceline.engine.planner import Planner
from paceline.engine.policy import GoOn, Want
from paceline.engine.proposal import Proposal
from paceline.engine.request import Request
from paceline.engine.slot import Slot
from paceline.engine.stats import DrafterStats
from paceline.models import demo_copy

N_DRAFT = 16
CURVES: dict[str, tuple[dict[int, float], float, float]] = {
    # seconds relative to one token, a draft model's step, and what asking it costs besides (Python, a cold cache)
    "H200 8B F16": ({1: 1, 2: 1.41, 4: 1.45, 8: 1.54, 16: 1.69, 32: 1.70, 64: 1.78}, 0.22, 0.0),
    "H200 135M F16": ({1: 1, 2: 1.50, 4: 1.72, 8: 1.84, 16: 1.95, 32: 2.59, 64: 3.04}, 0.50, 0.0),
    "CPU F16": ({1: 1, 2: 1.22, 3: 1.47, 4: 1.62, 5: 1.85, 6: 2.01, 8: 2.36, 12: 3.15, 16: 3.92, 32: 6.9}, 0.04, 0.05),
    "CPU Q8_0": ({1: 1, 2: 1.36, 3: 1.61, 4: 1.82, 5: 2.26, 6: 2.51, 8: 2.83, 12: 3.88, 16: 4.88, 32: 9.0}, 0.06, 0.1),
    "CPU Q4_0": ({1: 1, 2: 1.36, 3: 1.84, 4: 1.91, 5: 2.4, 6: 2.87, 8: 3.34, 12: 4.68, 16: 5.52, 32: 10.7}, 0.08, 0.12),
}


@dataclass(slots=True)
class Text:
    """A recorded text: its prompt, what the target wrote, and what each drafter would have proposed at every place."""

    prompt: list[int]
    written: list[int]
    drafts: dict[str, list[Draft]] = field(default_factory=dict)
    category: str = ""


def record(path: Path, n_prompts: int, n: int, temperature: float = 0.0) -> None:
    """Texts of the target, and the draft model's own continuation at every place of them."""
    model, _ = demo_copy("F16")
    texts = []
    with Engine(model, draft=draft_model(), n_ctx=4096, n_threads=2, spec_policy="fixed") as engine:
        drafter = engine.core.drafting.drafters["draft-simple"]
        for seed, prompt in enumerate(track(prompts(n_prompts), "recording", console=Console(stderr=True))):
            tokens = chat(engine, prompt.text)[:1500]
            sampling = SamplingParams(temperature=temperature, seed=seed, ignore_eos=True)
            generation = engine.generate(tokens, max_tokens=n, sampling=sampling, speculative={"types": []})
            written = [piece.token.id for chunk in generation for piece in chunk.pieces]
            drafter.begin(0, tokens)
            rows = []
            for i in range(len(written)):
                ask = Ask(0, [*tokens, *written[: i + 1]], N_DRAFT, p_min=0.0, noise=noise_of(sampling, seed))
                draft = drafter.draft([ask])[0]
                rows.append({"tokens": draft.tokens, "confidence": draft.confidence})
            texts.append({"category": prompt.category, "prompt": tokens, "written": written, "model": rows})
    path.write_text(json.dumps(texts))


def load(path: Path) -> list[Text]:
    texts = []
    suffix = Suffix(SuffixParams())
    for entry in json.loads(path.read_text()):
        text = Text(entry["prompt"], entry["written"], category=entry.get("category", ""))
        text.drafts["draft-simple"] = [Draft(r["tokens"], "draft-simple", r["confidence"]) for r in entry["model"]]
        history = [*text.prompt]
        suffix.begin(0, history)
        text.drafts["suffix"] = []
        for token in text.written:
            history.append(token)
            text.drafts["suffix"] += suffix.draft([Ask(0, history, 64)])
        suffix.end(0, history)
        texts.append(text)
    return texts


class Machine:
    """Virtual time, and recorded drafts on demand."""

    def __init__(self, draft_step: float, question: float) -> None:
        self.draft_step = draft_step
        self.question = question
        self.clock = {"suffix": 0.0, "draft-simple": 0.0}
        self.text = Text([], [])

    def names(self) -> list[str]:
        return ["suffix", "draft-simple"]

    def seconds(self, name: str) -> float:
        return self.clock[name]

    def ask(self, name: str, slots: list[Slot], limits: list[int], go_on: Sequence[GoOn | None]) -> list[Draft]:
        slot, limit, rule = slots[0], limits[0], go_on[0]
        known = self.text.drafts[name][slot.n_generated - 1]
        n_ahead = len(slot.draft)
        if n_ahead:
            known = self._after(name, slot, n_ahead)
        draft = known.cut(limit) if name == "suffix" else self._step_by_step(known, limit, rule)
        if draft.tokens:
            slot.offers.append((tuple(slot.draft.tokens), draft))
        return [draft]

    def _after(self, name: str, slot: Slot, n_ahead: int) -> Draft:
        """What the model would add to a look-up: known only where that is right; after a wrong one, a wrong guess."""
        at = slot.n_generated - 1 + n_ahead
        right = self.text.written[slot.n_generated : at + 1] == slot.draft.tokens
        return self.text.drafts[name][at] if right and at < len(self.text.written) else Draft([-1], name, [0.5])

    def _step_by_step(self, known: Draft, limit: int, rule: GoOn | None) -> Draft:
        n = 0
        self.clock["draft-simple"] += self.question
        while n < min(limit, len(known)):
            self.clock["draft-simple"] += self.draft_step
            n += 1
            if rule and not rule(known.cut(n)):
                break
        return known.cut(n)


def n_right(draft: Sequence[int], text: Sequence[int]) -> int:
    n = 0
    while n < min(len(draft), len(text)) and draft[n] == text[n]:
        n += 1
    return n


def auto(texts: list[Text], curve: CostCurve, draft_step: float, question: float) -> tuple[float, dict[int, int]]:
    """Virtual tokens per second of the auto policy over all texts, and how long its drafts were."""
    machine = Machine(draft_step, question)
    policy = AutoPolicy(
        Planner(CostCurve({n: curve.predict(n) for n in (1, 2, 4, 8, 16, 32)}, 0.0), CostCurve({1: draft_step}))
    )
    seconds, n_tokens = 0.0, 0
    lengths: dict[int, int] = {}
    for text in texts:
        machine.text = text
        slot = Slot(0, tokens=[*text.prompt, text.written[0]], n_prompt=len(text.prompt))
        slot.request = Request(prompt=text.prompt, on_event=lambda event: None)
        slot.stats = {name: DrafterStats(name) for name in machine.names()}
        while slot.n_generated < len(text.written):
            slot.draft = Proposal()
            slot.offers.clear()
            left = text.written[slot.n_generated :]
            before = sum(machine.clock.values())
            policy.propose(machine, [Want(slot, max(0, len(left) - 1))])
            emitted = left[: n_right(slot.draft.tokens, left) + 1]
            step = curve.predict(1 + len(slot.draft))
            seconds += step + sum(machine.clock.values()) - before
            lengths[len(slot.draft)] = lengths.get(len(slot.draft), 0) + 1
            policy.settled(slot, emitted)
            policy.spent(1 + len(slot.draft), len(emitted), step)
            slot.tokens.extend(emitted)
            n_tokens += len(emitted)
        policy.ended(slot)
    return n_tokens / seconds, lengths


def constant(
    texts: list[Text], curve: CostCurve, draft_step: float, question: float, name: str, k: int, p_min: float
) -> float:
    """Virtual tokens per second of: always this drafter, at most k tokens, each of at least this confidence."""
    seconds, n_tokens = 0.0, 0
    for text in texts:
        at = 1
        while at < len(text.written):
            known = text.drafts[name][at - 1]
            limit = min(k, len(text.written) - at - 1)
            n = 0
            while n < min(limit, len(known)) and known.confidence[n] >= p_min:
                n += 1
            asking = question + min(n + 1, limit) * draft_step if name == "draft-simple" and limit else 0.0
            n_new = n_right(known.tokens[:n], text.written[at:]) + 1
            seconds += curve.predict(1 + n) + asking
            n_tokens += n_new
            at += n_new
    return n_tokens / seconds


def best_constant(texts: list[Text], curve: CostCurve, draft_step: float, question: float) -> tuple[float, str]:
    choices = product(("suffix", "draft-simple"), (1, 2, 3, 4, 6, 8, 12, 16, 32), (0.0, 0.2, 0.4, 0.6, 0.8))
    found = [
        (constant(texts, curve, draft_step, question, name, k, p_min), f"{name} k={k} p_min={p_min}")
        for name, k, p_min in choices
    ]
    return max([*found, (1 / curve.predict(1), "none")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--temp", type=float, default=0.0)
    args = parser.parse_args()
    if args.record:
        record(args.record, args.prompts, args.n, args.temp)
    texts = load(args.texts or args.record)
    table = Table(
        "curve", "auto / none", "best constant / none", "auto / best", "best constant", "auto drafts 0 / 1-3 / 4+"
    )
    result: dict[str, Any] = {"n_texts": len(texts)}
    for name, (points, draft_step, question) in CURVES.items():
        curve = CostCurve({n: float(s) for n, s in points.items()})
        plain = 1 / curve.predict(1)
        speed, lengths = auto(texts, curve, draft_step, question)
        best, what = best_constant(texts, curve, draft_step, question)
        shares = [sum(c for n, c in lengths.items() if low <= n < high) for low, high in ((0, 1), (1, 4), (4, 999))]
        result[name] = {
            "auto": speed / plain,
            "best": best / plain,
            "ratio": speed / best,
            "what": what,
            "steps": shares,
        }
        table.add_row(name, f"{speed / plain:.3f}", f"{best / plain:.3f}", f"{speed / best:.3f}", what, str(shares))
    Console().print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
