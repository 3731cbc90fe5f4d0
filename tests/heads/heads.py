"""Tiny random heads: EAGLE-3, DFlash and DSpark. Each fits `write_model(n_layer=4)` unless told otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.heads.files import HEAD_WIDTH, MASK, WIDTH, File

LAYERS = (1, 2, 3)
"""The target's layers that are read, unless told otherwise."""
BLOCK = 8
"""How many rows a block drafter computes at once."""


def write_eagle3(
    path: Path,
    *,
    seed: int = 11,
    layers: Sequence[int] = LAYERS,
    target_width: int = WIDTH,
    width: int = WIDTH,
    own_embeddings: bool = True,
    own_output: bool = True,
    d2t: Sequence[int] | None = None,
    normed: bool = True,
    n_extra: int = 0,
) -> str:
    """`d2t` lists the target's tokens that the head knows, where it knows not all; it needs an output of its own.

    `normed`: a norm sees to it that large rows of the target do not drown the token; else small weights do.
    """
    file = File(path, "eagle3", seed=seed, width=width)
    n_vocab = file.vocab(n_extra)
    file.keys({"target_layers": list(layers), "target_hidden_size": target_width})
    file.keys({"norm_before_residual": normed})
    file.keys({"attention.key_length": HEAD_WIDTH, "attention.value_length": HEAD_WIDTH})
    file.matrix("fc", width, len(layers) * target_width, 1.0 if normed else 0.05)
    file.ones(("output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm"))
    if own_embeddings:
        file.matrix("token_embd", n_vocab, width, np.sqrt(width))
    if own_output:
        file.matrix("output", len(d2t or range(n_vocab)), width, 4.0)
    if d2t is not None:
        file.tensor("d2t", np.array(d2t, np.int64))
    file.attention("blk.0", 2 * width)
    file.feed_forward("blk.0")
    return file.done()


def write_dflash(
    path: Path,
    *,
    seed: int = 12,
    layers: Sequence[int] = LAYERS,
    width: int = WIDTH,
    n_layer: int = 2,
    block_size: int = BLOCK,
    own_embeddings: bool = True,
    own_output: bool = True,
    d2t: Sequence[int] | None = None,
    selector: bool = False,
    markov: bool = False,
    confidence: bool = False,
    anchor: bool | None = None,
    causal: bool | None = None,
    mask: int | None = MASK,
    n_extra: int = 0,
) -> str:
    """`markov` makes it a DSpark head; `anchor` says whether that one drafts from its first row on.

    Where `anchor` is None the file has no word on that, nor on its confidence, as some of the published ones.
    """
    file = File(path, "dflash", seed=seed, width=width, n_layer=n_layer)
    n_vocab = file.vocab(n_extra)
    if mask is not None:
        file.writer.add_mask_token_id(mask)
    file.keys({"target_layers": list(layers), "block_size": block_size})
    file.keys({"attention.key_length": HEAD_WIDTH, "attention.value_length": HEAD_WIDTH})
    if causal is not None:
        file.keys({"attention.causal": causal})
    file.matrix("fc", width, len(layers) * width)
    file.ones(("output_norm", "enc.output_norm"))
    n_draft = len(d2t or range(n_vocab))
    if own_embeddings:
        file.matrix("token_embd", n_vocab, width)
    if own_output:
        file.matrix("output", n_draft, width, 4.0)
    if d2t is not None:
        file.tensor("d2t", np.array(d2t, np.int64))
    for i in range(n_layer):
        add_dflash_block(file, f"blk.{i}", conv=selector)
    if selector:
        add_selector(file, n_vocab)
    if markov:
        add_markov(file, n_vocab, n_draft, confidence=confidence, anchor=anchor)
    return file.done()


def write_dspark(
    path: Path,
    *,
    seed: int = 13,
    confidence: bool = True,
    anchor: bool | None = None,
    own_embeddings: bool = True,
    own_output: bool = True,
    d2t: Sequence[int] | None = None,
) -> str:
    return write_dflash(
        path,
        seed=seed,
        markov=True,
        confidence=confidence,
        anchor=anchor,
        own_embeddings=own_embeddings,
        own_output=own_output,
        d2t=d2t,
    )


def add_dflash_block(file: File, block: str, *, conv: bool) -> None:
    file.ones((f"{block}.attn_norm", f"{block}.ffn_norm"))
    file.ones((f"{block}.attn_q_norm", f"{block}.attn_k_norm"), HEAD_WIDTH, 2.0)
    file.attention(block, file.width)
    file.feed_forward(block)
    if conv:
        for name in ("attn_conv", "ffn_conv"):
            base = file.rng.standard_normal((2, KERNEL, file.width)) / KERNEL
            file.tensor(f"{block}.{name}_base", (base + 1 / KERNEL).astype(np.float32))
            file.matrix(f"{block}.{name}_proj", 2 * KERNEL * file.width // GROUP, file.width, 0.2)


KERNEL, GROUP, RANK, TOP_K = 3, 16, 8, 4


def add_selector(file: File, n_vocab: int) -> None:
    """Which of the few best tokens of a row suits which of the row before; strong enough to overrule the best."""
    file.keys({"conv_kernel_size": KERNEL, "conv_group_size": GROUP, "selector_rank": RANK, "selector_top_k": TOP_K})
    file.matrix("selector_predecessor", n_vocab, RANK, 2.0)
    file.matrix("selector_successor", n_vocab, RANK, 2.0)
    file.matrix("selector_hidden", RANK, file.width, 2.0)


def add_markov(file: File, n_vocab: int, n_draft: int, *, confidence: bool, anchor: bool | None) -> None:
    if anchor is not None:
        file.keys({"sample_from_anchor": anchor, "has_confidence_head": confidence})
    file.matrix("markov_w1", n_vocab, RANK, 3.0)
    file.matrix("markov_w2", n_draft, RANK, 3.0)
    if confidence:
        file.matrix("conf_proj", 1, file.width + RANK, 2.0)
        file.tensor("conf_proj.bias", np.array([0.5], np.float32))
