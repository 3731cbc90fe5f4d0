"""llama.cpp's own server tests, pointed at `paceline serve` and, to compare, at llama-server."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.upstream.models import FILES
from tests.upstream.sources import SourceMissing, lay_out
from tests.upstream.table import Results, as_json, failures, read_results, rows, table

ROOT = Path(__file__).resolve().parents[2]
FILES_OUT = {
    "router": "router mode",
    "stream": "router mode",
    "mcp_servers": "MCP",
    "tools_builtin": "built-in tools",
    "proxy": "the proxy of llama-server's page",
    "vision_api": "pictures",
}
TESTS_OUT = {
    "test_cors_proxy_only_forwards_explicit_proxy_headers": "the proxy of llama-server's page",
    "test_local_media_file": "pictures",
    "multimodal": "pictures",
    "media_file": "pictures",
    "vision": "pictures",
    "_mm_": "pictures",
    "image": "pictures",
}
"""By a part of their names. Tests that download large models (marked slow by llama.cpp) are out too."""
NEEDED = ("aiohttp", "filelock", "gguf", "openai", "pytest", "requests")
"""What the tests import, under the names pip knows too."""

EPILOG = """
examples:
  tests/upstream/run                                   every file, paceline only
  tests/upstream/run --control build/bin/llama-server  both, and the table of docs/compatibility.md
  tests/upstream/run basic completion                  two files
  tests/upstream/run completion -k logit_bias -s       some tests of a file, with the servers' output
  tests/upstream/run --keep DIR ...                    leaves tests, models and logs in DIR

