"""Saved slots: whatever a disk does to a file, it is refused and the slot is as it was, or it is restored whole."""

from __future__ import annotations

import errno
import os
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline import Engine
from paceline.config import ContextParams, ModelParams, Settings
from paceline.errors import ContextFull, RequestError
from paceline.llama.saved import HEAD, TAIL
from tests.tiny import write_model

pytestmark = pytest.mark.model

PROMPT = "The cat and the dog and the cat and the dog"
OTHER = "Another text that has nothing to do with it"
N_DAMAGES = 200


def text(engine: Engine, prompt: str, slot: int = 0) -> tuple[str, int]:
    """An answer, and how much of the prompt was remembered."""
    generation = engine.generate(prompt, max_tokens=8, temperature=0, slot=slot)
    answer = generation.text()
    assert generation.finish
    return answer, generation.finish.timings.cache_n


@pytest.fixture
def engine(models: Path, target: str) -> Iterator[Engine]:
    draft = str(models / "draft.gguf")
    with Engine(target, n_ctx=256, n_slots=2, n_threads=1, draft=draft, spec_types=("draft-simple",)) as engine:
        yield engine


def damages(data: bytes) -> Iterator[bytes]:
    """Bits flipped, ends cut off, bytes added, pieces zeroed or swapped, at random places and in every header field."""
    rng = random.Random(3)
    for i in range(N_DAMAGES):
        ends = (*range(HEAD.size + 12), *range(-TAIL.size, 0))
        at = ends[i] % len(data) if i < len(ends) else rng.randrange(len(data))
        kind = rng.choice(["flip", "flip", "cut", "extend", "remove"])
        if kind == "flip":
            yield data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        elif kind == "cut":
            yield data[:at]
        elif kind == "extend":
            yield data + rng.randbytes(rng.randrange(1, 100))
        else:
            yield data[:at] + data[at + rng.randrange(1, 100) :]


def test_damaged_files_are_refused_and_the_slots_are_as_they_were(engine: Engine, tmp_path: Path) -> None:
    saved, other = text(engine, PROMPT)[0], text(engine, OTHER, slot=1)[0]
    file = tmp_path / "slot.bin"
    engine.save_slot(0, str(file))
    good = file.read_bytes()
    now = text(engine, OTHER)[0]
    for damaged in damages(good):
        file.write_bytes(damaged)
        with pytest.raises(RequestError, match=r"slot\.bin"):
            engine.restore_slot(0, str(file))
    assert text(engine, OTHER) == (now, len(engine.tokenize(OTHER)) - 1)
    assert text(engine, OTHER, slot=1) == (other, len(engine.tokenize(OTHER)) - 1)
    file.write_bytes(good)
    engine.restore_slot(1, str(file))
    assert text(engine, PROMPT, slot=1) == (saved, len(engine.tokenize(PROMPT)) - 1)


def test_a_drafts_file_that_is_damaged_or_gone_only_costs_time(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = text(engine, PROMPT)
    file = tmp_path / "slot.bin"
    engine.save_slot(0, str(file))
    beside = tmp_path / "slot.bin.draft-simple"
    beside.write_bytes(beside.read_bytes()[:-1])
    engine.restore_slot(0, str(file))
    assert "draft-simple computed is not restored" in caplog.text
    assert text(engine, PROMPT) == (first, len(engine.tokenize(PROMPT)) - 1)
    beside.unlink()
    engine.restore_slot(1, str(file))
    assert text(engine, PROMPT, slot=1)[0] == first


def test_a_full_disk_leaves_the_old_file_whole(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = text(engine, PROMPT)
    file = tmp_path / "slot.bin"
    engine.save_slot(0, str(file))
    before = file.read_bytes()
    text(engine, OTHER)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("paceline.files.os.fsync", full)
        with pytest.raises(RequestError, match="No space left"):
            engine.save_slot(0, str(file))
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slot.bin", "slot.bin.draft-simple"]
    engine.restore_slot(0, str(file))
    assert text(engine, PROMPT)[0] == first


def test_a_file_belongs_to_its_model_wherever_that_lies(target: str, tmp_path: Path) -> None:
    file, copy = str(tmp_path / "slot.bin"), tmp_path / "copy.gguf"
    long = str(tmp_path / "long.bin")
    with Engine(target, n_ctx=512, n_threads=1) as engine:
        text(engine, 8 * PROMPT)
        engine.save_slot(0, long)
        first, _ = text(engine, PROMPT)
        engine.save_slot(0, file)
    shutil.copy(target, copy)
    with Engine(str(copy), n_ctx=256, n_threads=1) as engine:
        engine.restore_slot(0, file)
        assert text(engine, PROMPT) == (first, len(engine.tokenize(PROMPT)) - 1)
        with pytest.raises(ContextFull, match="room for 256"):
            engine.restore_slot(0, long)
        assert text(engine, PROMPT) == (first, len(engine.tokenize(PROMPT)) - 1)
    tuned = write_model(tmp_path / "tuned.gguf", seed=9, scale=4.0)
    for path, kind in ((tuned, "f16"), (target, "q8_0")):
        context = ContextParams(n_ctx=256, n_threads=1, cache_type_k=kind)
        settings = Settings(model=ModelParams(path=path), context=context)
        refused = pytest.raises(RequestError, match="another model, other cache types")
        with Engine.from_settings(settings) as engine, refused:
            engine.restore_slot(0, file)


def test_an_empty_slot_does_not_take_the_place_of_a_good_file(target: str, tmp_path: Path) -> None:
    """After another engine was started, say: what the slot held is gone, what was saved is not."""
    file = tmp_path / "slot.bin"
    with Engine(target, n_ctx=256, n_threads=1) as engine:
        text(engine, PROMPT)
        engine.save_slot(0, str(file))
        before = file.read_bytes()
        engine.erase_slot(0)
        with pytest.raises(RequestError, match="slot 0 is empty"):
            engine.save_slot(0, str(file))
        assert file.read_bytes() == before


def test_the_layout_is_llama_servers(engine: Engine, tmp_path: Path) -> None:
    """Its own files have a plain list of tokens where they are old; without our checksum nothing is believed."""
    first, _ = text(engine, PROMPT)
    file = tmp_path / "slot.bin"
    n_saved, n_bytes = engine.save_slot(0, str(file))
    data = file.read_bytes()
    assert len(data) == n_bytes
    magic, version, n_words, marker, packed_version, n_tokens = struct.unpack_from("<IIIiII", data)
    assert (magic, version, marker, packed_version) == (0x67677371, 3, -1, 1)
    assert (n_words, n_tokens) == (n_saved + 4, n_saved)
    tokens = data[24 : 24 + 4 * n_tokens]
    file.write_bytes(data[:8] + struct.pack("<I", n_tokens) + tokens + data[12 + 4 * n_words :])
    assert engine.restore_slot(1, str(file))[0] == n_saved
    assert text(engine, PROMPT, slot=1) == (first, len(engine.tokenize(PROMPT)) - 1)
    file.write_bytes(data[: -TAIL.size])
    with pytest.raises(RequestError, match="not a slot that this server saved"):
        engine.restore_slot(1, str(file))
