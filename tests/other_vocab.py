"""Models with another vocabulary than their source or than `tiny.py`: other ids, other splits, another tokenizer."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.tiny import add_shape, write_out

BLANK = "▁"
SPM_WORDS = ["the", "and", "of", "tea", "he", "water", "ing", "er", "on", "an", "re", "in", "at", "or"]


def write_permuted(source: str, path: Path, *, n_merges: float = 1.0, seed: int = 0) -> str:
    """The model of `source` with its token ids shuffled and only the first share of its merges: the same weights in
    other places, so that it says the same, in other tokens. The ends of texts keep their roles."""
    reader = gguf.GGUFReader(source)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    order = np.random.default_rng(seed).permutation(len(tokens))  # the new token i is the old order[i]
    places = np.argsort(order)
    writer = gguf.GGUFWriter(str(path), str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, changed(name, field.contents(), order, places, n_merges), *kinds(field))
    for tensor in reader.tensors:
        of_tokens = tensor.name in ("token_embd.weight", "output.weight")
        data = np.ascontiguousarray(tensor.data[order]) if of_tokens else tensor.data
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    write_out(writer)
    return str(path)


def changed(name: str, value: object, order: np.ndarray, places: np.ndarray, n_merges: float) -> object:
    if name.endswith("_token_id"):
        assert isinstance(value, int)
        return int(places[value])
    if not isinstance(value, list):
        return value
    if name.endswith(".merges"):
        return value[: max(1, int(len(value) * n_merges))]
    return [value[i] for i in order] if len(value) == len(order) else value


def kinds(field: gguf.ReaderField) -> list[gguf.GGUFValueType]:
    return list(field.types[:2])


def write_sentencepiece(
    path: Path, *, seed: int = 0, n_embd: int = 64, n_layer: int = 2, n_ctx: int = 512, scale: float = 4.0
) -> str:
    """A Llama of random weights with a vocabulary like TinyLlama's: sentencepiece, with a token for every byte."""
    rng = np.random.default_rng(seed)
    words = [BLANK, *(BLANK + word for word in SPM_WORDS), *SPM_WORDS, *map(chr, range(33, 127))]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *dict.fromkeys(words)]
    types = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2, *[gguf.TokenType.BYTE] * 256]
    types += [gguf.TokenType.NORMAL] * (len(tokens) - len(types))
    writer = gguf.GGUFWriter(str(path), "llama")
    add_shape(writer, n_embd, n_layer, 2, n_ctx)
    writer.add_rope_dimension_count(n_embd // 2)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_scores([float(len(token)) for token in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, (rng.standard_normal(shape) * scale / np.sqrt(shape[-1])).astype(np.float32))

    writer.add_tensor("token_embd.weight", rng.standard_normal((len(tokens), n_embd)).astype(np.float32))
    writer.add_tensor("output_norm.weight", np.ones(n_embd, np.float32))
    add("output.weight", len(tokens), n_embd)
    for i in range(n_layer):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(n_embd, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{i}.{name}.weight", n_embd, n_embd)
        for name, shape in (
            ("gate", (2 * n_embd, n_embd)),
            ("up", (2 * n_embd, n_embd)),
            ("down", (n_embd, 2 * n_embd)),
        ):
            add(f"blk.{i}.ffn_{name}.weight", *shape)
    write_out(writer)
    return str(path)