The tests come out of the sdist of the installed llama-cpp-python, which pip downloads once, or from --source.
The models are made by this program (tests/upstream/stories.py, readers.py): nothing else is downloaded. What
paceline leaves out stays out: router mode, MCP, built-in tools, the page's proxy, pictures; so do llama.cpp's
slow tests. "Own failures" are tests that llama-server passes and paceline fails.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What the tests are run with."""

    tests: Path
    models: Path
    port: int
    timeout: int
    files: list[str]
    pytest: list[str]
    capture: bool


def parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    found = argparse.ArgumentParser("tests/upstream/run", description=__doc__, epilog=EPILOG, formatter_class=raw)
    add = found.add_argument
    add("files", nargs="*", help="basic, test_basic.py or unit/test_basic.py::test_name (default: all files)")
    add("-k", metavar="EXPRESSION", help="only tests whose names match, as in pytest")
    add("-x", action="store_true", help="stop at the first failure")
    add("-s", action="store_true", help="show what tests and servers write")
    add("--source", type=Path, metavar="PATH", help="an unpacked llama.cpp, or an sdist of llama-cpp-python")
    add("--control", type=Path, metavar="PATH", help="a llama-server to run the same tests against")
    add("--control-only", action="store_true", help="leave paceline out")
    add("--control-results", type=Path, metavar="FILE", help="compare with what --json wrote with a --control")
    add("--checkout", type=Path, metavar="PATH", help="the paceline to test (default: PYTHONPATH's, or this one)")
    add("--port", type=int, default=8080, help="where the servers listen (default: 8080)")
    add("--timeout", type=int, default=120, help="seconds for one test (default: 120)")
    add("--keep", type=Path, metavar="DIR", help="work in this folder and leave it (default: a temporary one)")
    add("--json", type=Path, metavar="FILE", help="all results")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        print(f"The tests need packages that are not here: pip install {' '.join(missing)}", file=sys.stderr)
        return 2
    folder = (given.keep or Path(tempfile.mkdtemp(prefix="upstream-"))).resolve()
    try:
        return compare(given, folder)
    except SourceMissing as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


def compare(given: argparse.Namespace, folder: Path) -> int:
    shutil.rmtree(folder / "llama.cpp", ignore_errors=True)
    tests = lay_out(folder, given.source, cache_folder())
    extra = [*(["-k", given.k] if given.k else []), *(["-x"] if given.x else [])]
    files = chosen(given.files, tests)
    options = Options(tests, folder / "models", given.port, given.timeout, files, extra, not given.s)
    control = None
    if given.control:
        control = run(options, folder / "control.jsonl", [str(given.control.resolve())], given.checkout)
    elif given.control_results:
        read = json.loads(given.control_results.read_text())["control"]
        (folder / "control.jsonl").write_text("".join(json.dumps(line) + "\n" for line in read))
        control = read_results(folder / "control.jsonl")
    ours: Results = {}
    if not given.control_only:
        command = [sys.executable, "-m", "paceline", "serve"]
        ours = run(options, folder / "paceline.jsonl", command, given.checkout)
    found = rows(ours or control or {}, control)
    print(table(found), failures(found, ours) if ours else "", sep="\n\n")
    if given.json:
        given.json.write_text(as_json(found, ours, control))
    return 1 if any(line.own for line in found) or not found else 0


def cache_folder() -> Path:
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"
    return Path(os.environ.get("PACELINE_CACHE") or user) / "upstream"


def chosen(files: list[str], tests: Path) -> list[str]:
    """Paths as pytest wants them; all files but those that stay out when none is named."""
    if not files:
        names = sorted(file.stem.removeprefix("test_") for file in (tests / "unit").glob("test_*.py"))
        return [f"unit/test_{name}.py" for name in names if name not in FILES_OUT]
    return [path(file) for file in files]


def path(file: str) -> str:
    """`basic`, `test_basic.py::name` or `unit/test_basic.py`: all mean `unit/test_basic.py`."""
    head, *names = file.split("::")
    stem = head.removeprefix("unit/").removesuffix(".py").removeprefix("test_")
    return "::".join([f"unit/test_{stem}.py", *names])


def run(options: Options, results: Path, command: list[str], checkout: Path | None) -> Results:
    """The tests against one server; what pytest prints goes to a log beside the results."""
    results.unlink(missing_ok=True)
    out = " or ".join(TESTS_OUT)
    expression = options.pytest[options.pytest.index("-k") + 1] if "-k" in options.pytest else ""
    wanted = f"({expression}) and not ({out})" if expression else f"not ({out})"
    pytest = [sys.executable, "-m", "pytest", "-p", "upstream_plugin", "-m", "not slow", "-W", "ignore", "-q"]
    pytest += ["--tb=short", *options.pytest, "-k", wanted, *options.files]
    if not options.capture:
        subprocess.run([*pytest, "-s"], cwd=options.tests, env=environment(options, results, command, checkout))
    else:
        with results.with_suffix(".log").open("w") as log:
            where = environment(options, results, command, checkout)
            subprocess.run(pytest, cwd=options.tests, env=where, stdout=log, stderr=subprocess.STDOUT)
    return read_results(results)


def environment(options: Options, results: Path, command: list[str], checkout: Path | None) -> dict[str, str]:
    ours = os.environ.get("PYTHONPATH", "") if checkout is None else str(checkout.resolve())
    files = {name: str(options.models / file) for name, file in FILES.items()}
    found = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(part for part in (ours, str(ROOT)) if part),
        "LLAMA_SERVER_BIN_PATH": str(options.models.parent / "llama-server"),
        "LLAMA_CACHE": str(options.models),
        "PORT": str(options.port),
        "OMP_WAIT_POLICY": "passive",
        "UPSTREAM_COMMAND": json.dumps(command),
        "UPSTREAM_MODELS": json.dumps(files),
        "UPSTREAM_RESULTS": str(results),
        "UPSTREAM_TIMEOUT": str(options.timeout),
    }
    if command[0] == sys.executable:
        # llama-server without a model is a router; paceline would load its demo model, which takes longer.
        found["UPSTREAM_DEFAULT_MODEL"] = files["ggml-org/test-model-stories260K"]
    return found
