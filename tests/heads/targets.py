"""Tiny random targets that have heads of their own, or none that can read them: step35, gemma4, qwen2."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.heads.files import HEAD_WIDTH, HEADS, WIDTH, File

STEP_LAYERS, GEMMA_LAYERS, GEMMA_WINDOW = 2, 4, 16
STEP_WINDOW = 16


def write_qwen2(path: Path, *, seed: int = 21, n_layer: int = 4) -> str:
    """An architecture that hands out no layer inputs: libllama ends the process when it is asked for them."""
    file = File(path, "qwen2", seed=seed, n_layer=n_layer)
    n_vocab = file.vocab()
    file.matrix("token_embd", n_vocab, WIDTH, np.sqrt(WIDTH))
    file.ones(("output_norm",))
    file.matrix("output", n_vocab, WIDTH, 4.0)
    for i in range(n_layer):
        block = f"blk.{i}"
        file.ones((f"{block}.attn_norm", f"{block}.ffn_norm"))
        file.attention(block, WIDTH)
        for name in ("attn_q", "attn_k", "attn_v"):
            file.tensor(f"{block}.{name}.bias", np.zeros(WIDTH, np.float32))
        file.feed_forward(block)
    return file.done()


def write_step35(
    path: Path,
    *,
    seed: int = 22,
    n_heads: int = 1,
    n_layer: int = STEP_LAYERS,
    trunk: bool = True,
    blocks: bool = True,
    width: int = WIDTH,
    n_extra: int = 0,
    window: int = STEP_WINDOW,
) -> str:
    """`n_heads` NextN blocks behind `n_layer` dense layers, every other one with a sliding window.

    Without its `trunk` it is a file for `-md`, without its `blocks` the target to that; same seed, same weights.
    """
    file = File(path, "step35", seed=seed, n_layer=n_layer + n_heads, width=width)
    n_vocab = file.vocab(n_extra)
    file.keys({"attention.sliding_window": window, "expert_feed_forward_length": 2 * width})
    file.keys({"attention.key_length": HEAD_WIDTH, "attention.value_length": HEAD_WIDTH})
    file.keys({"attention.sliding_window_pattern": [i % 2 == 0 for i in range(n_layer + n_heads)]})
    if n_heads:
        file.keys({"nextn_predict_layers": n_heads})
    file.matrix("token_embd", n_vocab, width, np.sqrt(width))
    file.ones(("output_norm",))
    file.matrix("output", n_vocab, width, 4.0)
    for i in range(n_layer if trunk else 0):
        add_step35_block(file, i, seed)
    for i in range(n_layer, n_layer + n_heads if blocks else n_layer):
        add_step35_block(file, i, seed)
        block = f"blk.{i}.nextn"
        file.matrix(f"{block}.eh_proj", width, 2 * width)
        file.ones((f"{block}.enorm", f"{block}.hnorm", f"{block}.shared_head_norm"))
    return file.done()


def add_step35_block(file: File, i: int, seed: int) -> None:
    """Each block has dice of its own, so that it is the same whichever others are written."""
    file.rng = np.random.default_rng((seed, i))
    block = f"blk.{i}"
    file.ones((f"{block}.attn_norm", f"{block}.ffn_norm"))
    file.attention(block, file.width)
    file.feed_forward(block)


def write_gemma4(path: Path, *, seed: int = 23, n_layer: int = GEMMA_LAYERS, window: int = GEMMA_WINDOW) -> str:
    """Sliding and full attention in turns; the last two layers' cells are what the assistant reads."""
    file = File(path, "gemma4", seed=seed, n_layer=n_layer)
    n_vocab = file.vocab()
    file.keys({"embedding_length_per_layer_input": 0})
    add_gemma_attention_keys(file, n_layer, window)
    file.matrix("token_embd", n_vocab, WIDTH)
    file.ones(("output_norm",))
    file.matrix("output", n_vocab, WIDTH, 4.0)
    file.tensor("rope_freqs.weight", np.ones(HEAD_WIDTH // 2, np.float32))
    for i in range(n_layer):
        add_gemma_block(file, f"blk.{i}")
        file.matrix(f"blk.{i}.attn_k", HEADS * HEAD_WIDTH, WIDTH)
        file.matrix(f"blk.{i}.attn_v", HEADS * HEAD_WIDTH, WIDTH)
        file.ones((f"blk.{i}.attn_k_norm",), HEAD_WIDTH)
    return file.done()


def write_gemma4_assistant(path: Path, *, seed: int = 24, width: int = 48, target_width: int = WIDTH) -> str:
    """Two blocks without keys and values of their own, narrower than the target (libllama wants that they differ)."""
    file = File(path, "gemma4-assistant", seed=seed, width=width, n_layer=2)
    n_vocab = file.vocab()
    file.keys({"embedding_length_out": target_width, "nextn_predict_layers": 2})
    add_gemma_attention_keys(file, 2)
    file.matrix("token_embd", n_vocab, width, 4.0)
    file.ones(("output_norm",))
    file.tensor("rope_freqs.weight", np.ones(HEAD_WIDTH // 2, np.float32))
    file.matrix("nextn.pre_projection", width, 2 * target_width)
    file.matrix("nextn.post_projection", target_width, width)
    for i in range(2):
        add_gemma_block(file, f"blk.{i}")
        file.ones((f"blk.{i}.layer_output_scale",), 1)
    return file.done()


def add_gemma_attention_keys(file: File, n_layer: int, window: int = GEMMA_WINDOW) -> None:
    for name in ("key_length", "value_length", "key_length_swa", "value_length_swa"):
        file.keys({f"attention.{name}": HEAD_WIDTH})
    file.keys({"attention.sliding_window": window})
    file.keys({"attention.sliding_window_pattern": [i % 2 == 0 for i in range(n_layer)]})


def add_gemma_block(file: File, block: str) -> None:
    file.matrix(f"{block}.attn_q", HEADS * HEAD_WIDTH, file.width)
    file.matrix(f"{block}.attn_output", file.width, HEADS * HEAD_WIDTH)
    for name in ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"):
        file.ones((f"{block}.{name}",))
    file.ones((f"{block}.attn_q_norm",), HEAD_WIDTH)
    file.feed_forward(block)
