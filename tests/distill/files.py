"""Tiny targets of every architecture that distill knows, and what libllama says about a text."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from paceline.config import ContextParams, ModelParams
from paceline.llama.context import Context
from paceline.llama.model import Model
from tests.tiny import TOKENS, add_shape, add_vocab, write_out

TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def write_target(
    path: Path,
    arch: str = "llama",
    *,
    seed: int = 0,
    n_embd: int = 64,
    n_layer: int = 2,
    n_head: int = 4,
    n_head_kv: int = 2,
    n_ctx: int = 512,
    tied: bool = True,
    sharpness: float = 1.0,
    factors: bool = False,
    extra: str | None = None,
    add_bos: bool = False,
) -> str:
    """Random weights. With `sharpness` the target is surer of its words, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    head_dim = n_embd // n_head
    writer = gguf.GGUFWriter(str(path), arch)
    add_shape(writer, n_embd, n_layer, n_head, n_ctx, n_kv=[n_head_kv] * n_layer)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    add_vocab(writer, TOKENS)
    writer.add_chat_template(TEMPLATE)
    if add_bos:
        writer.add_bos_token_id(TOKENS.index("<|start|>"))
        writer.add_add_bos_token(True)

    def add(name: str, *shape: int, mean: float = 0.0, scale: float = 1.0) -> None:
        spread = scale / np.sqrt(shape[-1]) if len(shape) > 1 else 0.1
        writer.add_tensor(name, (mean + rng.standard_normal(shape) * spread).astype(np.float32))

    add("token_embd.weight", len(TOKENS), n_embd, scale=sharpness * (1.0 if tied else np.sqrt(n_embd)))
    add("output_norm.weight", n_embd, mean=1.0)
    if not tied:
        add("output.weight", len(TOKENS), n_embd, scale=sharpness)
    if factors:
        writer.add_tensor("rope_freqs.weight", np.linspace(1, 4, head_dim // 2, dtype=np.float32))
    if extra:
        add(extra, n_embd)
    for layer in range(n_layer):
        blk = f"blk.{layer}"
        add(f"{blk}.attn_norm.weight", n_embd, mean=1.0)
        add(f"{blk}.ffn_norm.weight", n_embd, mean=1.0)
        sizes = {"q": n_embd, "k": n_head_kv * head_dim, "v": n_head_kv * head_dim}
        for which, size in sizes.items():
            add(f"{blk}.attn_{which}.weight", size, n_embd)
            if arch == "qwen2":
                add(f"{blk}.attn_{which}.bias", size)
        if arch == "qwen3":
            add(f"{blk}.attn_q_norm.weight", head_dim, mean=1.0)
            add(f"{blk}.attn_k_norm.weight", head_dim, mean=1.0)
        add(f"{blk}.attn_output.weight", n_embd, n_embd)
        add(f"{blk}.ffn_gate.weight", 2 * n_embd, n_embd)
        add(f"{blk}.ffn_up.weight", 2 * n_embd, n_embd)
        add(f"{blk}.ffn_down.weight", n_embd, 2 * n_embd)
    write_out(writer)
    return str(path)


def libllama_logits(path: str, tokens: list[int]) -> npt.NDArray[np.float32]:
    """Of every position, in one batch."""
    n = len(tokens)
    params = ContextParams(n_ctx=max(256, n), n_batch=n, n_ubatch=n, n_threads=1, n_threads_batch=1)
    with Model(ModelParams(path=path)) as model, Context(model, params) as context:
        batch = context.new_batch()
        batch.add(0, tokens, 0, n)
        return np.array(context.decode(batch))
