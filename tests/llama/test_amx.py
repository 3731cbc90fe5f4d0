"""AMX kernels that do not work are found out before they are used."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paceline.config import ModelParams
from paceline.llama import amx
from paceline.llama.loading import ModelStruct


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that nobody has told anything, on a machine with AMX."""
    monkeypatch.setenv(amx.TELLS, "")
    monkeypatch.delenv(amx.TELLS)
    monkeypatch.setattr(amx, "features", lambda: {"CPU": {"AMX_INT8": "1"}})
    amx.is_broken.cache_clear()
    yield
    amx.is_broken.cache_clear()


def usual_memory() -> int:
    kind: int = amx.call("ggml_backend_dev_buffer_type", amx.processor())
    return kind


def test_the_product_is_right_where_nothing_is_broken() -> None:
    assert amx.product_is_right(usual_memory())


def test_a_wrong_product_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = amx.product

    def wrong(kind: int, blocks: Any, tokens: Any) -> Any:
        found = right(kind, blocks, tokens)
        found[-1, -1] += 1
        return found

    monkeypatch.setattr(amx, "product", wrong)
    assert not amx.product_is_right(usual_memory())


@pytest.mark.parametrize("end", ["import os; os.kill(os.getpid(), 11)", "raise SystemExit(1)"])
def test_a_trial_that_dies_or_says_no_keeps_weights_elsewhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    monkeypatch.setattr(amx, "TRIAL", (sys.executable, "-c", end))
    with caplog.at_level(logging.WARNING, "paceline"):
        assert not ModelStruct(ModelParams(path="model.gguf")).raw.use_extra_bufts
        assert amx.is_broken()
    assert caplog.text.count("AMX") == 1
    assert os.environ[amx.TELLS] == amx.BROKEN


def test_a_trial_that_goes_well_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "TRIAL", (sys.executable, "-c", ""))
    assert ModelStruct(ModelParams(path="model.gguf")).raw.use_extra_bufts
    assert not ModelStruct(ModelParams(path="model.gguf", use_extra_bufts=False)).raw.use_extra_bufts


def test_who_is_told_does_not_try(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(amx, "TRIAL", ("no-such-program",))
    monkeypatch.setenv(amx.TELLS, amx.WORKS)
    assert not amx.is_broken()
    amx.is_broken.cache_clear()
    monkeypatch.setenv(amx.TELLS, amx.BROKEN)
    assert amx.is_broken()
    assert not caplog.text


def test_nothing_is_tried_without_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "features", lambda: {"CPU": {"AVX2": "1"}})
    monkeypatch.setattr(amx, "TRIAL", ("no-such-program",))
    assert not amx.is_broken()
    assert amx.TELLS not in os.environ


def test_weights_are_read_as_ggml_writes_them() -> None:
    """A block of Q8_0 is a scale and 32 numbers."""
    n_bytes = amx.call("ggml_row_size", ctypes.c_int(amx.Q8_0), ctypes.c_int64(32), result=ctypes.c_size_t)
    assert n_bytes == np.zeros(1, amx.BLOCK).nbytes
