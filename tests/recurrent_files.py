"""Tiny random targets whose memory is not just a list of cells: hybrid, purely recurrent, with a sliding window."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from tests.tiny import TOKENS, add_shape, add_vocab, write_out

Shapes = dict[str, tuple[int, ...]]
SCALES = {"token_embd.weight": 1.0, "output.weight": 1.0}


def write_qwen35(path: Path, *, n_nextn: int = 0, n_layer: int = 4, n_ctx: int = 512, seed: int = 0) -> str:
    """Gated delta nets, with attention in every second layer, and `n_nextn` blocks behind them that foretell a token
    more."""
    n_embd, n_head, n_state, n_group, n_rank = 32, 2, 16, 1, 2
    writer = gguf.GGUFWriter(str(path), "qwen35")
    add_shape(writer, n_embd, n_layer + n_nextn, n_head, n_ctx)
    writer.add_key_length(n_embd // n_head)
    writer.add_value_length(n_embd // n_head)
    writer.add_rope_dimension_count(n_embd // n_head)
    writer.add_rope_dimension_sections([4, 2, 2, 0])
    writer.add_uint32("qwen35.full_attention_interval", 2)
    add_ssm(writer, n_conv=4, n_inner=n_state * n_rank, n_state=n_state, n_rank=n_rank)
    writer.add_ssm_group_count(n_group)
    if n_nextn:
        writer.add_nextn_predict_layers(n_nextn)
    n_mixed = n_state * (2 * n_group + n_rank)
    linear: Shapes = {
        "attn_qkv.weight": (n_mixed, n_embd),
        "attn_gate.weight": (n_state * n_rank, n_embd),
        "ssm_conv1d.weight": (n_mixed, 4),
        "ssm_dt.bias": (n_rank,),
        "ssm_a": (n_rank,),
        "ssm_beta.weight": (n_rank, n_embd),
        "ssm_alpha.weight": (n_rank, n_embd),
        "ssm_norm.weight": (n_state,),
        "ssm_out.weight": (n_embd, n_state * n_rank),
    }
    attention = attention_shapes(n_embd, n_head) | {"attn_q.weight": (2 * n_embd, n_embd)}
    common = {"attn_norm.weight": (n_embd,), "post_attention_norm.weight": (n_embd,)} | ffn_shapes(n_embd)
    foretelling: Shapes = {"nextn.eh_proj.weight": (n_embd, 2 * n_embd)}
    foretelling |= {f"nextn.{name}.weight": (n_embd,) for name in ("enorm", "hnorm", "shared_head_norm")}
    blocks = [common | (attention if i % 2 else linear) for i in range(n_layer)]
    blocks += [common | attention | foretelling] * n_nextn
    add_tensors(writer, model_shapes(n_embd, blocks), seed)
    return str(path)


def write_lfm2(path: Path, *, n_layer: int = 4, n_ctx: int = 512, seed: int = 0) -> str:
    """Short convolutions, with attention in every second layer."""
    n_embd, n_head = 32, 2
    writer = gguf.GGUFWriter(str(path), "lfm2")
    add_shape(writer, n_embd, n_layer, n_head, n_ctx, n_kv=[n_head * (i % 2) for i in range(n_layer)])
    writer.add_shortconv_l_cache(3)
    convolution: Shapes = {
        "shortconv.conv.weight": (n_embd, 3),
        "shortconv.in_proj.weight": (3 * n_embd, n_embd),
        "shortconv.out_proj.weight": (n_embd, n_embd),
    }
    common = {"attn_norm.weight": (n_embd,), "ffn_norm.weight": (n_embd,)} | ffn_shapes(n_embd)
    attention = attention_shapes(n_embd, n_head)
    shapes = model_shapes(n_embd, [common | (attention if i % 2 else convolution) for i in range(n_layer)])
    shapes["token_embd_norm.weight"] = shapes.pop("output_norm.weight")
    add_tensors(writer, shapes, seed)
    return str(path)


def write_mamba(path: Path, *, n_layer: int = 2, n_ctx: int = 512, seed: int = 0) -> str:
    """One state for a whole text, and no attention: such files have no heads and no width between."""
    n_embd, n_state, n_rank = 32, 8, 4
    n_inner = 2 * n_embd
    writer = gguf.GGUFWriter(str(path), "mamba")
    add_shape(writer, n_embd, n_layer, n_head=0, n_ctx=n_ctx, n_ff=0)
    add_ssm(writer, n_conv=4, n_inner=n_inner, n_state=n_state, n_rank=n_rank)
    block: Shapes = {
        "attn_norm.weight": (n_embd,),
        "ssm_in.weight": (2 * n_inner, n_embd),
        "ssm_conv1d.weight": (n_inner, 4),
        "ssm_conv1d.bias": (n_inner,),
        "ssm_x.weight": (n_rank + 2 * n_state, n_inner),
        "ssm_dt.weight": (n_inner, n_rank),
        "ssm_dt.bias": (n_inner,),
        "ssm_a": (n_inner, n_state),
        "ssm_d": (n_inner,),
        "ssm_out.weight": (n_embd, n_inner),
    }
    add_tensors(writer, model_shapes(n_embd, [block] * n_layer), seed)
    return str(path)


def write_gemma3(path: Path, *, n_window: int = 32, n_layer: int = 3, n_ctx: int = 512, seed: int = 0) -> str:
    """Attention that looks `n_window` tokens back in all layers but the last of three."""
    n_embd, n_head = 32, 2
    writer = gguf.GGUFWriter(str(path), "gemma3")
    add_shape(writer, n_embd, n_layer, n_head, n_ctx)
    writer.add_key_length(n_embd // n_head)
    writer.add_value_length(n_embd // n_head)
    writer.add_sliding_window(n_window)
    writer.add_sliding_window_pattern(3)
    block = attention_shapes(n_embd, n_head) | ffn_shapes(n_embd)
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    block |= {f"{name}.weight": (n_embd,) for name in norms}
    add_tensors(writer, model_shapes(n_embd, [block] * n_layer), seed)
    return str(path)


def add_ssm(writer: gguf.GGUFWriter, *, n_conv: int, n_inner: int, n_state: int, n_rank: int) -> None:
    writer.add_ssm_conv_kernel(n_conv)
    writer.add_ssm_inner_size(n_inner)
    writer.add_ssm_state_size(n_state)
    writer.add_ssm_time_step_rank(n_rank)


def attention_shapes(n_embd: int, n_head: int) -> Shapes:
    shapes: Shapes = {f"attn_{name}.weight": (n_embd, n_embd) for name in ("q", "k", "v", "output")}
    return shapes | {f"attn_{name}_norm.weight": (n_embd // n_head,) for name in ("q", "k")}


def ffn_shapes(n_embd: int) -> Shapes:
    up = (2 * n_embd, n_embd)
    return {"ffn_gate.weight": up, "ffn_up.weight": up, "ffn_down.weight": (n_embd, 2 * n_embd)}


def model_shapes(n_embd: int, blocks: list[Shapes]) -> Shapes:
    shapes: Shapes = {"token_embd.weight": (len(TOKENS), n_embd), "output_norm.weight": (n_embd,)}
    shapes["output.weight"] = (len(TOKENS), n_embd)
    for i, block in enumerate(blocks):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in block.items()}
    return shapes


def add_tensors(writer: gguf.GGUFWriter, shapes: Mapping[str, tuple[int, ...]], seed: int) -> None:
    """Norms are ones, and states decay; the rest is random, the choice of tokens clear."""
    add_vocab(writer, TOKENS)
    rng = np.random.default_rng(seed)
    for name, shape in shapes.items():
        if name.endswith("norm.weight"):
            values = np.ones(shape)
        elif name.endswith("ssm_a"):
            values = -np.exp(rng.standard_normal(shape))
        else:
            values = rng.standard_normal(shape) * SCALES.get(name, 1 / np.sqrt(shape[-1]))
        writer.add_tensor(name, values.astype(np.float32))
    write_out(writer)


def write_each(folder: Path) -> dict[str, str]:
    """One of every kind, by its architecture."""
    writers = {"qwen35": write_qwen35, "lfm2": write_lfm2, "mamba": write_mamba, "gemma3": write_gemma3}
    return {name: write(folder / f"{name}.gguf") for name, write in writers.items()}
