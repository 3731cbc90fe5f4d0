"""Models the tests share, each made once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from paceline.errors import ModelError
from paceline.llama import amx
from paceline.models import demo_model
from tests.tiny import write_model

# How long an example takes, or to make one, says how busy the machine is and nothing else.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> None:
    """Also by the programs that tests start: a shell's background job ignores it, and so would they."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's cache folder is left alone, and their configuration too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("PACELINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def warned_of_amx() -> None:
    """Once, and not in the middle of a test."""
    amx.is_broken()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tiny random models: target, draft."""
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "target.gguf", seed=1, scale=4.0)
    write_model(folder / "draft.gguf", seed=2, n_layer=1, n_embd=32, n_ctx=128, scale=4.0)
    return folder


@pytest.fixture(scope="session")
def target(models: Path) -> str:
    return str(models / "target.gguf")


@pytest.fixture(scope="session")
def demo() -> str:
    """The demo model; tests that want it are skipped where it is not installed."""
    try:
        return demo_model()
    except ModelError as error:
        pytest.skip(str(error))
