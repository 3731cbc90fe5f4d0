"""Where flags put a target and its draft: tensors, caches and memory by device, whether the text stays the same, speed.

python -m benchmarks.placement FOLDER [-n 48] [--only nkvo] [--json placement.json]
python -m benchmarks.placement -m target.gguf -md draft.gguf --also="-ngl 20 -ot 'blk\\.1=CPU'"

The largest model of the folder is the target, the smallest with its vocabulary the draft. Each line of flags runs in a
process of its own, in exact mode and with drafts of up to four tokens whether they pay or not: the answer without
drafts and the one with them have to be the same.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import guarded, needed
from paceline import Engine
from paceline.cli import build
from paceline.cli.flags import parse
from paceline.config import ModelParams
from paceline.drafters.translation import check_vocab
from paceline.errors import ConfigError, PacelineError
from paceline.llama.devices import can_offload, found_devices
from paceline.llama.model import Model
from paceline.process.gguf_check import check_gguf

FIXED = "--exact --spec-type draft-simple --spec-policy fixed --draft-max 4"
PROMPT = "A list of the planets, each with one sentence on what it is made of and how it was found:\n"
LOADED = re.compile(r"loaded meta data with .* from (.+) \(version")
OPENED = "constructing llama_context"
BUFFER = re.compile(r"(\S+) +(model|KV|RS|compute|output) buffer size = +([\d.]+) MiB")
PARTS = {"model": "weights", "KV": "cache", "RS": "cache", "compute": "computing", "output": "computing"}
ANYWHERE = ("", "-ngl 0", "-dev none -devd none", "-ctk q8_0 -ctv q8_0", "-ctkd q8_0 -ctvd q8_0", "--no-mmap", "-nkvo")
WITH_GPU = (
    "-ngl {half}",
    "-ngld 0",
    "-devd none",
    "-ngl 0 -ngld 99",
    "-dev {gpu} -devd {gpu}",
    "-ot ffn=CPU",
    "-otd ffn=CPU",
    "-ot 'blk\\.[0-3]\\.attn=CPU' -nkvo",
    "--no-op-offload -ngl {half}",
    "-sm none -mg 0",
)
WITH_TWO = ("-sm row", "-ts 3,1", "-dev {gpu} -devd {other}", "-sm none -mg 1")
WITH_EXPERTS = ("-cmoe", "-ncmoe {half}", "-cmoe -ngl 99 -ngld 99")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="placement", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", nargs="?", help="where models are")
    parser.add_argument("-m", "--model", help="the target, instead of the largest")
    parser.add_argument("-md", "--model-draft", help="the draft, instead of the smallest that fits")
    parser.add_argument("-n", type=int, default=48, help="tokens of each answer")
    parser.add_argument("-c", type=int, default=1024, help="tokens of the context")
    parser.add_argument("-t", type=int, default=-1, help="threads, else one a core")
    parser.add_argument("--also", action="append", default=[], metavar="FLAGS", help="a further line of flags")
    parser.add_argument("--only", default="", metavar="TEXT", help="lines with this in them")
    parser.add_argument("--json", metavar="FILE", help="keep everything")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    target, draft = chosen(args.folder, args.model, args.model_draft)
    if args.one is not None:
        print(json.dumps(measured(f"-c {args.c} -t {args.t} {args.one}", target, draft, args.n)))
        return
    lines = [line for line in [*combinations(target), *args.also] if args.only in line]
    files = ["-m", target, "-md", draft, "-n", str(args.n), "-c", str(args.c), "-t", str(args.t)]
    bar = track(lines, "placing", console=Console(stderr=True))
    results = [{"flags": line, **in_a_process(line, files)} for line in bar]
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1))
    Console(width=200).print(table(target, draft, results))
    print(json.dumps(results))


def chosen(folder: str | None, target: str | None, draft: str | None) -> tuple[str, str]:
    files = sorted(Path(folder).glob("*.gguf"), key=lambda file: file.stat().st_size) if folder else []
    if not (target or files):
        raise ConfigError("needs models: a folder with GGUF files, or -m and -md")
    target = needed(target or str(files[-1]), "the target")
    return target, needed(draft or fitting(target, [str(file) for file in files]), "the draft")


def fitting(target: str, files: Sequence[str]) -> str:
    """The first that has the target's vocabulary."""
    with Model(ModelParams(path=target, vocab_only=True)) as model:
        for file in files:
            if file == target:
                continue
            try:
                with Model(ModelParams(path=file, vocab_only=True)) as other:
                    check_vocab(model.vocab, other.vocab)
            except PacelineError:
                continue
            return file
    raise ConfigError(f"no other model of the folder has the vocabulary of {target}: give a draft with -md")


