"""A hub, a cache of its own for each test, and a tiny model to fetch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from huggingface_hub import constants

from paceline.hub.repository import Hub
from paceline.hub.transfer import Advance
from tests.hub.server import HubServer

REPO = "user/tiny-GGUF"


class Shown:
    """What a display was told: of each file its name, its size, and the numbers of bytes."""

    def __init__(self) -> None:
        self.files: list[tuple[str, int | None, list[int]]] = []

    @contextmanager
    def __call__(self, name: str, size: int | None) -> Iterator[Advance]:
        numbers: list[int] = []
        self.files.append((name, size, numbers))
        yield numbers.append

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.files]


@pytest.fixture(autouse=True)
def nobody_is_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user's own programs know stays out of the tests."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(tmp_path / "harnesses"))
    monkeypatch.setattr("paceline.hub.transfer.PAUSE", 0.01)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, target: str) -> Iterator[HubServer]:
    """It has one repository, with two quants and what stands beside a model."""
    with HubServer() as server:
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        model = Path(target).read_bytes()
        files = {"README.md": b"# tiny", "tiny-Q8_0.gguf": model, "tiny-Q4_K_M.gguf": model + b"\0" * 4096}
        server.add(REPO, {**files, "mmproj-tiny-Q8_0.gguf": b"GGUF"})
        yield server


@pytest.fixture
def hub(server: HubServer) -> Hub:
    return Hub()


@pytest.fixture
def shown() -> Shown:
    return Shown()
