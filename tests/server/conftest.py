"""One server of tiny random weights for most tests, one of the demo model for those that need words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.live import Live, live, settings


@pytest.fixture(scope="session")
def tiny(target: str) -> Iterator[Live]:
    with live(settings(target, n_ctx=1024, spec_types=("ngram-simple",))) as server:
        yield server


@pytest.fixture(scope="session")
def talking(demo: str) -> Iterator[Live]:
    """Two slots of the demo model, drafting from its own text."""
    with live(settings(demo, n_ctx=4096, n_threads=2, spec_types=("ngram-simple",), exact=True)) as server:
        yield server
