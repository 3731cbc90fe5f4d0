"""AMX kernels that do not work are found out before they are used."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

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
    amx.is_in_the_way.cache_clear()
    yield
    amx.is_in_the_way.cache_clear()


def apart(code: str) -> int:
    """What becomes of a process that does this: ggml asks the system for the unit once, and keeps what it got."""
    prologue = "import ctypes, os; from paceline.llama import amx\n"
    return subprocess.run([sys.executable, "-P", "-c", prologue + code], check=False, timeout=60).returncode


USUAL = 'amx.call("ggml_backend_dev_buffer_type", amx.processor())'


def test_the_product_is_right_where_nothing_is_broken() -> None:
    assert apart(f"assert amx.product_is_right({USUAL})") == 0


def test_a_wrong_product_is_seen() -> None:
    wrong = "right = amx.product; amx.product = lambda *given: right(*given) + 1\n"
    assert apart(f"{wrong}assert not amx.product_is_right({USUAL})") == 0


@pytest.mark.parametrize("end", ["import os; os.kill(os.getpid(), 11)", "raise SystemExit(1)"])
@pytest.mark.parametrize("kept_away", [True, False])
def test_a_trial_that_dies_or_says_no_keeps_weights_elsewhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: str, kept_away: bool
) -> None:
    monkeypatch.setattr(amx, "TRIAL", (sys.executable, "-c", end))
    monkeypatch.setattr(amx, "is_kept_away", lambda: kept_away)
    with caplog.at_level(logging.WARNING, "paceline"):
        assert ModelStruct(ModelParams(path="model.gguf")).raw.use_extra_bufts == kept_away
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


@pytest.mark.skipif(sys.platform != "linux", reason="how Linux refuses AMX")
def test_a_thread_has_its_signal_stack_back() -> None:
    code = """
def now():
    found = amx.SignalStack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(found))
    return found.memory, found.flags
before = now()
with amx.small_signal_stack():
    assert now() != before
assert now() == before
"""
    assert apart(code) == 0


def test_lines_on_stderr_are_heard_again_after_the_silence(capfd: pytest.CaptureFixture[str]) -> None:
    with amx.silence():
        os.write(2, b"AMX is not ready to be used!")
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"


def test_ggml_offers_no_amx_once_it_was_refused() -> None:
    """Where there is no AMX nothing is offered anyway."""
    assert apart("assert amx.is_kept_away() and amx.memory_kind() is None") == 0
