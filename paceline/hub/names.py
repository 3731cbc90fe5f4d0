"""What a model's name means, and which files of a repository it stands for. Knows names alone: no network, no disk.

Names and preferences are llama.cpp's: USER/MODEL[:QUANT], Q4_K_M before Q8_0 before whatever comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit, urlunsplit

from paceline.errors import HubError

PREFERRED = ("Q4_K_M", "Q8_0")
HEADS = ("mtp", "dspark", "dflash", "eagle3")
"""Drafters that have files of their own beside a model's, the first found is taken."""
BESIDE = ("mmproj", "imatrix", *(f"{head}-" for head in HEADS))
"""What stands in the names of files that are no models. (In capitals, X-MTP-Q8_0.gguf, it is one that has heads.)"""

SPLIT = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf", re.IGNORECASE)
QUANT = re.compile(r"[-.]([A-Za-z0-9_]+)$")
PART_OF_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


@dataclass(frozen=True, slots=True)
class Repository:
    """USER/MODEL on a hub, and what is wanted of it: a quant, a file, or whatever is usual."""

    id: str
    quant: str = ""
    file: str = ""

    @property
    def name(self) -> str:
        return f"{self.id}:{self.quant}" if self.quant else self.id


@dataclass(frozen=True, slots=True)
class Address:
    """A file by its URL."""

    url: str

    @property
    def file(self) -> str:
        return PurePosixPath(unquote(urlsplit(self.url).path)).name

    @property
    def parts(self) -> list[Address]:
        """All of a split model, by the first one's name."""
        split = urlsplit(self.url)
        return [Address(urlunsplit(split._replace(path=path))) for path in all_parts(split.path)]


def parse(name: str, file: str | None = None) -> Repository | Address:
    """USER/MODEL, USER/MODEL:QUANT, USER/MODEL/FILE.gguf or http(s)://…; `file` wins over what the name says."""
    if "://" in name:
        return parse_address(name)
    path, _, quant = name.partition(":")
    user, _, rest = path.partition("/")
    model, _, inner = rest.partition("/")
    if not PART_OF_ID.fullmatch(user) or not PART_OF_ID.fullmatch(model) or (inner and not is_gguf(inner)):
        raise HubError(f"{name!r} is not USER/MODEL, USER/MODEL:QUANT or USER/MODEL/FILE.gguf")
    return Repository(f"{user}/{model}", "" if file else quant, file or inner)


def parse_address(url: str) -> Address:
    address = Address(url)
    split = urlsplit(url)
    if split.scheme not in ("http", "https") or not split.netloc or address.file in ("", ".", ".."):
        raise HubError(f"{url!r} is not the address of a file: write http(s)://HOST/…/FILE.gguf")
    return address


def is_gguf(file: str) -> bool:
    return file.lower().endswith(".gguf")


def is_model(file: str) -> bool:
    return is_gguf(file) and not any(word in PurePosixPath(file).name for word in BESIDE)


def quant_of(file: str) -> str:
    """Q4_K_M of model-Q4_K_M-00001-of-00003.gguf; "" where the name says nothing."""
    match = SPLIT.fullmatch(file)
    found = QUANT.search(match[1] if match else file[: -len(".gguf")])
    return found[1].upper() if found else ""


def bits_of(quant: str) -> int:
    """4 of Q4_K_M."""
    digits = re.search("[0-9]+", quant)
    return int(digits[0]) if digits else 0


def all_parts(file: str) -> list[str]:
    """The files of a split model, whichever of them is named; the file itself where it is whole."""
    match = SPLIT.fullmatch(file)
    if not match:
        return [file]
    return [f"{match[1]}-{i:05}-of-{match[3]}{file[-5:]}" for i in range(1, int(match[3]) + 1)]


def models(files: Iterable[str]) -> list[str]:
    """One name for each model: of a split one, its first part."""
    return [file for file in files if is_model(file) and all_parts(file)[0] == file]


def choose(files: Sequence[str], wanted: Repository) -> list[str]:
    """The files to fetch, the one to load first. What is missing is an error that says what there is."""
    parts = all_parts(wanted.file or chosen_model(files, wanted))
    missing = [part for part in parts if part not in files]
    if not missing:
        return parts
    there = [file for file in files if is_gguf(file)]
    if wanted.file in missing:
        raise HubError(f"{wanted.id} has no file {wanted.file}; {has(there)}")
    raise HubError(f"{wanted.id} has {parts[0]} without {missing[0]}: the model is not complete there")


def chosen_model(files: Sequence[str], wanted: Repository) -> str:
    there = models(files)
    if not there:
        raise HubError(f"{wanted.id} has no GGUF model{beside(files)}; look for a repository whose name ends in -GGUF")
    for quant in (wanted.quant,) if wanted.quant else PREFERRED:
        for file in there:
            if names_quant(file, quant):
                return file
    if not wanted.quant:
        return there[0]
    quants = dict.fromkeys(quant_of(file) or file for file in there)
    raise HubError(f"{wanted.id} has no {wanted.quant}; {has(quants)}, as in {wanted.id}:{next(iter(quants))}")


def names_quant(file: str, quant: str) -> bool:
    """Whether the file's name, or its folder's, ends in it: IQ4_XS is no Q4_XS."""
    return bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(quant)}[./-]", file, re.IGNORECASE))


def has(names: Iterable[str]) -> str:
    return f"it has {', '.join(names)}"


def beside(files: Iterable[str]) -> str:
    other = [file for file in files if is_gguf(file)]
    return f", only {', '.join(other)}" if other else ""


def choose_head(files: Sequence[str], heads: Iterable[str], model: str, quant: str = "") -> list[str]:
    """The drafter's file that goes with a model: in its folder or above, of its quant or the nearest; [] if none."""
    folders = [PurePosixPath(model).parent, *PurePosixPath(model).parent.parents]
    bits = bits_of(quant or quant_of(model)) if quant or model else 0

    def distance(file: str) -> tuple[int, bool, int]:
        depth = folders.index(PurePosixPath(file).parent)
        return depth, bool(quant) and not names_quant(file, quant), abs(bits_of(quant_of(file)) - bits)

    for head in heads:
        there = [
            file
            for file in files
            if is_gguf(file)
            and f"{head}-" in PurePosixPath(file).name
            and PurePosixPath(file).parent in folders
            and all_parts(file)[0] == file
        ]
        if there:
            return all_parts(min(there, key=distance))
    return []
