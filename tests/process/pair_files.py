"""Folders with files that could draft for a target, or could not: for `pairing` and `paceline pair`."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.heads.heads import write_eagle3
from tests.heads.right import write_right_llama
from tests.tiny import TOKENS, add_shape, add_vocab, write_bert, write_model, write_out


def write_target(path: Path) -> str:
    """Says what every right llama says, and has to read 50 MB for a token: batches are worth while."""
    return write_right_llama(path, n_layer=8, n_ff=8192)


def write_five(folder: Path) -> Path:
    """One of them is right. Names and sizes do not tell which: it is neither first nor last in either."""
    write_model(folder / "a-random.gguf", seed=5, n_layer=1, n_embd=32, scale=4.0)
    write_eagle3(folder / "b-other-width.gguf", target_width=48)
    write_bert(folder / "c-embedding.gguf")
    write_right_llama(folder / "d-right.gguf", n_layer=1)
    whole = Path(write_right_llama(folder / "e-cut-short.gguf", n_layer=1)).read_bytes()
    (folder / "e-cut-short.gguf").write_bytes(whole[:-2000])
    return folder


def write_deadly(path: Path) -> str:
    """Its header is in order, but three heads of keys do not go into two of queries: libllama asserts."""
    n_embd, n_head, n_kv = 64, 2, 3
    writer = gguf.GGUFWriter(str(path), "llama")
    add_shape(writer, n_embd, 1, n_head, 512, n_kv=[n_kv])
    writer.add_rope_dimension_count(n_embd // n_head)
    add_vocab(writer, TOKENS)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (len(TOKENS), n_embd), "output_norm": (n_embd,)}
    shapes |= {"output": (len(TOKENS), n_embd), "blk.0.attn_norm": (n_embd,), "blk.0.ffn_norm": (n_embd,)}
    shapes |= dict.fromkeys(("blk.0.attn_q", "blk.0.attn_output"), (n_embd, n_embd))
    shapes |= dict.fromkeys(("blk.0.attn_k", "blk.0.attn_v"), (n_kv * n_embd // n_head, n_embd))
    shapes |= dict.fromkeys(("blk.0.ffn_gate", "blk.0.ffn_up"), (2 * n_embd, n_embd))
    for name, shape in (shapes | {"blk.0.ffn_down": (n_embd, 2 * n_embd)}).items():
        writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
    write_out(writer)
    return str(path)
