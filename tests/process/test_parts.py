"""Putting an engine together: what is measured at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.process import parts
from paceline.process.parts import Parts
from tests.server.live import settings

pytestmark = pytest.mark.model


def test_without_a_warm_up_only_what_is_new_is_measured(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    measured: list[float] = []
    warm_up: Any = getattr(parts, "warm_up")  # noqa: B009  another room's, borrowed

    def counted(context: Any, curve: Any, seconds: float) -> None:
        measured.append(seconds)
        warm_up(context, curve, 0.1)
        curve.spread = 0.01  # as where the machine is calm: a doubtful curve is not kept

    monkeypatch.setattr(parts, "warm_up", counted)
    for warmup, n_measured in ((False, 1), (False, 1), (True, 2)):
        Parts(settings(target, spec_types=("suffix",), warmup=warmup)).close()
        assert len(measured) == n_measured
