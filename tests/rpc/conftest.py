"""Everything here speaks to real workers on loopback; it runs where libllama was built with RPC."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.workers import Worker, lending
from paceline.llama import rpc
from tests.tiny import write_model


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not rpc.available():
        reason = f"libllama has no RPC: {rpc.BUILD}"
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def two() -> Iterator[list[Worker]]:
    with lending(2, ["-t", "1", "--exact"]) as workers:
        yield workers


@pytest.fixture(scope="session")
def deep(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with layers to share."""
    return write_model(tmp_path_factory.mktemp("deep") / "deep.gguf", n_layer=6, n_ctx=2048)


@pytest.fixture(scope="session")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("draft") / "draft.gguf", n_layer=1, n_ctx=2048)
