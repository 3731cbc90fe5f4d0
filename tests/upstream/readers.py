"""Small random BERTs: files in place of the embedding and reranking models that llama.cpp's server tests download."""

from __future__ import annotations

import string
from pathlib import Path

import gguf
import numpy as np

from tests.upstream.pieces import SPACE
from tests.upstream.stories import finish

N_EMBD, N_FF, N_LAYER, N_CTX = 64, 128, 2, 512
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CHARACTERS = string.ascii_lowercase + string.digits + "'\"!?.,;:()-<>/|_{}[]=+*&%$#@"
WORDS = Path(__file__).with_name("words.txt").read_text().split()
"""What the tests count the tokens of is whole words, or these parts of them."""
PARTS = ["mach", "ine", "par", "cap", "it", "ale", "de"]
RERANKER_SEED = 16
"""Of the seeds, one with which the tests' best document is the best and the worst the worst."""


def tokens() -> list[str]:
    starts = [SPACE + c for c in CHARACTERS] + [SPACE + word for word in (*WORDS, *PARTS)]
    return list(dict.fromkeys([*SPECIAL, *starts, *CHARACTERS, *PARTS]))


def write_reader(path: Path, *, seed: int, rank: bool) -> None:
    writer = gguf.GGUFWriter(str(path), "bert")
    writer.add_name(path.stem)
    writer.add_context_length(N_CTX)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.RANK if rank else gguf.PoolingType.CLS)
    add_vocabulary(writer)
    if rank:
        writer.add_add_eos_token(True)
        writer.add_add_sep_token(False)
    for name, weights in tensors(seed, rank).items():
        writer.add_tensor(name, weights.astype(np.float32))
    finish(writer)


def add_vocabulary(writer: gguf.GGUFWriter) -> None:
    names = tokens()
    kinds = [gguf.TokenType.NORMAL] * len(names)
    kinds[: len(SPECIAL)] = [gguf.TokenType.CONTROL] * len(SPECIAL)
    kinds[1] = gguf.TokenType.UNKNOWN
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_type_count(2)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_eos_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_mask_token_id(4)


def tensors(seed: int, rank: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def add(name: str, *shape: int) -> None:
        found[f"{name}.weight"] = rng.standard_normal(shape) / np.sqrt(shape[-1])
        found[f"{name}.bias"] = rng.standard_normal(shape[0]) * 0.1

    def norm(name: str) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = np.ones(N_EMBD), np.zeros(N_EMBD)

    found = {
        "token_embd.weight": rng.standard_normal((len(tokens()), N_EMBD)),
        "token_types.weight": rng.standard_normal((2, N_EMBD)) * 0.1,
        "position_embd.weight": rng.standard_normal((N_CTX, N_EMBD)) * 0.1,
    }
    norm("token_embd_norm")
    for i in range(N_LAYER):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{i}.{name}", N_EMBD, N_EMBD)
        add(f"blk.{i}.ffn_up", N_FF, N_EMBD)
        add(f"blk.{i}.ffn_down", N_EMBD, N_FF)
        norm(f"blk.{i}.attn_output_norm")
        norm(f"blk.{i}.layer_output_norm")
    if rank:
        add("cls", N_EMBD, N_EMBD)
        add("cls.output", 1, N_EMBD)
    return found
