"""A model file's header, read with care before libllama reads it: libllama asserts, or divides by zero, where a file is
damaged, and takes the process along. Knows the format and the sizes that must agree; nothing of what a model means."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.errors import ModelError
from paceline.llama.model import check_file

VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
INT64 = 27  # kind of tensor
N_KEYS, N_TENSORS, N_NAME, N_LAYERS, N_BLOCKS, N_SIZE = 2**16, 2**17, 2**16, 1024, 512, 2**24
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 30: (1, 2)}
BLOCKS |= {
    INT64: (1, 8),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    20: (32, 18),
    23: (256, 136),
}
COUNTS = ("block_count", "embedding_length", "attention.head_count", "feed_forward_length", "context_length")
UNUSED = ("attention.head_count", "feed_forward_length")  # by architectures without attention, whose files say 0
EPSILONS = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")  # never below 0: libllama asserts
RECURRENT = ("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")


class Damaged(Exception):
    """What is wrong with the file."""


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """A list of strings is not read: `span` says where in the file they stand, each after its length."""

    kind: int
    length: int
    values: tuple[Any, ...] = ()
    span: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Tensor:
    """`offset` counts from the beginning of all tensors' numbers."""

    shape: list[int]
    kind: int
    offset: int


@dataclass(slots=True)
class Header:
    """A place in the file that moves on as things are read."""

    data: mmap.mmap
    at: int = 4
    keys: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def number(self, code: str) -> Any:
        size = struct.calcsize(f"<{code}")
        if self.at + size > len(self.data):
            raise Damaged("it ends in the middle of its header")
        self.at += size
        return struct.unpack_from(f"<{code}", self.data, self.at - size)[0]

    def skip(self, n: int) -> None:
        if n > len(self.data) - self.at:
            raise Damaged("it ends in the middle of its header")
        self.at += n

    def string(self) -> str:
        n, start = self.number("Q"), self.at
        self.skip(n)
        if n > N_NAME:
            raise Damaged(f"a name has {n} bytes")
        return self.data[start : self.at].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            start, n = self.at, self.number("Q")
            self.skip(n)
            return self.data[start + 8 : start + 8 + min(n, 256)]
        if kind == ARRAY:
            return self.array(self.number("I"), self.number("Q"))
        if kind not in SCALARS:
            raise Damaged(f"a value is of the unknown type {kind}")
        return self.number(SCALARS[kind])

    def array(self, kind: int, n: int) -> ArrayOf:
        start = self.at
        if kind == STRING:
            self.strings(n)
            return ArrayOf(kind, n, span=(start, self.at))
        if kind in SCALARS:
            self.skip(n * struct.calcsize(SCALARS[kind]))
            if n <= N_LAYERS:
                return ArrayOf(kind, n, struct.unpack_from(f"<{n}{SCALARS[kind]}", self.data, start))
        else:
            raise Damaged(f"a list is of the unknown type {kind}")
        return ArrayOf(kind, n)

    def strings(self, n: int) -> None:
        """Hundreds of thousands, in a vocabulary."""
        data, at, end, length = self.data, self.at, len(self.data) - 8, struct.Struct("<Q").unpack_from
        for _ in range(n):
            if at > end:
                raise Damaged("it ends in the middle of a list")
            at += 8 + length(data, at)[0]
        self.at = at
        self.skip(0)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file says of itself: its entries, its tensors, and where their numbers begin."""

    keys: dict[str, Any]
    tensors: dict[str, Tensor]
    start: int

    @property
    def architecture(self) -> str:
        return architecture_of(self.keys)

    def own(self, key: str, default: Any = None) -> Any:
        """An entry under the architecture's name; of a list its values."""
        found = self.keys.get(f"{self.architecture}.{key}", default)
        return found.values if isinstance(found, ArrayOf) else found

    def integers(self, path: str, name: str) -> npt.NDArray[np.int64]:
        """Those of one tensor; none where it is not there, or of another kind."""
        tensor = self.tensors.get(name)
        if tensor is None or tensor.kind != INT64:
            return np.zeros(0, np.int64)
        return np.fromfile(path, np.int64, prod(tensor.shape), offset=self.start + tensor.offset)


