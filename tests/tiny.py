"""Tiny random GGUF models, written by the test that needs them: real files for the real libllama."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

BYTES = [bytes([b]) for b in range(256)]
SPECIAL = [b"<|end|>", b"<|start|>"]
WORDS = [b"the ", b"and ", b"of ", b"ing", b"er", b"on", b"an", b"re"]


def gpt2_spelling(data: bytes) -> str:
    """GPT-2's way to write bytes as printable characters, which is how GGUF files store BPE tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    table = {b: chr(b) if b in printable else chr(next(others)) for b in range(256)}
    return "".join(table[b] for b in data)


TOKENS = [gpt2_spelling(b) for b in BYTES] + [t.decode() for t in SPECIAL] + [gpt2_spelling(w) for w in WORDS]


def write_model(
    path: Path,
    *,
    seed: int = 0,
    n_embd: int = 64,
    n_layer: int = 2,
    n_head: int = 2,
    n_ctx: int = 512,
    n_extra: int = 0,
    changed_token: int | None = None,
    arch: str = "llama",
    scale: float = 0.5,
    pre: str = "gpt-2",
    fim: Mapping[str, int] | None = None,
    n_expert: int = 0,
) -> str:
    """A Llama of random weights over a byte-level vocabulary of 266 tokens (and `n_extra` unused ones); `fim` says
    which of them surround gaps, as in {"pre": 266}. With experts two of them are at work for each token."""
    rng = np.random.default_rng(seed)
    tokens = [*TOKENS, *(f"[unused{i}]" for i in range(n_extra))]
    if changed_token is not None:
        tokens[changed_token] = "changed"
    writer = gguf.GGUFWriter(str(path), arch)
    add_shape(writer, n_embd, n_layer, n_head, n_ctx)
    writer.add_rope_dimension_count(n_embd // n_head)
    add_vocab(writer, tokens, pre)
    if n_expert:
        writer.add_expert_count(n_expert)
        writer.add_expert_used_count(2)
    for which, token in (fim or {}).items():
        writer.add_uint32(f"tokenizer.ggml.fim_{which}_token_id", token)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, (rng.standard_normal(shape) * scale / np.sqrt(shape[-1])).astype(np.float32))

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(n_embd, np.float32))

    writer.add_tensor("token_embd.weight", rng.standard_normal((len(tokens), n_embd)).astype(np.float32))
    ones("output_norm.weight")
    add("output.weight", len(tokens), n_embd)
    for i in range(n_layer):
        ones(f"blk.{i}.attn_norm.weight")
        ones(f"blk.{i}.ffn_norm.weight")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{i}.{name}.weight", n_embd, n_embd)
        kind, several = ("_exps", (n_expert,)) if n_expert else ("", ())
        add(f"blk.{i}.ffn_gate{kind}.weight", *several, 2 * n_embd, n_embd)
        add(f"blk.{i}.ffn_up{kind}.weight", *several, 2 * n_embd, n_embd)
        add(f"blk.{i}.ffn_down{kind}.weight", *several, n_embd, 2 * n_embd)
        if n_expert:
            add(f"blk.{i}.ffn_gate_inp.weight", n_expert, n_embd)
    write_out(writer)
    return str(path)


def write_adapter(
    path: Path,
    *,
    n_embd: int = 64,
    strength: float = 0.1,
    arch: str = "llama",
    entries: Mapping[str, str] | None = None,
    invocation: list[int] | None = None,
) -> str:
    """A LoRA on the output of `write_model`: every other token hears the first direction, each in its own way. One with
    an `invocation` counts from these tokens on."""
    writer = gguf.GGUFWriter(str(path), arch)
    for key, value in (entries or {}).items():
        writer.add_string(f"adapter.lora.{key}", value)
    if invocation:
        writer.add_key_value(
            "adapter.alora.invocation_tokens", invocation, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32
        )
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 1.0)
    writer.add_tensor("output.weight.lora_a", np.eye(1, n_embd, dtype=np.float32))
    ways = np.arange(len(TOKENS)) % 2 * np.sin(np.arange(len(TOKENS)))
    writer.add_tensor("output.weight.lora_b", (strength * ways).astype(np.float32).reshape(-1, 1))
    write_out(writer)
    return str(path)


def write_encoder(path: Path) -> str:
    """A T5 encoder of zeros: a model that reads but cannot write."""
    n_embd = 32
    writer = gguf.GGUFWriter(str(path), "t5encoder")
    add_shape(writer, n_embd, 1, 2, 64)
    writer.add_relative_attn_buckets_count(8)
    add_vocab(writer, TOKENS)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_o"), (n_embd, n_embd))
    shapes |= {"attn_norm": (n_embd,), "ffn_norm": (n_embd,), "attn_rel_b": (8, 2)}
    shapes |= {"ffn_gate": (2 * n_embd, n_embd), "ffn_up": (2 * n_embd, n_embd), "ffn_down": (n_embd, 2 * n_embd)}
    tensors = {f"enc.blk.0.{name}": shape for name, shape in shapes.items()}
    for name, shape in (tensors | {"token_embd": (len(TOKENS), n_embd), "enc.output_norm": (n_embd,)}).items():
        writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
    write_out(writer)
    return str(path)


def write_bert(path: Path, *, ranks: bool = False, seed: int = 0) -> str:
    """A small random BERT: a model that makes embeddings, or `ranks`, and has no memory to write with."""
    n_embd, n_ctx = 32, 64
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), "bert")
    add_shape(writer, n_embd, 1, 2, n_ctx)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.RANK if ranks else gguf.PoolingType.MEAN)
    add_vocab(writer, TOKENS)
    writer.add_token_type_count(2)
    square, row = (n_embd, n_embd), (n_embd,)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(TOKENS), n_embd),
        "token_types.weight": (2, n_embd),
        "position_embd.weight": (n_ctx, n_embd),
    }
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        shapes |= {f"blk.0.{name}.weight": square, f"blk.0.{name}.bias": row}
    shapes |= {"blk.0.ffn_up.weight": (2 * n_embd, n_embd), "blk.0.ffn_up.bias": (2 * n_embd,)}
    shapes |= {"blk.0.ffn_down.weight": (n_embd, 2 * n_embd), "blk.0.ffn_down.bias": row}
    for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        shapes |= {f"{name}.weight": row, f"{name}.bias": row}
    if ranks:
        shapes |= {"cls.weight": square, "cls.bias": row, "cls.output.weight": (1, n_embd), "cls.output.bias": (1,)}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape) / np.sqrt(shape[-1])
        writer.add_tensor(name, (values + name.endswith("norm.weight")).astype(np.float32))
    write_out(writer)
    return str(path)


def add_shape(
    writer: gguf.GGUFWriter,
    n_embd: int,
    n_layer: int,
    n_head: int,
    n_ctx: int,
    n_ff: int | None = None,
    n_kv: list[int] | None = None,
) -> None:
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(2 * n_embd if n_ff is None else n_ff)
    writer.add_head_count(n_head)
    writer.add_head_count_kv(n_kv or n_head)
    writer.add_layer_norm_rms_eps(1e-5)


def add_vocab(writer: gguf.GGUFWriter, tokens: list[str], pre: str = "gpt-2") -> None:
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    kinds[256] = kinds[257] = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{gpt2_spelling(b'e')} {gpt2_spelling(b'r')}"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(256)
    writer.add_add_bos_token(False)


def write_out(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
