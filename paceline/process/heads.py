"""Heads that read the target: which kind a file is, whether it fits the target, and its contexts.

libllama asserts where a head does not fit, and takes the process along. So what is known to be needed is checked here,
and the rest is tried in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter

import numpy as np

from paceline import models
from paceline.config import ContextParams, ModelParams
from paceline.drafters.base import OwnContexts
from paceline.drafters.dflash import n_block
from paceline.drafters.names import HEADS
from paceline.drafters.translation import check_vocab
from paceline.errors import ConfigError, VocabMismatch
from paceline.llama.context import Context
from paceline.llama.head import SHARED_MEMORY, HeadContext, says
from paceline.llama.hidden import NEXTN, Hidden, Source, calls, metadata, n_heads
from paceline.llama.lib import build, versions
from paceline.llama.model import Model
from paceline.process.gguf_check import Contents, check_gguf

SPARE = 64  # cells beside each window, for what a head writes itself
MOST_BLOCK = 64  # tokens that a head may write at once: libllama's graph grows with them
TRYING_S = 300.0
N_TIMED = 64  # rows
TRIED = (2, 5, 17, 64, 200)  # tokens in a prompt


def kind_of(contents: Contents) -> str | None:
    """Which drafter a file is for; None for a model that writes by itself."""
    tensors, architecture = contents.tensors, contents.architecture
    if architecture == "dflash":
        return "draft-dspark" if "markov_w1.weight" in tensors else "draft-dflash"
    if architecture in ("eagle3", SHARED_MEMORY):
        return "draft-eagle3" if architecture == "eagle3" else "draft-mtp"
    return "draft-mtp" if has_blocks(contents) and "blk.0.attn_norm.weight" not in tensors else None


def has_blocks(contents: Contents) -> bool:
    """Heads that were trained with the model are blocks after its last one."""
    return any(".nextn." in name for name in contents.tensors)


def resolved(types: tuple[str, ...], target: Contents, draft: str | None) -> tuple[str, ...]:
    """What drafts, with these files: a head that was given is asked in place of a draft model."""
    contents = check_gguf(draft) if draft else None
    kind = kind_of(contents) if contents else None
    if kind:
        types = tuple(dict.fromkeys(kind if name == "draft-simple" else name for name in types))
    for name in HEADS:
        if name in types and name != kind and not in_target(name, target, contents):
            raise ConfigError(missing(name, draft, kind))
    return types


def in_target(name: str, target: Contents, draft: Contents | None) -> bool:
    return name == "draft-mtp" and (has_blocks(target) or bool(draft and has_blocks(draft)))


def missing(name: str, draft: str | None, kind: str | None) -> str:
    if name == "draft-mtp" and not draft:
        return "draft-mtp needs a model that has MTP blocks in its file, which this one has not; give a head with -md"
    if not draft:
        return f"{name} needs a head: give one with -md FILE"
    what = f"is for {kind}" if kind else "is no head but a model of its own"
    return f"{name} cannot use {Path(draft).name}, which {what}"


def uses_own_blocks(types: tuple[str, ...], draft: str | None) -> bool:
    """Whether the target's own heads are to be loaded with it."""
    return "draft-mtp" in types and not (draft and has_mtp(check_gguf(draft)))


def has_mtp(contents: Contents) -> bool:
    return has_blocks(contents) or contents.architecture == SHARED_MEMORY


# -- whether it fits


def check_fit(name: str, path: str, target: Model) -> None:
    """Raises ConfigError with what does not fit."""
    contents, who = check_gguf(path), Path(path).name
    width = contents.own("embedding_length", 0)
    reads = {"draft-eagle3": "target_hidden_size", "draft-mtp": "embedding_length_out"}.get(name, "embedding_length")
    found, wanted = contents.own(reads, width), target.n_embd_out if name == "draft-mtp" else target.n_embd
    if found != wanted:
        raise ConfigError(f"{who} reads rows of {found} numbers, the target's have {wanted}: another model's head")
    if name != "draft-mtp":
        check_layers(name, who, contents, target)
        borrows = "token_embd.weight" not in contents.tensors or "output.weight" not in contents.tensors
        if borrows and width != target.n_embd:
            raise ConfigError(f"{who} lacks embeddings or output and has {width} numbers a row, not {target.n_embd}")
    if name == "draft-eagle3" and contents.own("block_count", 1) != 1:
        raise ConfigError(f"{who} has {contents.own('block_count')} layers; an EAGLE-3 head has one")
    tokens = contents.integers(path, "d2t")
    if len(tokens) and not 0 <= tokens.min() <= tokens.max() < target.vocab.n_tokens:
        raise ConfigError(f"{who} drafts tokens that the target does not know: another model's head")


def check_layers(name: str, who: str, contents: Contents, target: Model) -> None:
    found = contents.own("target_layers", ())
    layers = found if isinstance(found, tuple) else ()
    wrong = [layer for layer in layers if not 0 <= layer <= target.n_layer]
    if wrong:
        raise ConfigError(f"{who} reads layer {wrong[0]}; the target has {target.n_layer}: another model's head")
    if not layers or (name == "draft-eagle3" and len(layers) != 3):
        wanted = "3" if name == "draft-eagle3" else "1 or more"
        raise ConfigError(f"{who} names {len(layers)} layers of the target to read; {name} needs {wanted}")


