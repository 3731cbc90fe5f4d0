"""Which model files around could draft for a target, by what their headers say: the same vocabulary, nearly the same,
another one, a head, or no use. Reads no weights and loads no libllama model, so a folder of large files takes moments.
Knows files and metadata; nothing of speed."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from math import prod
from pathlib import Path

from paceline.drafters.translation import Relation, relation, unlike
from paceline.errors import ModelError
from paceline.process.gguf_check import ArrayOf, Contents, Header, check_gguf
from paceline.process.heads import has_blocks, kind_of

DEEPEST = 5  # folders below the one that was named: a hub's cache has four
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
TOKENS = "tokenizer.ggml.tokens"
OTHER_TYPES = {"adapter": "a LoRA adapter", "mmproj": "a projector for images", "imatrix": "statistics for quantising"}
READERS = ("bert", "t5encoder", "embedding")  # parts of the names of architectures that read and do not write
TWO_SIDED = ("t5", "clip")
COPY = 0.5  # of the target's bytes: a copy of it that takes more cannot gain


class Fit(StrEnum):
    """What a file is to the target, in the order in which it is worth a look."""

    HEAD = "head"
    SAME = "same vocabulary"
    NEARLY = "nearly the same"
    OTHER = "translated"
    NONE = "not usable"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One file, the first part of a split one. `note` says why it is not usable, or what else there is to know. Heads
    within the target's own file have its path."""

    path: str
    fit: Fit
    note: str = ""
    n_params: int = 0
    n_bytes: int = 0
    kind: str = "draft-simple"

    @property
    def name(self) -> str:
        return Path(self.path).name


FITS = {Relation.SAME: Fit.SAME, Relation.NEAR: Fit.NEARLY, Relation.FOREIGN: Fit.OTHER}
Lists = dict[int, list[bytes]]  # by their length


@dataclass(slots=True)
class FamiliarHeader(Header):
    """Skips a list at once which another file has had, to the byte: families share vocabularies."""

    seen: Lists = field(default_factory=dict)

    def strings(self, n: int) -> None:
        start = self.at
        for known in self.seen.get(n, []):
            if self.data[start : start + len(known)] == known:
                self.at += len(known)
                return
        Header.strings(self, n)
        self.seen.setdefault(n, []).append(self.data[start : self.at])


class Words:
    """A file's vocabulary: the kind of its tokenizer, and its tokens as they stand in the file."""

    def __init__(self, kind: object, n_tokens: int, raw: bytes) -> None:
        self.kind = kind
        self.n_tokens = n_tokens
        self.raw = raw

    @classmethod
    def of(cls, path: str, contents: Contents) -> Words | None:
        found = contents.keys.get(TOKENS)
        if not isinstance(found, ArrayOf) or not found.length:
            return None
        start, end = found.span
        with Path(path).open("rb") as file:
            file.seek(start)
            return cls(contents.keys.get("tokenizer.ggml.model"), found.length, file.read(end - start))

    @cached_property
    def _tokens(self) -> list[bytes]:
        out, at = [], 0
        while at < len(self.raw):
            (n,) = struct.unpack_from("<Q", self.raw, at)
            out.append(self.raw[at + 8 : at + 8 + n])
            at += 8 + n
        return out

    def text(self, token: int) -> bytes:
        return self._tokens[token]


def compared(target: Words, draft: Words) -> tuple[Fit, str]:
    """What the vocabularies are to each other, and what the difference is."""
    if target.kind == draft.kind and target.raw == draft.raw:
        return Fit.SAME, ""
    if target.kind != draft.kind:
        return Fit.OTHER, "another kind of tokenizer"
    fit = FITS[relation(target, draft)]
    if fit is Fit.OTHER:
        return fit, f"{draft.n_tokens} tokens, the target has {target.n_tokens}"
    n_more, n_unlike = draft.n_tokens - target.n_tokens, len(unlike(target, draft))
    parts = [f"{abs(n_more)} tokens {'more' if n_more > 0 else 'fewer'}"] if n_more else []
    parts += [f"{n_unlike} spelled otherwise"] if n_unlike else []
    return fit, ", ".join(parts)


