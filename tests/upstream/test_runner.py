"""What runs llama.cpp's tests: command lines, counted tokens, the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline import Engine
from tests.upstream.main import path
from tests.upstream.models import write_models
from tests.upstream.shim import translated
from tests.upstream.table import Result, Results, failures, read_results, rows, table

FILES = {"ggml-org/models/tiny.gguf": "/models/tiny.gguf", "ggml-org/one": "/models/one.gguf"}


def test_names_of_repositories_become_files() -> None:
    given = ["--port", "1", "--offline", "--hf-repo", "ggml-org/models", "--hf-file", "tiny.gguf", "--no-slots"]
    expected = ["-m", "/models/tiny.gguf", "--port", "1", "--no-slots", "--threads", "1"]
    assert translated(given, FILES, default=None) == expected
    assert translated(["--hf-repo", "ggml-org/one", "--threads", "2"], FILES, default=None)[:2] == [
        "-m",
        "/models/one.gguf",
    ]


def test_a_server_without_a_model() -> None:
    assert "-m" not in translated(["--port", "1"], FILES, default=None)
    assert translated(["--port", "1"], FILES, default="/models/one.gguf")[:2] == ["-m", "/models/one.gguf"]
    with pytest.raises(SystemExit, match="no local file stands for somebody/else"):
        translated(["--hf-repo", "somebody/else"], FILES, default=None)


def test_ways_to_name_a_file() -> None:
    for name in ("basic", "test_basic.py", "unit/test_basic.py"):
        assert path(name) == "unit/test_basic.py"
    assert path("basic::test_no_ui") == "unit/test_basic.py::test_no_ui"


def results(**outcomes: str) -> Results:
    return {name: Result(f"unit/test_a.py::{name}", outcome, "why", 0.1) for name, outcome in outcomes.items()}


def test_failures_of_our_own_are_those_the_control_passes(tmp_path: Path) -> None:
    ours = results(fine="passed", own="failed", both="failed", out="skipped")
    control = results(fine="passed", own="passed", both="failed", out="skipped")
    ours, control = ({r.test: r for r in found.values()} for found in (ours, control))
    found = rows(ours, control)
    assert table(found).splitlines()[-1] == "| all | 3 | 2 | 1 | 1 |"
    assert failures(found, ours).splitlines()[1:] == ["- `a::own`: why"]
    assert rows(ours, None)[0].own == ["unit/test_a.py::own", "unit/test_a.py::both"]


def test_a_test_that_fails_after_it_passed_has_failed(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    lines = [{"test": "a", "outcome": outcome, "why": "", "seconds": 0.1} for outcome in ("passed", "failed")]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_results(file)["a"].outcome == "failed"


@pytest.mark.model
def test_prompts_have_the_tokens_that_the_tests_count(tmp_path: Path) -> None:
    write_models(tmp_path)
    with Engine(str(tmp_path / "stories260K.gguf"), n_ctx=256, n_threads=1) as engine:
        assert len(engine.tokenize("I believe the meaning of life is")) == 18
        assert len(engine.tokenize("This is not a chat template, it is")) == 23
        story = engine.generate("Once upon a time", max_tokens=16, temperature=0).text()
        assert story.startswith(" blue But she couldn't Suddenly Whillicter")
