"""What translating drafts costs a step, and what it costs in acceptance beside the same model with the target's tokens.

The draft model is copied with its token ids shuffled and a share of its merges gone: other ids and other splits, the
same knowledge. Texts are the demo model's own answers; the drafters go along them as if it were writing.

python -m benchmarks.translation [--draft FILE] [--merges 0.5] [--texts 4] [-n 64] [--history 8000]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import product, takewhile
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import chat, draft_model, guarded, prompts
from paceline import Engine
from paceline.config import ContextParams, ModelParams
from paceline.config.drafters import DrafterSettings, DraftModelParams
from paceline.drafters import translated
from paceline.drafters.base import Drafter, DraftRequest, OwnContexts, Resources
from paceline.drafters.segments import Rendering, Translation
from paceline.drafters.translation import dictionaries
from paceline.llama.context import Context
from paceline.llama.model import Model, Vocab
from paceline.models import demo_model
from paceline.planner.costs import CostCurve
from tests.other_vocab import write_permuted

GOAL_MS = 0.2
WINDOW = 512
N_STEPS = 500
LENGTHS = (4, 8)  # tokens of drafts whose translation is timed
SURE = 0.5


def step_times(target: Vocab, draft: Vocab, text: bytes, n_history: int, n_draft: int) -> list[float]:
    """Milliseconds of each step: three new tokens become the draft's, so many of the draft's become the target's. The
    words are new to it at first."""
    there, back = dictionaries(target, draft)
    length = cache(lambda token: len(target.piece(token)))
    tokens = target.tokenize_bytes(text)
    tokens *= 1 + (n_history + 4 * N_STEPS) // len(tokens)
    guesses = draft.tokenize_bytes(text)
    history = Translation(there)
    history.read(tokens[:n_history])
    found = []
    for step in range(N_STEPS):
        start, place = perf_counter(), n_history + 3 * step
        history.read(tokens[place : place + 3])
        rendering = Rendering(back, length, history.pending)
        for guess in guesses[step % (len(guesses) - n_draft) :][:n_draft]:
            rendering.add(guess, SURE)
        rendering.end()
        pairs = [rendering.token(index) for index in range(len(rendering.tokens))]
        found.append(1e3 * (perf_counter() - start))
        assert all(sure <= SURE for _, sure in pairs)
    return found


@contextmanager
def drafter_of(path: str, target: Model) -> Iterator[Drafter]:
    with Model(ModelParams(path=path)) as model, Context(model, ContextParams(n_ctx=WINDOW, n_threads=1)) as context:
        settings = DrafterSettings(draft_model=DraftModelParams(window=WINDOW))
        yield translated.draft_model(
            Resources(settings, target, {"draft-simple": OwnContexts(CostCurve(), WINDOW, context)})
        )


def accepted(drafter: Drafter, texts: Sequence[tuple[list[int], list[int]]], n_max: int) -> tuple[int, int, int]:
    """Questions, tokens drafted and tokens that were right, along these prompts and answers."""
    n_asked = n_drafted = n_right = 0
    for prompt, answer in track(texts, "drafting along the answers", transient=True):
        text, rest = [*prompt, *answer[:1]], answer[1:]
        drafter.begin(0, text)
        while rest:
            (draft,) = drafter.draft([DraftRequest(0, text, n_max, p_min=0.0)])
            agreed = list(takewhile(lambda pair: pair[0] == pair[1], zip(draft.tokens, rest, strict=False)))
            n_asked, n_drafted, n_right = n_asked + 1, n_drafted + len(draft), n_right + len(agreed)
            text, rest = [*text, *rest[: len(agreed) + 1]], rest[len(agreed) + 1 :]
    return n_asked, n_drafted, n_right


def answers(model: str, n_texts: int, n: int) -> list[tuple[list[int], list[int]]]:
    """Prompts, and what the model says to each."""
    found = []
    with Engine(model, n_ctx=2048, spec_types=()) as engine:
        for prompt in track(prompts(n_texts), "the target writes", transient=True):
            asked = chat(engine, prompt.text)
            generation = engine.generate(asked, max_tokens=n, temperature=0)
            found.append((asked, [piece.token.id for chunk in generation for piece in chunk.pieces]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draft", help="a draft model for the demo model")
    parser.add_argument("--merges", type=float, default=0.5, help="share of its merges that the copy keeps")
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("-n", type=int, default=64, help="tokens of each text")
    parser.add_argument("--draft-max", type=int, default=4)
    parser.add_argument("--history", type=int, default=8000)
    args = parser.parse_args()
    draft, result = draft_model(args.draft), dict[str, object]()
    table = Table("what", "measured", "goal")
    with tempfile.TemporaryDirectory() as folder, Model(ModelParams(path=demo_model())) as target:
        copy = write_permuted(draft, Path(folder) / "copy.gguf", n_merges=args.merges)
        text = "\n".join(prompt.text for prompt in prompts(12)).encode()
        with Model(ModelParams(path=copy)) as other:
            for n_history, n_draft in product((100, args.history), LENGTHS):
                times = step_times(target.vocab, other.vocab, text, n_history, n_draft)
                found = {"median": round(median(times), 3), "fastest tenth": round(quantiles(times, n=10)[0], 3)}
                result[f"step_ms_at_{n_history}_draft_{n_draft}"] = found
                what = f"ms a step, {n_history} tokens of history, {n_draft} drafted"
                table.add_row(what, str(found), f"< {GOAL_MS}")
        texts = answers(demo_model(), args.texts, args.n)
        for name, path in (("the target's vocabulary", draft), ("another vocabulary", copy)):
            with drafter_of(path, target) as drafter:
                n_asked, n_drafted, n_right = accepted(drafter, texts, args.draft_max)
            rate = round(n_right / max(1, n_drafted), 3)
            result[name] = {"asked": n_asked, "drafted": n_drafted, "accepted": n_right, "rate": rate}
            table.add_row(f"acceptance, {name}", f"{rate} ({n_right} of {n_drafted})", "the first")
    Console().print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    guarded(main)