class Look:
    """Compares files with one target."""

    def __init__(self, target: str) -> None:
        """Raises ModelError where the target itself is no use."""
        self._seen: Lists = {}
        self.target = self._read(target)
        words = Words.of(target, self.target.contents)
        why = unfit(self.target.contents)
        if not words or why:
            raise ModelError(f"{target} cannot be drafted for: it is {why or 'a file without a vocabulary'}")
        self._words = words
        self._known: dict[tuple[object, bytes], tuple[Fit, str]] = {}

    def _read(self, path: str) -> Whole:
        return Whole.of(path, self._seen)

    def own_heads(self) -> list[Candidate]:
        """MTP blocks that were trained with the target."""
        target = self.target
        if not has_blocks(target.contents):
            return []
        return [Candidate(target.path, Fit.HEAD, "in the target's own file", 0, 0, "draft-mtp")]

    def at(self, path: str) -> Candidate:
        """What this file is; never raises for what is wrong with it."""
        try:
            found = self._read(path)
            draft = Candidate(path, Fit.NONE, "", found.n_params, found.n_bytes)
            return self._judged(draft, found)
        except ModelError as error:
            return Candidate(path, Fit.NONE, in_short(error, path))
        except OSError as error:
            return Candidate(path, Fit.NONE, f"cannot be read: {error.strerror}")

    def _judged(self, draft: Candidate, found: Whole) -> Candidate:
        contents, target = found.contents, self.target
        why = unfit(contents)
        if why:
            return replace(draft, note=why)
        kind = kind_of(contents)
        if kind:
            return replace(draft, fit=Fit.HEAD, kind=kind)
        words = Words.of(draft.path, contents)
        if words is None:
            return replace(draft, note="it has no vocabulary")
        if found.is_copy_of(target) and found.n_bytes > COPY * target.n_bytes:
            return replace(draft, note=f"the target itself, {found.n_bytes / target.n_bytes:.0%} of its size")
        if found.n_bytes >= target.n_bytes:
            return replace(draft, note="larger than the target")
        how, note = self._relation(words)
        if found.is_copy_of(target):
            note = f"the target itself, {found.n_bytes / target.n_bytes:.0%} of its size"
        return replace(draft, fit=how, note=note)

    def _relation(self, words: Words) -> tuple[Fit, str]:
        """Comparing takes a moment: once for all files that have these."""
        key = words.kind, words.raw
        if key not in self._known:
            self._known[key] = compared(self._words, words)
        return self._known[key]


@dataclass(frozen=True, slots=True)
class Whole:
    """A model with all its parts."""

    path: str
    contents: Contents
    n_bytes: int

    @classmethod
    def of(cls, path: str, seen: Lists) -> Whole:
        first, *rest = parts_of(path)
        read = partial(FamiliarHeader, seen=seen)
        contents = check_gguf(first, read)
        for part in rest:
            contents.tensors.update(check_gguf(part, read).tensors)
        return cls(path, contents, sum(size_of(part) for part in (first, *rest)))

    @property
    def n_params(self) -> int:
        return sum(prod(tensor.shape) for tensor in self.contents.tensors.values())

    def is_copy_of(self, other: Whole) -> bool:
        """The same tensors in the same shapes, at whatever precision, under the same name."""
        names = [whole.contents.keys.get("general.name") for whole in (self, other)]
        shapes = [{name: t.shape for name, t in whole.contents.tensors.items()} for whole in (self, other)]
        return names[0] == names[1] and shapes[0] == shapes[1]


def unfit(contents: Contents) -> str:
    """What else than a model that writes, or a head, a file is; nothing where it is one."""
    architecture, kind = contents.architecture, contents.keys.get("general.type", b"")
    other = OTHER_TYPES.get(kind.decode("utf-8", "replace") if isinstance(kind, bytes) else "")
    if other:
        return other
    if any(part in architecture for part in READERS) or contents.own("attention.causal") == 0:
        return "an embedding model"
    if architecture in TWO_SIDED:
        return f"a {architecture} model, which does not write by itself"
    return "" if contents.tensors else "a vocabulary without a model"


# -- files


def files_in(folders: Iterable[str | Path], target: str) -> list[str]:
    """Every model file in and below these folders but the target, a split one once; each file once, whatever links
    lead to it."""
    seen = {os.path.realpath(target)}
    out = []
    for folder in folders:
        for path in below(Path(folder)):
            real = os.path.realpath(path)
            part = PART.fullmatch(path.name)
            if real not in seen and (part is None or int(part[2]) == 1):
                out.append(str(path))
            seen.add(real)
    return out


def below(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
        return
    for root, folders, files in os.walk(folder):
        deep = len(Path(root).relative_to(folder).parts) >= DEEPEST
        folders[:] = [] if deep else sorted(name for name in folders if not name.startswith("."))
        yield from (Path(root) / name for name in sorted(files) if name.endswith(".gguf"))


def parts_of(path: str) -> list[str]:
    """All files of a split model, or the one there is. Raises where one is missing."""
    part = PART.fullmatch(path)
    if part is None:
        return [path]
    names = [f"{part[1]}-{n:05}-of-{part[3]}.gguf" for n in range(1, int(part[3]) + 1)]
    for n, name in enumerate(names, start=1):
        if not Path(name).is_file():
            raise ModelError(f"part {n} of {len(names)} is missing")
    return names


def size_of(path: str) -> int:
    return Path(path).stat().st_size


def in_short(error: Exception, path: str) -> str:
    """Without the path, which stands beside it."""
    said = str(error).replace(f": {path}", "").replace(f"{path} ", "")
    return said.removeprefix("the model file is ")