def check_gguf(path: str, read: Callable[[mmap.mmap], Header] = Header) -> Contents:
    """Raises ModelError where the file cannot be what its header says. Who looks at many files brings a header that
    `read`s lists it has seen before more quickly."""
    check_file(path)
    try:
        with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            header = read(data)
            return Contents(header.keys, header.tensors, check(header))
    except Damaged as error:
        raise ModelError(f"the model file is damaged: {path} ({error})") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"model file cannot be read: {path} ({error})") from error


def check(header: Header) -> int:
    """Returns where the tensors' numbers begin."""
    version, n_tensors, n_keys = header.number("I"), header.number("Q"), header.number("Q")
    if version not in VERSIONS:
        raise Damaged(f"it is of version {version}; versions 2 and 3 can be read")
    if n_tensors > N_TENSORS or n_keys > N_KEYS:
        raise Damaged(f"it says that it has {n_tensors} tensors and {n_keys} keys")
    for _ in range(n_keys):
        key = header.string()
        header.keys[key] = header.value(header.number("I"))
    check_keys(header.keys)
    ends = [tensor_end(header) for _ in range(n_tensors)]
    alignment = header.keys.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise Damaged(f"its alignment is {alignment!r}")
    start = -(-header.at // alignment) * alignment
    if start + max(ends, default=0) > len(header.data):
        raise Damaged(f"it has {len(header.data)} bytes, its tensors end at {start + max(ends)}: was it copied whole?")
    return start


def tensor_end(header: Header) -> int:
    """Where its numbers end, after all headers."""
    name, n_dims = header.string(), header.number("I")
    if not 1 <= n_dims <= 4:
        raise Damaged(f"tensor {name[:64]!r} has {n_dims} dimensions")
    shape = [header.number("Q") for _ in range(n_dims)]
    kind, offset = header.number("I"), header.number("Q")
    block, size = BLOCKS.get(kind, (1, 0))
    if not all(0 < n < 2**40 for n in shape) or prod(shape) % block:
        raise Damaged(f"tensor {name[:64]!r} has the shape {shape}")
    header.tensors[name] = Tensor(shape, kind, offset)
    return int(offset + prod(shape) // block * size)


def architecture_of(keys: dict[str, Any]) -> str:
    found = keys.get("general.architecture", b"")
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else ""


def check_keys(keys: dict[str, Any]) -> None:
    """Counts that libllama divides by or loops over, and lists that belong together."""
    name = architecture_of(keys)
    for count in COUNTS:
        found = keys.get(f"{name}.{count}", 1)
        most = N_BLOCKS if count == "block_count" else N_SIZE
        numbers = found.values if isinstance(found, ArrayOf) else (found,)
        empty = numbers == (0,) and not (name in RECURRENT and count in UNUSED)
        if not all(isinstance(n, int) and 0 <= n <= most for n in numbers) or empty:
            raise Damaged(f"{count} is {numbers[:8]}")
    n_nextn, n_blocks = (keys.get(f"{name}.{key}", 0) for key in ("nextn_predict_layers", "block_count"))
    if not (isinstance(n_nextn, int) and isinstance(n_blocks, int) and n_nextn <= n_blocks):
        raise Damaged(f"{n_nextn} of its {n_blocks} blocks are heads")
    for epsilon in EPSILONS:
        found = keys.get(f"{name}.{epsilon}", 0.0)
        if not (isinstance(found, float) and found >= 0):
            raise Damaged(f"{epsilon} is {found}")
    tokens = keys.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, ArrayOf):
        return
    for list_name in ("scores", "token_type"):
        beside = keys.get(f"tokenizer.ggml.{list_name}", tokens)
        if not isinstance(beside, ArrayOf) or beside.length < tokens.length:
            raise Damaged(f"it has {tokens.length} tokens and not as many {list_name}")
