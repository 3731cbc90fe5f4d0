"""An EAGLE-3 head as a GGUF file, written and read."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from paceline.distill.eagle3 import Eagle3Head, HeadShape
from paceline.errors import ModelError

ARCHITECTURE = "eagle3"
BLOCK = ("attn_norm", "attn_norm_2", "attn_q", "attn_k", "attn_v", "attn_output")
BLOCK += ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
NAMES = {"enc_output_norm": "enc.output_norm", "fc": "fc", "output_norm": "output_norm", "output": "output"}
NAMES |= {name: f"blk.0.{name}" for name in BLOCK}
KINDS = {
    name: gguf.GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
}
"""What gguf's own quantiser writes, and libllama computes with everywhere."""


def write_head(path: Path, head: Eagle3Head, like: Path, kind: str, output_kind: str | None = None) -> None:
    """With the tokenizer of the target's file, `like`; matrices are of `kind`, the large one of the output may differ.
    The file appears whole or not at all."""
    part = path.with_name(path.name + ".part")
    writer = gguf.GGUFWriter(str(part), ARCHITECTURE)
    add_keys(writer, head.shape)
    copy_tokenizer(writer, gguf.GGUFReader(str(like)))
    for name, values in tensors(head).items():
        wanted = (output_kind or kind) if name == "output" else kind
        add_tensor(writer, f"{NAMES[name]}.weight", values, wanted if values.ndim > 1 else "F32")
    writer.add_tensor("d2t", head.tokens.cpu().numpy().astype(np.int64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)


def add_keys(writer: gguf.GGUFWriter, shape: HeadShape) -> None:
    writer.add_name("EAGLE-3 head")
    writer.add_context_length(shape.context)
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


def copy_tokenizer(writer: gguf.GGUFWriter, reader: gguf.GGUFReader) -> None:
    for name, field in reader.fields.items():
        if name.startswith("tokenizer.") and name != "tokenizer.chat_template":
            inner = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)


def add_tensor(writer: gguf.GGUFWriter, name: str, values: npt.NDArray[np.float32], kind: str) -> None:
    if kind == "F32":
        writer.add_tensor(name, values)
        return
    wanted = KINDS[kind]
    writer.add_tensor(name, gguf.quants.quantize(values, wanted), raw_dtype=wanted)


def tensors(head: Eagle3Head) -> dict[str, npt.NDArray[np.float32]]:
    """By the parameters' names."""
    found = {name.removesuffix(".weight"): values for name, values in head.named_parameters()}
    return {name: values.detach().float().cpu().numpy() for name, values in found.items()}


def read_head(path: Path) -> Eagle3Head:
    """As it is in the file, dequantised. One that has embeddings of its own, or no output, is another kind."""
    reader = gguf.GGUFReader(str(path))
    stored = {tensor.name: tensor for tensor in reader.tensors}
    if "token_embd.weight" in stored or "output.weight" not in stored:
        raise ModelError(f"{path.name}: heads with embeddings of their own or without output cannot be trained here")
    head = Eagle3Head(stored_shape(reader, len(stored["output.weight"].data)))
    with torch.no_grad():
        for name, values in head.named_parameters():
            put(values, stored[f"{NAMES[name.removesuffix('.weight')]}.weight"])
        if "d2t" in stored:
            head.with_tokens(torch.from_numpy(stored["d2t"].data.astype(np.int64)))
    return head


def put(values: Tensor | nn.Parameter, tensor: gguf.ReaderTensor) -> None:
    found = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    values.copy_(torch.from_numpy(np.array(found, np.float32).reshape(values.shape)))


def stored_shape(reader: gguf.GGUFReader, n_tokens: int) -> HeadShape:
    def value(name: str, otherwise: object = None) -> object:
        field = reader.get_field(f"{ARCHITECTURE}.{name}")
        return otherwise if field is None else field.contents()

    def number(name: str, otherwise: float = 0.0) -> float:
        found = value(name, otherwise)
        return float(found) if isinstance(found, int | float) else otherwise

    layers = value("target_layers")
    assert isinstance(layers, list)
    low, middle, high = layers
    n_head = int(number("attention.head_count"))
    width = int(number("embedding_length"))
    return HeadShape(
        width=width,
        layers=(int(low), int(middle), int(high)),
        n_tokens=n_tokens,
        n_head=n_head,
        n_kv=int(number("attention.head_count_kv", n_head)),
        head_width=int(number("attention.key_length", width / n_head)),
        n_ff=int(number("feed_forward_length")),
        eps=number("attention.layer_norm_rms_epsilon", 1e-5),
        rope_base=number("rope.freq_base", 10_000.0),
        context=int(number("context_length", 2048)),
        norm_first=bool(value("norm_before_fc", False)),
        norm_residual=bool(value("norm_before_residual", False)),
    )
