"""What a fresh process loads, and what it says where libllama is missing."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import paceline

HEAVY = (
    "huggingface_hub",
    "httpx",
    "numpy",
    "torch",
    "llama_cpp",
    "fastapi",
    "rich",
    "llguidance",
    "uvicorn",
    "asyncio",
    "argparse",
)
WITHOUT_LIBLLAMA = "import sys; sys.modules['llama_cpp'] = None\n"
MESSAGE = "libllama could not be loaded (import of llama_cpp halted; None in sys.modules); pip install "


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


def command(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    return python(f"{before}import sys\nfrom paceline.cli.main import main\nsys.exit(main())", *words)


@pytest.mark.parametrize(
    "words",
    [("--help",), ("--version",), *((command, "--help") for command in ("run", "serve", "bench", "distill"))],
    ids=" ".join,
)
def test_help_loads_nothing_heavy(words: tuple[str, ...]) -> None:
    code = "import sys\nfrom paceline.cli.main import main\nmain()\nprint(*sys.modules, file=sys.stderr)"
    done = python(code, *words)
    assert "paceline" in done.stdout
    assert set(done.stderr.split()) & set(HEAVY) == set()


@pytest.mark.parametrize("words", [("run", "-p", "x"), ("serve",), ("bench", "--quick"), ("demo",)], ids=" ".join)
def test_a_missing_libllama_is_one_line(words: tuple[str, ...]) -> None:
    done = command(*words, before=WITHOUT_LIBLLAMA)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"paceline: error: {MESSAGE}")
    assert done.stderr.count("\n") == 1


def test_help_needs_no_libllama() -> None:
    assert command("run", "--help", before=WITHOUT_LIBLLAMA).returncode == 0


def test_the_library_can_be_imported_without_libllama() -> None:
    code = f"""{WITHOUT_LIBLLAMA}
import paceline
from paceline import ConfigError, PacelineError, SamplingParams
assert issubclass(paceline.LibraryError, PacelineError)
for _ in range(2):
    try:
        paceline.Engine("model.gguf")
    except paceline.LibraryError as error:
        print(error)
"""
    done = python(code)
    assert done.stderr == ""
    assert done.stdout.count(MESSAGE) == done.stdout.count("\n") == 2


def test_a_broken_libllama_is_one_line(tmp_path: Path) -> None:
    """A package that fails as llama_cpp does when its shared library does not load, in several lines."""
    (tmp_path / "llama_cpp.py").write_text("raise RuntimeError('Failed to load\\nlibllama.so:\\n  GLIBC_2.99')")
    done = command("run", "-p", "x", before=f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n")
    assert done.returncode == 2
    assert "could not be loaded (Failed to load libllama.so: GLIBC_2.99); pip install" in done.stderr
    assert done.stderr.count("\n") == 1


def test_every_public_name_is_found_where_it_lives() -> None:
    for name in paceline.__all__:
        assert getattr(paceline, name) is not None
    assert set(paceline.__all__) <= set(dir(paceline))
    assert not hasattr(paceline, "Engin")


def test_type_checkers_may_trust_our_types() -> None:
    spec = find_spec("paceline")
    assert spec and spec.origin
    assert (Path(spec.origin).parent / "py.typed").exists()
