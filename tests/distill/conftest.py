"""Two cores and many processes: torch's threads would wait for each other."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
