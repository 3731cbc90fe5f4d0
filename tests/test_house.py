"""The house rules that a machine can check: who may import whom, and where ctypes lives."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import paceline

ROOT = Path(paceline.__file__).parent
MAY_IMPORT = {
    "config": {"errors"},
    "errors": set(),
    "llama": {"config", "errors", "llama"},
    "drafters": {"config", "errors", "llama", "drafters"},
    "planner": {"errors", "drafters", "planner"},
    "engine": {"config", "errors", "llama", "drafters", "planner", "engine"},
    "text": {"config", "errors", "text"},
    "models": {"errors", "llama"},
}
CLIENTS = {"bench", "cli", "server"}


def imports(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else "__init__"


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_point_one_way(file: Path) -> None:
    here = file.relative_to(ROOT).parts[0].removesuffix(".py")
    used = {room(name) for name in imports(file) if name.split(".")[0] == "paceline"}
    if here in MAY_IMPORT:
        assert used <= MAY_IMPORT[here]
    if here not in CLIENTS | {"__main__"}:
        assert not used & CLIENTS
    if here != "llama":
        assert "ctypes" not in imports(file)
        assert not any(name.startswith("llama_cpp") for name in imports(file))