def check_words(name: str, head: Model, target: Model) -> None:
    """What can be said once it is loaded."""
    who = Path(head.path).name
    try:
        check_vocab(target.vocab, head.vocab)
    except VocabMismatch as error:
        raise VocabMismatch(f"{who} does not fit: {error}") from None
    if name not in ("draft-dflash", "draft-dspark"):
        return
    if head.vocab.mask < 0:
        raise ConfigError(f"{who} names no mask token, which stands for what is to be drafted: convert it anew")
    if not 2 <= n_block(head) <= MOST_BLOCK:
        raise ConfigError(f"{who} is for blocks of {n_block(head)} tokens; 2 to {MOST_BLOCK} can be drafted at once")


def try_out(target: Model, head: ModelParams) -> None:
    """Once for these two files and this build of libllama; that they went well together is kept in the cache folder."""
    files = [Path(target.path), Path(head.path)]
    seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    name = sha256(repr((seen, versions(), build())).encode()).hexdigest()[:16]
    kept = models.cache_folder() / "heads" / f"{Path(head.path).stem}-{name}"
    if not kept.is_file():
        try_apart(target, head)
        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.touch()


def try_apart(target: Model, head: ModelParams) -> None:
    """libllama builds what it would compute, in a process of its own: what ends that one would have ended ours."""
    who = Path(head.path).name
    command = [sys.executable, "-P", "-m", "paceline.process.head_trial", target.path, head.path]
    env = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TRYING_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{who} could not be tried: {error}") from None
    if done.returncode != 0:
        raise ConfigError(failed(done.stdout.split(), who, target, last_line(done.stderr)))


def failed(stages: list[str], who: str, target: Model, reason: str) -> str:
    """What went wrong in a trial that came so far."""
    if "loaded" not in stages:
        return f"{who} cannot be loaded: {reason}"
    if "target" in stages:
        return f"libllama cannot use {who} with this target: {reason}"
    rows = "last state" if "layers" in stages else "layers"
    kind = metadata(target, "general.architecture")
    return f"{who} reads the target's {rows}, which libllama does not hand out for {kind} models: no such head fits it"


def last_line(text: str) -> str:
    """What libllama said, without where in its own files."""
    lines = [line.strip() for line in text.splitlines() if "assert" in line.lower() or "error" in line.lower()]
    said = (lines or ["it ended without a word"])[-1].split("error loading model: ")[-1].split("ModelError: ")[-1]
    return said[max(0, said.find("GGML_ASSERT")) :][:300]


# -- opening


def open_heads(
    name: str,
    head: Model,
    target: Context,
    shape: ContextParams,
    window: int,
    enter: Callable[[HeadContext], HeadContext],
) -> list[HeadContext]:
    """One context for all sequences; of chained heads one each."""
    shape = replace(shape, n_ctx=(window + SPARE) * shape.n_seqs)
    if name == "draft-eagle3":
        words = check_gguf(head.path).integers(head.path, "d2t").astype(np.int32)
        return [enter(HeadContext(head, shape, target, words=words))]
    if name != "draft-mtp":
        whole = max(MOST_BLOCK, shape.n_ubatch)  # a block that looks back and forth cannot be cut
        shape = replace(shape, n_batch=max(whole, shape.n_batch), n_ubatch=whole)
        causal = says(head, "dflash.attention.causal", default=False)
        all_rows = calls().selector(head.handle) > 0
        return [enter(HeadContext(head, shape, target, pairs=False, causal=causal, all_rows=all_rows))]
    if metadata(head, "general.architecture") == SHARED_MEMORY:
        return [enter(HeadContext(head, replace(target.params, n_batch=shape.n_batch), target, mtp=True))]
    return [enter(HeadContext(head, shape, target, mtp=True, block=block)) for block in range(n_heads(head))]


def described(name: str, computing: OwnContexts, source: Source, target: Model) -> str:
    """For the log: whose head it is and what it reads."""
    head = computing.heads[0]
    who = "the model's own file" if head.model is target else f"'{Path(head.model.path).name}'"
    chain = f" ({len(computing.heads)} in a chain)" if len(computing.heads) > 1 else ""
    layers = ", ".join(f"layer {layer}" for layer in source if layer != NEXTN)
    what = " and ".join(filter(None, [layers, "the last state" if NEXTN in source else ""]))
    where = ", shares the model's memory" if head.shares_memory else f" of the latest {computing.window} tokens"
    return f"{name}: head of {who}{chain} reads {what}{where}"


def change_nothing(rows: Hidden, context: Context) -> bool:
    """Whether a prompt's logits are the very same when the target hands out its last states, on this machine."""
    tried = [(n, on) for n in TRIED for on in (False, True) if n <= min(context.n_batch, context.n_ctx_seq)]
    found = {}
    for n, on in tried:
        rows.switch(on=on)
        batch = context.new_batch()
        batch.add(0, [1 + i % 7 for i in range(n)], 0, 1)
        found[n, on] = context.decode(batch).tobytes()
        context.remove(0, 0)
    return all(found[n, False] == found[n, True] for n, _ in tried)


def row_seconds(n_embd: int) -> float:
    """What taking a row of three layers out of libllama's memory costs about: it is copied twice."""
    rows = np.ones((N_TIMED, 3 * n_embd), np.float32)
    copies = np.empty_like(rows)
    seconds = []
    for _ in range(3):
        start = perf_counter()
        copies[:] = rows.copy()
        seconds.append(perf_counter() - start)
    return min(seconds) / N_TIMED
