"""Which files of weights a worker may hand out again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from paceline.cli import kept_weights
from paceline.cli.kept_weights import LIST, SETTLED, KeptWeights
from paceline.errors import ConfigError

OLD, NEW = "0123456789abcdef", "fedcba9876543210"


def write(folder: Path, name: str, content: bytes, age: float = 2 * SETTLED) -> None:
    (folder / name).write_bytes(content)
    os.utime(folder / name, (time.time() - age,) * 2)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()} - {LIST}


def test_what_was_left_alone_is_there_at_the_next_start(tmp_path: Path) -> None:
    kept = KeptWeights(tmp_path / "rpc")
    write(kept.folder, OLD, b"weights")
    assert kept.settle()
    assert KeptWeights(kept.folder).sweep() == 0
    assert names(kept.folder) == {OLD}


def test_what_was_being_written_when_it_ended_is_gone(tmp_path: Path) -> None:
    kept = KeptWeights(tmp_path)
    write(tmp_path, OLD, b"weights")
    write(tmp_path, NEW, b"wei", age=0)
    assert kept.settle()
    assert KeptWeights(tmp_path).sweep() == 1
    assert names(tmp_path) == {OLD}


def test_what_was_cut_later_is_gone(tmp_path: Path) -> None:
    kept = KeptWeights(tmp_path)
    write(tmp_path, OLD, b"weights")
    assert kept.settle()
    write(tmp_path, OLD, b"wei")
    assert KeptWeights(tmp_path).sweep() == 1
    assert names(tmp_path) == set()


def test_a_full_disk_vouches_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptWeights(tmp_path)
    write(tmp_path, OLD, b"weights")
    monkeypatch.setattr(kept_weights, "SPARE", 2**62)
    assert not kept.settle()
    assert KeptWeights(tmp_path).sweep() == 1


def test_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / LIST).write_text("broken")
    assert KeptWeights(tmp_path).sweep() == 0
    assert names(tmp_path) == {"notes.txt"}


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="weights cannot be kept in"):
        KeptWeights(tmp_path / "file" / "rpc")
