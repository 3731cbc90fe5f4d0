"""A file is there whole or not at all, whoever else writes it."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from paceline.files import write_whole


def test_writers_of_one_file_do_not_hurt_each_other(tmp_path: Path) -> None:
    """As two servers on one cache folder."""
    path = tmp_path / "costs" / "curve.json"
    texts = [json.dumps({"who": who, "long": [who] * (1000 + 100 * who)}).encode() for who in range(4)]
    write_whole(path, texts[0])
    stop = threading.Event()

    def write(data: bytes) -> None:
        while not stop.is_set():
            write_whole(path, data)

    threads = [threading.Thread(target=write, args=(data,)) for data in texts]
    for thread in threads:
        thread.start()
    seen = {path.read_bytes() for _ in range(300)}
    stop.set()
    for thread in threads:
        thread.join()
    assert seen <= set(texts)
    assert [file.name for file in path.parent.iterdir()] == ["curve.json"]


def test_a_disk_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