def combinations(target: str) -> list[str]:
    """What can differ on this machine."""
    gpus = [device.name for device in found_devices() if device.offloads]
    with Model(ModelParams(path=target, n_gpu_layers=0)) as model:
        half = model.n_layer // 2
    lines = [*ANYWHERE, *(WITH_GPU if can_offload() else ()), *(WITH_TWO if len(gpus) > 1 else ())]
    lines += WITH_EXPERTS if has_experts(target) else ()
    names = {"half": half, "gpu": gpus[0] if gpus else "", "other": gpus[-1] if gpus else ""}
    return [line.format(**names) for line in lines]


def has_experts(path: str) -> bool:
    contents = check_gguf(path)
    return bool(contents.own("expert_count", 0))


def in_a_process(line: str, files: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.placement", f"--one={line}", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Placements(logging.Handler):
    """What libllama logs of its buffers, in MiB: by file, by part, by memory. What is loaded again counts once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: dict[str, dict[str, dict[str, float]]] = {}
        self._file = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if match := LOADED.search(text):
            self._file = match[1]
            self.found[self._file] = {"weights": {}, "cache": {}, "computing": {}}
        elif OPENED in text:
            self.found[self._file] |= {"cache": {}, "computing": {}}
        elif (match := BUFFER.search(text)) and self._file:
            part = self.found[self._file][PARTS[match[2]]]
            part[match[1]] = round(part.get(match[1], 0.0) + float(match[3]), 2)


def measured(line: str, target: str, draft: str, n: int) -> dict[str, Any]:
    """One placement: where everything went, both answers and their speeds."""
    logger, placements = logging.getLogger("paceline.llama"), Placements()
    logger.setLevel(logging.INFO)
    logger.addHandler(placements)
    free = {device.name: device.n_free for device in found_devices()}
    words = ["-m", target, "-md", draft, *shlex.split(FIXED), *shlex.split(line)]
    with Engine.from_settings(build.settings(parse(words, "run"))) as engine:
        answered(engine, 8, None)
        plain, drafted = answered(engine, n, ()), answered(engine, n, None)
        used = {device.name: (free[device.name] - device.n_free) >> 20 for device in found_devices() if device.offloads}
        accepted = sum(stats.n_accepted_tokens for stats in engine.drafter_stats())
    return {
        "target": placements.found[target],
        "draft": placements.found[draft],
        "used_mib": used,
        "same": plain[0] == drafted[0],
        "accepted": accepted,
        "plain_tps": round(plain[1], 1),
        "drafted_tps": round(drafted[1], 1),
    }


def answered(engine: Engine, n: int, types: tuple[str, ...] | None) -> tuple[str, float]:
    """A text and its tokens per second."""
    wishes = {} if types is None else {"types": types}
    start = perf_counter()
    text = engine.generate(
        PROMPT, max_tokens=n, temperature=0, ignore_eos=True, cache_prompt=False, speculative=wishes
    ).text()
    return text, n / (perf_counter() - start)


def table(target: str, draft: str, results: Sequence[dict[str, Any]]) -> Table:
    names = f"{Path(target).name}, drafted for by {Path(draft).name}; MiB"
    rows = Table(title=names, title_justify="left")
    for name in (
        "flags",
        "target",
        "its cache",
        "draft",
        "its cache",
        "GPU used",
        "same text",
        "plain t/s",
        "drafted t/s",
    ):
        rows.add_column(name, overflow="fold")
    for result in results:
        flags = result["flags"] or "(none)"
        if "error" in result:
            rows.add_row(flags, result["error"])
            continue
        places = [by_memory(result[whose][part]) for whose in ("target", "draft") for part in ("weights", "cache")]
        speeds = (str(result["plain_tps"]), str(result["drafted_tps"]))
        rows.add_row(flags, *places, by_memory(result["used_mib"]), "yes" if result["same"] else "NO", *speeds)
    return rows


def by_memory(sizes: dict[str, float]) -> str:
    return " + ".join(f"{name} {size:{'.0f' if size >= 10 else '.1f'}}" for name, size in sizes.items()) or "-"


if __name__ == "__main__":
    guarded(main)
