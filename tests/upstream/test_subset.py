"""A fixed part of llama.cpp's own server tests; `tests/upstream/run` runs the whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.hub.commands import held_port
from tests.upstream.main import Options, cache_folder, run
from tests.upstream.sources import SourceMissing, lay_out
from tests.upstream.table import Results

pytestmark = pytest.mark.model

SUBSET = Path(__file__).with_name("subset.txt").read_text().splitlines()
CACHE = cache_folder()
"""The user's own: the sdist is not downloaded for each run. (Tests have another from their first on.)"""
SECONDS = 120


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("upstream")
    try:
        tests = lay_out(folder, None, CACHE)
    except SourceMissing as error:
        pytest.skip(str(error))
    with held_port() as port:
        options = Options(tests, folder / "models", port, SECONDS, SUBSET, [], capture=True)
        return run(options, folder / "paceline.jsonl", [sys.executable, "-m", "paceline", "serve"], None)


@pytest.mark.parametrize("test", SUBSET)
def test_it_passes_as_with_llama_server(results: Results, test: str) -> None:
    assert test in results, "it was not run: is it called otherwise in this version of llama.cpp?"
    assert results[test].outcome == "passed", results[test].why
