"""An EAGLE-3 head as a GGUF file, written and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from paceline.distill.eagle3 import Eagle3Head, HeadShape
from paceline.distill.exporting import add_tensor, add_tokenizer, new_file
from paceline.distill.reading import Array, GgufFile
from paceline.errors import ModelError

ARCHITECTURE = "eagle3"
BLOCK = (
    *("attn_norm", "attn_norm_2", "attn_q", "attn_k", "attn_v", "attn_output"),
    *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
)
NAMES = {"enc_output_norm": "enc.output_norm", "fc": "fc", "output_norm": "output_norm", "output": "output"}
NAMES |= {name: f"blk.0.{name}" for name in BLOCK}


def write_head(path: Path, head: Eagle3Head, target: str, kind: str) -> None:
    """With the target's tokenizer; matrices are of `kind`."""
    with new_file(path, ARCHITECTURE) as writer:
        add_keys(writer, head.shape)
        add_tokenizer(writer, GgufFile(target))
        for name, values in weights(head).items():
            add_tensor(writer, f"{NAMES[name]}.weight", values, kind)
        writer.add_tensor("d2t", head.tokens.cpu().numpy().astype(np.int64))


def add_keys(writer: Any, shape: HeadShape) -> None:
    writer.add_name("EAGLE-3 head")
    writer.add_context_length(shape.n_ctx)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_kv)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_array(f"{ARCHITECTURE}.target_layers", list(shape.layers))
    writer.add_uint32(f"{ARCHITECTURE}.target_hidden_size", shape.width)
    writer.add_bool(f"{ARCHITECTURE}.norm_before_fc", shape.norm_first)
    writer.add_bool(f"{ARCHITECTURE}.norm_before_residual", shape.norm_residual)


def weights(head: Eagle3Head) -> dict[str, Array]:
    """By the parameters' names."""
    found = {name.removesuffix(".weight"): values for name, values in head.named_parameters()}
    return {name: values.detach().float().cpu().numpy() for name, values in found.items()}


def read_head(path: Path) -> Eagle3Head:
    """As it is in the file, dequantised. One that has embeddings of its own, or no output, is another kind."""
    file = GgufFile(str(path))
    if file.arch != ARCHITECTURE:
        raise ModelError(f"{path.name} is no EAGLE-3 head but {file.arch!r}")
    if "token_embd.weight" in file.tensor_names or "output.weight" not in file.tensor_names:
        raise ModelError(f"{path.name}: heads with embeddings of their own or without output cannot be trained here")
    head = Eagle3Head(stored_shape(file))
    with torch.no_grad():
        for name, values in head.named_parameters():
            values.copy_(torch.from_numpy(file.array(f"{NAMES[name.removesuffix('.weight')]}.weight").copy()))
        if "d2t" in file.tensor_names:
            head.with_tokens(torch.from_numpy(file.integers("d2t")))
    return head


def stored_shape(file: GgufFile) -> HeadShape:
    n_tokens, width = file.shape("output.weight")
    low, middle, high = file.of_arch("target_layers")
    n_head = int(file.of_arch("attention.head_count"))
    return HeadShape(
        width=width,
        layers=(int(low), int(middle), int(high)),
        n_tokens=n_tokens,
        n_head=n_head,
        n_kv=int(file.of_arch("attention.head_count_kv", n_head)),
        head_width=int(file.of_arch("attention.key_length", width // n_head)),
        n_ff=int(file.of_arch("feed_forward_length")),
        eps=float(file.of_arch("attention.layer_norm_rms_epsilon")),
        rope_base=float(file.of_arch("rope.freq_base", 10_000.0)),
        n_ctx=int(file.of_arch("context_length")),
        norm_first=bool(file.of_arch("norm_before_fc", False)),
        norm_residual=bool(file.of_arch("norm_before_residual", False)),
    )
