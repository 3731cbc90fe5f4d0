"""Checks and defaults that depend on more than one value."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.config import ContextParams, EngineParams, ModelParams, Settings, part
from paceline.config.drafters import DrafterSettings, DraftModelParams
from paceline.config.granted import usable_cores, usable_memory
from paceline.errors import ConfigError

N_CORES = len(os.sched_getaffinity(0))


def settings(n_slots: int, draft: DraftModelParams | None = None, **context: int) -> Settings:
    drafters = DrafterSettings(draft_model=draft or DraftModelParams())
    return Settings(
        model=ModelParams(path="m.gguf"),
        context=ContextParams(**context),  # type: ignore[arg-type]
        engine=EngineParams(n_slots=n_slots, drafters=drafters),
    )


def test_every_slot_needs_room_in_a_batch() -> None:
    settings(8, n_batch=8)
    with pytest.raises(ConfigError, match=r"9 slots.*raise -b \(8\) or lower -np"):
        settings(9, n_batch=8)
    with pytest.raises(ConfigError, match="33 slots do not fit 32 tokens"):
        settings(33, n_ctx=32)
    with pytest.raises(ConfigError, match="33 slots need a draft batch"):
        settings(33, DraftModelParams(n_batch=32))


@pytest.mark.parametrize("n_ctx", [1, 31])
def test_a_context_that_holds_nothing_is_refused(n_ctx: int) -> None:
    with pytest.raises(ConfigError, match=f"a context of {n_ctx} tokens"):
        ContextParams(n_ctx=n_ctx)


@pytest.mark.parametrize(("quota", "n"), [("max", N_CORES), ("100000", 1), ("50000", 1), ("100000000", N_CORES)])
@pytest.mark.parametrize("where", ["", "a", "a/b"])
def test_threads_follow_the_control_group(quota: str, n: int, where: str, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / where / "cpu.max").write_text(f"{quota} 100000\n")
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    assert usable_cores(tmp_path, own) == n


def test_threads_follow_the_affinity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7})
    assert usable_cores(tmp_path, tmp_path / "none") == 3


def test_the_memory_that_may_be_used(tmp_path: Path) -> None:
    meminfo, own = tmp_path / "meminfo", tmp_path / "own"
    meminfo.write_text("MemTotal:       8000000 kB\nMemFree: 1 kB\n")
    assert usable_memory(meminfo, tmp_path, own) == 8_192_000_000
    own.write_text("0::/a/b\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "memory.max").write_text("1000000\n")
    (tmp_path / "a" / "b" / "memory.max").write_text("max\n")
    assert usable_memory(meminfo, tmp_path, own) == 1_000_000
    assert usable_memory(tmp_path / "none", tmp_path, own) is None


def test_a_context_is_divided_into_whole_blocks() -> None:
    assert [part(512, 2), part(1000, 3), part(100, 1), part(0, 4)] == [256, 512, 256, 0]
    assert ContextParams(n_ctx=1000, n_seqs=3).total == 1536
    assert ContextParams(n_ctx=1000, n_seqs=3, kv_unified=True).total == 1000
    assert ContextParams(n_ctx_slot=512, n_seqs=3, kv_unified=True).total == 1536
