"""A student as a GGUF file that libllama and everybody else can load: a plain Llama with the target's tokenizer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paceline.distill.needs import gguf
from paceline.distill.reading import Array, GgufFile, neighbours_first
from paceline.distill.student import Student
from paceline.errors import ConfigError

KINDS = ("F32", "F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
"""What the package gguf can write; libllama knows more."""


def tensors_of(student: Student) -> dict[str, Array]:
    """The weights under GGUF's names, with queries and keys in its order."""
    state = {name: weight.detach().float().cpu().numpy() for name, weight in student.state_dict().items()}
    shape, found = student.shape, {}
    found["token_embd.weight"] = state["embedding.weight"]
    found["output_norm.weight"] = state["norm.weight"]
    for layer in range(shape.n_layer):
        block, name = f"blocks.{layer}", f"blk.{layer}"
        n_q, n_k = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
        q, k, v = np.split(state[f"{block}.attention.qkv.weight"], (n_q, n_q + n_k))
        gate, up = np.split(state[f"{block}.feed.gate_up.weight"], 2)
        found |= {
            f"{name}.attn_norm.weight": state[f"{block}.attention_norm.weight"],
            f"{name}.attn_q.weight": neighbours_first(q, shape.n_head),
            f"{name}.attn_k.weight": neighbours_first(k, shape.n_head_kv),
            f"{name}.attn_v.weight": v,
            f"{name}.attn_output.weight": state[f"{block}.attention.out.weight"],
            f"{name}.ffn_norm.weight": state[f"{block}.feed_norm.weight"],
            f"{name}.ffn_gate.weight": gate,
            f"{name}.ffn_up.weight": up,
            f"{name}.ffn_down.weight": state[f"{block}.feed.down.weight"],
        }
    return found


def export(student: Student, target: str, path: Path, *, kind: str = "F16", name: str = "draft") -> None:
    source = GgufFile(target)
    with new_file(path, "llama") as writer:
        add_shape(writer, student, name)
        add_tokenizer(writer, source)
        for tensor, array in tensors_of(student).items():
            add_tensor(writer, tensor, array, kind)


@contextmanager
def new_file(path: Path, arch: str) -> Iterator[Any]:
    """What is added to gguf's writer makes the file, which appears whole or not at all."""
    part = Path(f"{path}.{os.getpid()}.part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        with open_writer(part, arch) as writer:
            yield writer
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or f'no room for all of it ({error})'}") from None
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def open_writer(path: Path, arch: str) -> Iterator[Any]:
    """gguf's, closed also where there was no room."""
    writer = gguf().GGUFWriter(str(path), arch)
    try:
        yield writer
    except BaseException:
        with suppress(OSError):
            writer.close()
        raise
    writer.close()


def add_shape(writer: Any, student: Student, name: str) -> None:
    shape = student.shape
    writer.add_name(name)
    writer.add_vocab_size(shape.n_vocab)
    writer.add_context_length(shape.n_ctx)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.eps)


def add_tokenizer(writer: Any, source: GgufFile) -> None:
    for entry in source.tokenizer():
        writer.add_key_value(entry.key, entry.value, entry.kind, entry.item_kind)


def add_tensor(writer: Any, name: str, array: Array, kind: str) -> None:
    """Norms stay float32; what does not divide into blocks stays at half precision."""
    types = gguf().GGMLQuantizationType
    if kind == "F32" or array.ndim == 1:
        writer.add_tensor(name, array)
    elif kind == "F16" or array.shape[-1] % 32:
        writer.add_tensor(name, array.astype(np.float16))
    else:
        wanted = types[kind]
        writer.add_tensor(name, gguf().quants.quantize(array, wanted), raw_dtype=wanted)


def with_logits(student: Student, tokens: torch.Tensor) -> torch.Tensor:
    """Of rows of tokens, in float32: what a file is compared with."""
    with torch.no_grad():
        return student.logits(student(tokens).hidden)
