"""The house rules that a machine can check: who may import whom, who may touch what, and one name for one thing."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline

ROOT = Path(paceline.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
DATA = {"engine.request", "engine.stats", "drafters.names"}
"""What of the engine's rooms is data, and may be known everywhere."""
MAY_IMPORT = {
    "config": {"errors", "config"},
    "errors": set(),
    "files": set(),
    "garbage": set(),
    "llama": {"config", "errors", "files", "llama"},
    "drafters": {"config", "errors", "files", "llama", "drafters"},
    "planner": {"errors", "files", "drafters", "planner"},
    "engine": {"config", "errors", "llama", "drafters", "planner", "engine"},
    "text": {"config", "errors", "text"},
    "hub": {"errors", "files", "hub"},
    "models": {"errors", "llama"},
    "process": {"config", "errors", "files", "models", "llama", "drafters", "planner", "engine", "text", "process"},
    "cluster": {"config", "errors", "process", "text", "cluster"},
    "generation": {"errors", "text"},
    "library": {"config", "errors", "models", "generation", "process", "text"},
    "distill": {"config", "errors", "files", "llama", "planner", "text", "distill"},
    "server": {"config", "errors", "library", "generation", "process.base", "text", "server"},
}
"""Beside itself and data."""
ALSO = {"library": {"engine.worker", "drafters.base", "llama.shared"}, "distill": {"engine.warmup"}}
ALSO |= {"process": {"garbage"}, "server": {"garbage"}}
CLIENTS = {"bench", "cli", "server"}
LONGEST_FILE, LONGEST_FUNCTION = 430, 50


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def imports(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names if node.module == "paceline")
    return names


def room(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def ours(file: Path) -> set[str]:
    """What it imports of ours, without our name."""
    return {name.removeprefix("paceline.") for name in imports(file) if name.startswith("paceline.")}


def named(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", FILES, ids=named)
def test_imports_point_one_way(file: Path) -> None:
    here = room(file)
    used = {name for name in ours(file) if name not in DATA}
    if here in MAY_IMPORT:
        allowed = MAY_IMPORT[here] | {here} | ALSO.get(here, set())
        wrong = {name for name in used if name not in allowed and name.split(".")[0] not in allowed}
        assert not {name for name in wrong if name != "__version__"}
    if here not in CLIENTS | {"__main__"}:
        assert not {name.split(".")[0] for name in used} & CLIENTS
    if here != "llama":
        assert "ctypes" not in imports(file)
        assert not any(name.startswith("llama_cpp") for name in imports(file))


@pytest.mark.parametrize("file", [f for f in FILES if room(f) in CLIENTS], ids=named)
def test_clients_go_through_the_library(file: Path) -> None:
    """Nobody outside reads what belongs to the engine's thread."""
    touched = {node.attr for node in ast.walk(tree(file)) if isinstance(node, ast.Attribute)}
    assert not touched & {"core", "loop", "backend"}


def test_an_event_passes_three_hands_to_the_client() -> None:
    """Generators on a streamed token's way: `Steps` takes it, `lines` words it; `EventStream` sends it."""
    found = {
        f"{file.name}:{node.name}"
        for file in FILES
        if room(file) == "server"
        for node in ast.walk(tree(file))
        if isinstance(node, ast.AsyncFunctionDef) and any(isinstance(n, ast.Yield) for n in ast.walk(node))
    }
    assert found - {"app.py:lifespan"} == {"stream.py:__aiter__", "stream.py:lines"}


def test_no_closure_crosses_the_engines_border() -> None:
    """Requests, events and messages are data: their fields name no callable."""
    for name in ("engine/request.py", "engine/stats.py", "process/messages.py", "cluster/messages.py"):
        fields = [node for node in ast.walk(tree(ROOT / name)) if isinstance(node, ast.AnnAssign)]
        assert fields
        assert not [ast.unparse(field) for field in fields if "Callable" in ast.unparse(field.annotation)]


def test_drafters_and_policies_are_told_apart_by_protocol() -> None:
    for file in FILES:
        for call in ast.walk(tree(file)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "isinstance":
                assert not {"Policy", "Drafter", "DraftModel"} & set(words(ast.unparse(call.args[1]))), named(file)


def words(text: str) -> Iterator[str]:
    for name in text.replace("|", " ").split():
        yield name
        yield name.removeprefix("Auto").removeprefix("Fixed").removeprefix("Grammar")


def test_one_name_for_one_thing() -> None:
    classes = Counter(node.name for file in FILES for node in ast.walk(tree(file)) if isinstance(node, ast.ClassDef))
    assert [name for name, n in classes.items() if n > 1] == []


@pytest.mark.parametrize("file", FILES, ids=named)
def test_files_and_functions_stay_readable(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= LONGEST_FILE
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < LONGEST_FUNCTION, node.name
