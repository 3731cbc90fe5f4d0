"""Every kind of head with a target it reads, by name: how to write both files, and what to call the drafter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.heads.heads import write_eagle3
from tests.heads.test_reference import PAIRS
from tests.recurrent_files import write_qwen35

Writer = Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class Files:
    target: str
    head: str | None
    type: str


def write_hybrid(path: Path) -> str:
    return write_qwen35(path, n_nextn=1)


KINDS: dict[str, tuple[Writer, Writer | None]] = {
    **PAIRS,
    "mtp, hybrid": (write_hybrid, None),
    "eagle3, hybrid": (write_hybrid, lambda path: write_eagle3(path, layers=(1, 2, 4), width=32, target_width=32)),
}


def write_files(folder: Path, kind: str) -> Files:
    target, head = KINDS[kind]
    return Files(
        target(folder / "target.gguf"),
        head(folder / "head.gguf") if head else None,
        f"draft-{kind.replace(',', ' ').split()[0]}",
    )
