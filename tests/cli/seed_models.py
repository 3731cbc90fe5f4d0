"""Tiny files under the names of the seed documents' command lines, and a hub that has their repositories.

A small model stands for every model, its first layer alone for every draft; heads are real heads, the
draft with experts has experts, and the model that its makers split is split."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tests.heads.files import WIDTH, File
from tests.heads.heads import write_dflash, write_dspark, write_eagle3
from tests.heads.targets import write_gemma4, write_gemma4_assistant, write_step35
from tests.hub.server import HubServer
from tests.tiny import write_bert, write_model
from tests.upstream.stories import STORIES, Story, write_story

TARGETS = ("main-model", "model", "llama-3.1-70b", "main", "codellama", "deepseek-r1", "llama-70b")
DRAFTS = ("draft-model", "llama-3.2-1b", "draft", "llama-1b")
LONG_TARGET = "Qwen3-Coder-480B-A35B-Instruct-THIREUS-BF16-SPECIAL_TENSOR-00001-of-00748"
LONG_DRAFT = "Qwen3-Coder-30B-A3B-Instruct-IQ1_KT"
QUANTS = ("Q4_K_M", "Q8_0")
SPLIT = "ggml-org/gpt-oss-120b-GGUF"
EMBEDDING = "ggml-org/embeddinggemma-300M-qat-q4_0-GGUF"


def write_files(folder: Path) -> None:
    """Every file a line names, by that name."""
    target = write_model(folder / "target.gguf", seed=1, scale=4.0)
    draft = write_model(folder / "small.gguf", seed=1, n_layer=1, n_ctx=128, scale=4.0)
    for names, path in (((*TARGETS, LONG_TARGET), target), ((*DRAFTS, LONG_DRAFT), draft)):
        for name in names:
            (folder / f"{name}.gguf").hardlink_to(path)
    write_experts(folder / "moe-draft.gguf")
    write_model(folder / "Qwen3-4B.gguf", seed=1, n_layer=4, scale=4.0)
    write_eagle3(folder / "Qwen3-4B-eagle3.gguf")
    write_dflash(folder / "Qwen3-4B-DFlash.gguf")
    write_dspark(folder / "Qwen3-4B-DSpark.gguf")
    write_step35(folder / "Qwen3.6-27B-mtp.gguf")
    write_gemma4(folder / "gemma-4-26B.gguf")
    write_gemma4_assistant(folder / "gemma-4-26B-assistant.gguf")


def write_experts(path: Path, *, n_expert: int = 4) -> str:
    """A draft for `write_model` with four experts in each of its layers, of which two are asked for each token."""
    n_layer, n_ff = 3, 2 * WIDTH
    file = File(path, "llama", seed=31, n_layer=n_layer)
    n_vocab = file.vocab()
    file.writer.add_expert_count(n_expert)
    file.writer.add_expert_used_count(2)
    file.writer.add_rope_dimension_count(WIDTH // 2)
    file.matrix("token_embd", n_vocab, WIDTH, np.sqrt(WIDTH))
    file.ones(("output_norm",))
    file.matrix("output", n_vocab, WIDTH, 4.0)
    for i in range(n_layer):
        block = f"blk.{i}"
        file.ones((f"{block}.attn_norm", f"{block}.ffn_norm"))
        file.attention(block, WIDTH)
        file.matrix(f"{block}.ffn_gate_inp", n_expert, WIDTH)
        for name, rows, columns in (("gate", n_ff, WIDTH), ("up", n_ff, WIDTH), ("down", WIDTH, n_ff)):
            experts = np.stack([file.random(rows, columns) for _ in range(n_expert)])
            file.tensor(f"{block}.ffn_{name}_exps.weight", experts)
    return file.done()


def fill_hub(hub: HubServer, folder: Path, targets: Iterable[str], drafts: Iterable[str]) -> None:
    """Repositories by the names that flags give them; a repository that is both has the large model."""
    for names, path in ((drafts, folder / "small.gguf"), (targets, folder / "target.gguf")):
        for name in names:
            repo, file = parts(name)
            base = repo.partition("/")[2].removesuffix("-GGUF")
            files = {file: path} if file else {f"{base}-{quant}.gguf": path for quant in QUANTS}
            hub.add(repo, {"README.md": b"# tiny", **files})
    write_story(folder / "split.gguf", Story(STORIES, seed=1), n_shard_tensors=8)
    shards = sorted(folder.glob("split-*.gguf"))
    assert len(shards) > 1
    hub.add(SPLIT, {shard.name.replace("split", "gpt-oss-120b-mxfp4"): shard for shard in shards})
    bert = write_bert(folder / "bert.gguf")
    hub.add(EMBEDDING, {"embeddinggemma-300M-qat-Q4_0.gguf": bert})


def parts(name: str) -> tuple[str, str]:
    """USER/MODEL, and the file if the name has one."""
    user, model, *file = name.partition(":")[0].split("/")
    return f"{user}/{model}", "/".join(file)
