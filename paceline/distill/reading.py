"""A GGUF file as numbers: what shape the model has, its weights as float32, its tokenizer as it stands there.

Knows the file format (through the package `gguf`); nothing of torch. Only plain decoders of the Llama family are
understood, and whatever else a file holds is refused by name: a target that is rebuilt wrongly teaches nonsense.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.distill.needs import gguf
from paceline.errors import ModelError

ARCHITECTURES = ("llama", "qwen2", "qwen3")
INTERLEAVED = ("llama",)
"""Whose queries and keys are stored so that neighbours rotate together; elsewhere the halves do."""
TOKENIZER = "tokenizer."
UNSUPPORTED = {
    "expert_count": "experts",
    "attention.sliding_window": "a sliding window",
    "attention.scale": "an attention scale of its own",
    "logit_scale": "scaled logits",
    "residual_scale": "scaled residuals",
    "embedding_scale": "scaled embeddings",
}
"""Keys that change the arithmetic, after the architecture's name."""

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters:
    """The shape of a decoder."""

    arch: str = "llama"
    n_vocab: int
    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    n_ctx: int
    rope_base: float = 10_000.0
    eps: float = 1e-5
    tied: bool = True
    head_norms: bool = False

    @property
    def n_params(self) -> int:
        """Without biases and norms, which do not count."""
        attention = self.n_embd * self.head_dim * 2 * (self.n_head + self.n_head_kv)
        layers = self.n_layer * (attention + 3 * self.n_embd * self.n_ff)
        return layers + self.n_vocab * self.n_embd * (1 if self.tied else 2)


@dataclass(frozen=True, slots=True)
class KeptKey:
    """One key of a file, as it has to be written again."""

    key: str
    value: Any
    kind: Any
    item_kind: Any = None


class GgufFile:
    """A file, opened; weights are read and dequantised when they are asked for."""

    def __init__(self, path: str) -> None:
        check_readable(path)
        self.path = path
        try:
            self._reader = gguf().GGUFReader(path)
        except (ValueError, OSError, KeyError, IndexError) as error:
            raise ModelError(f"cannot read {path}: {error}") from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def get(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def of_arch(self, key: str, default: Any = None) -> Any:
        """A key that begins with the architecture's name."""
        found = self.get(f"{self.arch}.{key}", default)
        if found is None:
            raise ModelError(f"{self.path} lacks the key {self.arch}.{key}")
        return found

    def number(self, key: str, default: int | None = None) -> int:
        """A count of the architecture; one for each layer is fine where all are the same."""
        found = self.of_arch(key, default)
        each = set(found) if isinstance(found, list) else {found}
        if len(each) != 1:
            raise ModelError(f"the layers of {self.path} differ in {key}, which distill does not support")
        return int(each.pop())

    @cached_property
    def arch(self) -> str:
        return str(self.get("general.architecture", "unknown"))

    @property
    def tensor_names(self) -> set[str]:
        return set(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """As numpy has it, rows first."""
        if name not in self._tensors:
            raise ModelError(f"{self.path} lacks the tensor {name}")
        return tuple(int(n) for n in reversed(self._tensors[name].shape))

    def array(self, name: str) -> Array:
        """One tensor as float32, whatever it is stored as."""
        shape = self.shape(name)
        tensor = self._tensors[name]
        try:
            values = gguf().quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise ModelError(
                f"{name} of {self.path} is {tensor.tensor_type.name}, which cannot be read: {error}"
            ) from None
        return np.array(values, dtype=np.float32, order="C").reshape(shape)

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """A tensor that is a list of numbers, not weights."""
        self.shape(name)
        return np.array(self._tensors[name].data, np.int64)

    def tokenizer(self) -> Iterator[KeptKey]:
        """Every key of the vocabulary and its chat templates."""
        for key, field in self._reader.fields.items():
            if key.startswith(TOKENIZER):
                kinds = list(field.types)
                yield KeptKey(key, field.contents(), kinds[0], kinds[1] if len(kinds) > 1 else None)


def check_readable(path: str) -> None:
    file = Path(path)
    if not file.is_file():
        raise ModelError(f"model file not found: {path}")
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ModelError(f"not a GGUF file: {path}")


def hyperparameters(file: GgufFile) -> Hyperparameters:
    """The shape of the model in a file; what we could not rebuild to the letter is refused."""
    check_supported(file)
    n_vocab, n_embd = file.shape("token_embd.weight")
    n_head = file.number("attention.head_count")
    shape = Hyperparameters(
        arch=file.arch,
        n_vocab=n_vocab,
        n_embd=n_embd,
        n_layer=file.number("block_count"),
        n_head=n_head,
        n_head_kv=file.number("attention.head_count_kv", n_head),
        head_dim=file.number("attention.key_length", n_embd // n_head),
        n_ff=file.number("feed_forward_length"),
        n_ctx=file.number("context_length"),
        rope_base=float(file.of_arch("rope.freq_base", 10_000.0)),
        eps=float(file.of_arch("attention.layer_norm_rms_epsilon")),
        tied="output.weight" not in file.tensor_names,
        head_norms=file.arch == "qwen3",
    )
    if file.number("rope.dimension_count", shape.head_dim) != shape.head_dim:
        raise ModelError(f"{file.path} rotates a part of each head only, which distill does not support")
    return shape


def check_supported(file: GgufFile) -> None:
    if file.arch not in ARCHITECTURES:
        raise ModelError(f"distill knows the architectures {', '.join(ARCHITECTURES)}; {file.path} is {file.arch!r}")
    if int(file.get("split.count", 1)) > 1:
        raise ModelError(f"{file.path} is one part of several; join them first (llama-gguf-split --merge)")
    for key, what in UNSUPPORTED.items():
        if file.get(f"{file.arch}.{key}"):
            raise ModelError(f"{file.path} has {what} ({file.arch}.{key}), which distill does not support")
    if file.get(f"{file.arch}.rope.scaling.type", "none") not in ("none", ""):
        raise ModelError(f"{file.path} scales its positions ({file.arch}.rope.scaling), which distill does not support")


def halves_first(weight: Array, n_head: int) -> Array:
    """Rows of queries or keys whose neighbours rotate together, in the order in which the halves do."""
    rows = weight.reshape(n_head, -1, 2, *weight.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(weight.shape)


def neighbours_first(weight: Array, n_head: int) -> Array:
    """The way back, for export."""
    rows = weight.reshape(n_head, 2, -1, *weight.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(weight.shape)
