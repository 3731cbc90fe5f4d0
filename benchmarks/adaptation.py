"""A draft or head that is trained further on one kind of request: what it gains there, and what it loses elsewhere.

    python -m benchmarks.adaptation DRAFT.gguf --work FOLDER [-m TARGET.gguf] [--stage log,train,measure] [-- OPTIONS]

The domain is one kind of JSON: a shop's record of an article, always asked for in the same words. `log` writes requests
as `paceline serve --record` does, `train` runs `paceline distill --continue` on them (what follows -- is handed on to
it), `measure` has the target answer requests for other articles, and prompts of every other kind, and compares.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from random import Random

from benchmarks import agreement
from benchmarks.common import SPEC_BENCH, guarded, needed, show
from paceline.bench.suite import SUITE, load
from paceline.config import ModelParams
from paceline.errors import ConfigError
from paceline.llama.model import Model
from paceline.models import demo_copy
from paceline.text.chat import ChatTemplate

STAGES = ("log", "train", "measure")
DOMAIN = "json_record"
GOALS = {"domain_gain": "at least 0.10", "lost_elsewhere": "at most 0.03"}
ASKED = (
    "Write the shop's record of this article as one JSON object with exactly the keys name, category, material, "
    "price_eur, weight_kg, in_stock, colours and description. Answer with the JSON alone.\nArticle: {article}"
)
MADE_OF = ("wooden", "steel", "cotton", "leather", "glass", "ceramic", "plastic", "woollen", "bamboo", "rubber")
KNOWN = (
    *("chair", "table", "lamp", "bag", "bowl", "box", "watch", "belt", "clock", "mirror", "basket", "bottle", "tray"),
    *("stool", "shelf", "cup", "blanket", "toy car", "hat", "glove", "brush", "frame", "candle holder", "pillow"),
    *("bench", "wallet", "vase", "spoon", "cutting board", "coat hanger", "umbrella", "necklace", "ruler", "drum"),
)
UNKNOWN = ("desk", "plate", "shoe", "scarf", "teapot", "puppet", "bracelet", "ladder", "birdhouse", "flute")
"""Articles that are only measured with."""


def articles(things: tuple[str, ...], n: int) -> list[str]:
    """n different ones, always the same."""
    found = [f"{material} {thing}" for material, thing in product(MADE_OF, things)]
    Random(0).shuffle(found)
    return found[:n]


def write_log(path: Path, target: str, n: int) -> None:
    """As a server would have recorded them; the answers are left to the target."""
    with Model(ModelParams(path=target, vocab_only=True)) as model:
        template = ChatTemplate.of(model.chat_template, model.vocab)
    asked = [template.render([{"role": "user", "content": ASKED.format(article=a)}]) for a in articles(KNOWN, n)]
    entries = [{"time": time.time(), "model": Path(target).stem, "prompt": prompt} for prompt in asked]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def write_questions(path: Path, n: int, per_category: int) -> None:
    """Of the domain, about articles that are not in the log, and of every other kind."""
    asked = [{"category": DOMAIN, "turns": [ASKED.format(article=article)]} for article in articles(UNKNOWN, n)]
    counts: dict[str, int] = {}
    for prompt in load(SPEC_BENCH) if SPEC_BENCH.exists() else SUITE:
        counts[prompt.category] = counts.get(prompt.category, 0) + 1
        if counts[prompt.category] <= per_category:
            asked.append({"category": prompt.category, "turns": [prompt.text]})
    path.write_text("".join(json.dumps(entry) + "\n" for entry in asked))


def train(args: argparse.Namespace, target: str, log: Path, output: Path) -> None:
    command = [sys.executable, "-m", "paceline", "distill", "-m", target, "--continue", args.draft]
    command += ["--log", str(log), "-o", str(output), *args.distill]
    if subprocess.run(command, check=False).returncode:
        raise ConfigError("distill did not come to its end")


def compare(args: argparse.Namespace, target: str, questions: Path, output: Path) -> dict[str, object]:
    wanted = argparse.Namespace(
        files=[args.draft, needed(output, "the adapted draft")],
        model=target,
        prompts=str(questions),
        per_category=0,
        tokens=args.tokens,
        threads=args.threads,
    )
    tallies, target_ms = agreement.measure(wanted)
    before, after = tallies.values()
    others = [category for category in before.stood if category != DOMAIN]
    lost = {category: round(before.agreement(category) - after.agreement(category), 3) for category in others}
    return {
        "domain_before": before.agreement(DOMAIN),
        "domain_after": after.agreement(DOMAIN),
        "domain_gain": round(after.agreement(DOMAIN) - before.agreement(DOMAIN), 3),
        "elsewhere_before": before.agreement(*others),
        "elsewhere_after": after.agreement(*others),
        "lost_elsewhere": round(before.agreement(*others) - after.agreement(*others), 3),
        "lost_by_category": lost,
        "domain_tokens_per_step_4": [tally.per_step(4, DOMAIN) for tally in (before, after)],
        "target_ms_per_token": round(target_ms, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("draft", help="the draft model or EAGLE-3 head to begin with")
    parser.add_argument("-m", "--model", help="its target; the demo model if not given")
    parser.add_argument("--kind", default="Q4_1", help="precision of the demo model")
    parser.add_argument("--work", required=True, help="a folder for log, text and result")
    parser.add_argument("--stage", default=",".join(STAGES), help="do only these")
    parser.add_argument("--requests", type=int, default=300, help="in the log")
    parser.add_argument("--held-out", type=int, default=24, help="requests of the domain to measure with")
    parser.add_argument("--per-category", type=int, default=4, help="prompts of every other kind")
    parser.add_argument("--tokens", type=int, default=96, help="of an answer, at most")
    parser.add_argument("-t", "--threads", type=int, default=2)
    words = sys.argv[1:]  # argparse takes what follows -- for a word of its own where options stand before it
    after = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:after], argparse.Namespace(distill=words[after + 1 :]))
    target = needed(args.model, "the target") if args.model else demo_copy(args.kind)[0]
    folder, stages = Path(args.work), args.stage.split(",")
    log, questions, output = (folder / name for name in ("requests.jsonl", "questions.jsonl", "adapted.gguf"))
    folder.mkdir(parents=True, exist_ok=True)
    if "log" in stages:
        write_log(log, target, args.requests)
        write_questions(questions, args.held_out, args.per_category)
    if "train" in stages:
        train(args, target, log, output)
    if "measure" in stages:
        show(compare(args, target, questions, output), GOALS)


if __name__ == "__main__":
    guarded(main)
