"""Every look-up drafter on the same recorded greedy texts: accepted tokens per target call, and how much is wasted.

python -m benchmarks.replay --record texts.json     # once
python -m benchmarks.lookups texts.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common import guarded
from benchmarks.recording import Text, load, n_right
from paceline.config.drafters import DrafterSettings, NgramCacheParams, NgramModParams, NgramParams
from paceline.drafters.base import Drafter, DraftRequest, Resources
from paceline.drafters.registry import ENTRIES

N_MAX = 64
VARIANTS: dict[str, tuple[str, DrafterSettings]] = {
    "ngram-simple n=12": ("ngram-simple", DrafterSettings()),
    "ngram-simple n=4": ("ngram-simple", DrafterSettings(ngram_simple=NgramParams(size_n=4, size_m=8))),
    "ngram-map-k n=12": ("ngram-map-k", DrafterSettings()),
    "ngram-map-k n=4": ("ngram-map-k", DrafterSettings(ngram_map_k=NgramParams(size_n=4, size_m=8))),
    "ngram-map-k4v n=12": ("ngram-map-k4v", DrafterSettings()),
    "ngram-map-k4v 8/8/2": (
        "ngram-map-k4v",
        DrafterSettings(ngram_map_k4v=NgramParams(size_n=8, size_m=8, min_hits=2)),
    ),
    "ngram-mod": ("ngram-mod", DrafterSettings()),
    "ngram-mod n=8, min 1": ("ngram-mod", DrafterSettings(ngram_mod=NgramModParams(n_match=8, n_min=1))),
    "ngram-cache": ("ngram-cache", DrafterSettings(ngram_cache=NgramCacheParams())),
    "suffix": ("suffix", DrafterSettings()),
}


def build(name: str, settings: DrafterSettings) -> Drafter:
    """A look-up: it needs nothing but its settings."""
    nothing: Any = None
    return ENTRIES[name].build(Resources(settings, nothing))


def walk(drafter: Drafter, texts: list[Text]) -> dict[str, float]:
    """Write all texts with this drafter's help, checking everything it proposes."""
    n_tokens = n_calls = n_drafted = n_accepted = 0
    for text in texts:
        history = [*text.prompt, text.written[0]]
        drafter.begin(0, text.prompt)
        while len(history) - len(text.prompt) < len(text.written):
            left = text.written[len(history) - len(text.prompt) :]
            draft = drafter.draft([DraftRequest(0, history, min(N_MAX, len(left) - 1))])[0]
            n = n_right(draft.tokens, left)
            if draft.tokens:
                drafter.accept(0, draft, n)
            history.extend(left[: n + 1])
            n_calls, n_tokens = n_calls + 1, n_tokens + n + 1
            n_drafted, n_accepted = n_drafted + len(draft), n_accepted + n
        drafter.end(0, history)
    return {
        "accepted_per_call": n_accepted / n_calls,
        "tokens_per_call": n_tokens / n_calls,
        "acceptance": n_accepted / max(1, n_drafted),
        "drafted_per_call": n_drafted / n_calls,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, help="written by `python -m benchmarks.replay --record FILE`")
    texts = load(parser.parse_args().texts)
    table = Table("drafter", "accepted per call", "tokens per call", "acceptance", "drafted per call")
    result: dict[str, Any] = {"n_texts": len(texts), "n_tokens": sum(len(text.written) for text in texts)}
    for label, (name, settings) in VARIANTS.items():
        row = result[label] = walk(build(name, settings), texts)
        table.add_row(label, *(f"{value:.3f}" for value in row.values()))
    Console().print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    guarded(main)
