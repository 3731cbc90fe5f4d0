"""The target, rebuilt in torch from its GGUF file: the teacher."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Self

import numpy as np
import torch

from paceline.distill.network import Network
from paceline.distill.reading import (
    INTERLEAVED,
    Array,
    GgufFile,
    Hyperparameters,
    halves_first,
    hyperparameters,
)
from paceline.errors import ModelError

FACTORS = "rope_freqs.weight"


def best_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def best_dtype(device: str) -> torch.dtype:
    """Half as many bytes where that is faster; a CPU is not."""
    return torch.bfloat16 if device.startswith("cuda") else torch.float32


def precision(device: str, dtype: torch.dtype | None = None) -> AbstractContextManager[object]:
    """What every pass runs in: matrices multiply in half precision, the rest in float32."""
    chosen = dtype or best_dtype(device)
    if chosen is torch.float32:
        return nullcontext()
    context: AbstractContextManager[object] = torch.autocast(device.split(":")[0], dtype=chosen)
    return context


class Teacher(Network):
    """Frozen. `Teacher.read` makes one; run it inside `teacher.precision()` and `torch.no_grad()`."""

    dtype: torch.dtype
    device: str

    @classmethod
    def read(cls, path: str, *, device: str | None = None, dtype: torch.dtype | None = None) -> Self:
        file = GgufFile(path)
        shape = hyperparameters(file)
        tensors = {name: file.array(name) for name in file.tensor_names}
        names = set(tensors)
        with torch.device("meta"):
            teacher = cls(shape, qkv_bias="blk.0.attn_q.bias" in names, out_bias="blk.0.attn_output.bias" in names)
        state = state_of(tensors, shape)
        check_complete(file.path, {*teacher.state_dict()}, {*state}, left_over(tensors))
        state["frequencies"] = frequencies(shape, tensors.get(FACTORS))
        teacher.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()}, assign=True)
        return teacher._settle(device or best_device(), dtype)

    def _settle(self, device: str, dtype: torch.dtype | None) -> Self:
        self.device = device
        self.dtype = dtype or best_dtype(device)
        self.requires_grad_(False).eval()
        if device.startswith("cuda"):  # cuDNN's attention makes a new plan for every length, and writing has them all
            torch.backends.cuda.enable_cudnn_sdp(False)
        self.to(device)
        for name, weight in self.named_parameters():
            if weight.dim() > 1 or name.endswith("bias"):
                weight.data = weight.data.to(self.dtype)
        return self

    def precision(self) -> AbstractContextManager[object]:
        return precision(self.device, self.dtype)

    def check_finite(self, hidden: torch.Tensor) -> None:
        """Half precision overflows in a few models; better told than learned from."""
        if not bool(torch.isfinite(hidden).all()):
            raise ModelError("the target computes no numbers at this precision; try --dtype float32")


def state_of(tensors: Mapping[str, Array], shape: Hyperparameters) -> dict[str, Array]:
    """The file's tensors under the network's names, joined and ordered as it wants them."""
    state = {"embedding.weight": tensors["token_embd.weight"], "norm.weight": tensors["output_norm.weight"]}
    if not shape.tied:
        state["own_output.weight"] = tensors["output.weight"]
    for layer in range(shape.n_layer):
        state |= {f"blocks.{layer}.{name}": array for name, array in block_state(tensors, shape, layer).items()}
    return state


def block_state(tensors: Mapping[str, Array], shape: Hyperparameters, layer: int) -> dict[str, Array]:
    def of(name: str) -> Array:
        key = f"blk.{layer}.{name}"
        if key not in tensors:
            raise ModelError(f"the file lacks the tensor {key}")
        return tensors[key]

    def rows(kind: str) -> Array:
        q, k, v = (of(f"attn_{which}.{kind}") for which in "qkv")
        if shape.arch in INTERLEAVED:
            q, k = halves_first(q, shape.n_head), halves_first(k, shape.n_head_kv)
        return np.concatenate((q, k, v))

    state = {
        "attention_norm.weight": of("attn_norm.weight"),
        "feed_norm.weight": of("ffn_norm.weight"),
        "attention.qkv.weight": rows("weight"),
        "attention.out.weight": of("attn_output.weight"),
        "feed.gate_up.weight": np.concatenate((of("ffn_gate.weight"), of("ffn_up.weight"))),
        "feed.down.weight": of("ffn_down.weight"),
    }
    if f"blk.{layer}.attn_q.bias" in tensors:
        state["attention.qkv.bias"] = rows("bias")
    if f"blk.{layer}.attn_output.bias" in tensors:
        state["attention.out.bias"] = of("attn_output.bias")
    if shape.head_norms:
        state |= {f"attention.{which}_norm.weight": of(f"attn_{which}_norm.weight") for which in "qk"}
    return state


PARTS = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm")
FEEDS = ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
KNOWN = {f"{name}.weight" for name in (*PARTS, *FEEDS)} | {f"attn_{name}.bias" for name in ("q", "k", "v", "output")}
WHOLE = {"token_embd.weight", "output_norm.weight", "output.weight", FACTORS}


def left_over(tensors: Mapping[str, Array]) -> list[str]:
    """Tensors of a file that the rebuilt model has no place for."""

    def known(name: str) -> bool:
        return name in WHOLE or (name.startswith("blk.") and name.split(".", 2)[2] in KNOWN)

    return sorted(name for name in tensors if not known(name))


def check_complete(path: str, wanted: set[str], found: set[str], strangers: list[str]) -> None:
    missing = wanted - found - {"frequencies"}
    if strangers or found - wanted:
        raise ModelError(
            f"{path} has tensors that distill does not know, as {[*strangers, *sorted(found - wanted)][0]}"
        )
    if missing:
        raise ModelError(f"{path} lacks weights for {sorted(missing)[0]}")


def frequencies(shape: Hyperparameters, factors: Array | None) -> Array:
    """How fast each pair of a head rotates; Llama 3.1 and later slow some of them down by `factors`."""
    plain = shape.rope_base ** (-np.arange(0, shape.head_dim, 2, dtype=np.float64) / shape.head_dim)
    return (plain if factors is None else plain / factors).astype(np.float32)
