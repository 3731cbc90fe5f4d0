"""Every kind of head with a target it reads, by name: how to write both files, and what to call the drafter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.heads.heads import write_eagle3
from tests.heads.targets import write_gemma4, write_gemma4_assistant, write_step35
from tests.heads.test_reference import PAIRS, RIGHT
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
    **{f"{kind}, right": files for kind, files in RIGHT.items()},
    "eagle3, hybrid": (write_hybrid, lambda path: write_eagle3(path, layers=(1, 2, 4), width=32, target_width=32)),
}


WIDE: dict[str, tuple[Writer, Writer | None]] = {
    "eagle3": KINDS["eagle3"],
    "mtp": (lambda path: write_step35(path, window=512), None),
    "mtp, chained": (lambda path: write_step35(path, window=512, n_heads=3), None),
    "mtp, shared memory": (lambda path: write_gemma4(path, window=512), write_gemma4_assistant),
    "dflash": KINDS["dflash"],
}
"""Those whose targets look back on whole texts."""


def write_files(folder: Path, kind: str, *, wide: bool = False) -> Files:
    target, head = (WIDE if wide else KINDS)[kind]
    return Files(
        target(folder / "target.gguf"),
        head(folder / "head.gguf") if head else None,
        f"draft-{kind.replace(',', ' ').split()[0]}",
    )
