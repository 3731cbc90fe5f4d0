"""Damaged model files: refused before libllama sees them, and where only libllama can tell, its death is one line."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from paceline import Engine
from paceline.cli.main import main
from paceline.errors import EngineDied, ModelError
from paceline.process.gguf_check import check_gguf
from tests.recurrent_files import write_mamba
from tests.tiny import write_bert, write_encoder

pytestmark = pytest.mark.model


@pytest.fixture
def good(target: str) -> bytes:
    return Path(target).read_bytes()


@pytest.fixture
def twice(good: bytes, tmp_path: Path) -> str:
    """A vocabulary that has a token twice, on which libllama asserts."""
    path = tmp_path / "twice.gguf"
    size = struct.pack("<Q", 2)
    path.write_bytes(good.replace(size + b"\xc3\x98", size + b"\xc3\x97", 1))
    return str(path)


def test_whole_files_pass(models: Path, demo: str, tmp_path: Path) -> None:
    made = [
        write_bert(tmp_path / "bert.gguf"),
        write_encoder(tmp_path / "t5.gguf"),
        write_mamba(tmp_path / "mamba.gguf"),
    ]
    for path in [*models.iterdir(), demo, *made]:
        check_gguf(str(path))


def test_a_file_that_was_not_copied_whole_is_refused(good: bytes, tmp_path: Path) -> None:
    rng, path = random.Random(1), tmp_path / "part.gguf"
    for n in [0, 3, 4, 7, 23, 24, 25, len(good) - 1, *(rng.randrange(len(good)) for _ in range(200))]:
        path.write_bytes(good[:n])
        with pytest.raises(ModelError, match=r"part\.gguf"):
            check_gguf(str(path))


@pytest.mark.parametrize(
    ("before", "value", "said"),
    [
        (b"GGUF", struct.pack("<I", 77), "version 77"),
        (b"GGUF" + struct.pack("<I", 3), struct.pack("<Q", 2**60), "1152921504606846976 tensors"),
        (b"llama.block_count" + struct.pack("<I", 4), struct.pack("<I", 2**31), "block_count is"),
        (b"llama.attention.head_count" + struct.pack("<I", 4), struct.pack("<I", 0), r"attention.head_count is \(0,\)"),
        (b"tokenizer.ggml.tokens" + struct.pack("<II", 9, 8), struct.pack("<Q", 2**62), "in the middle of a list"),
        (b"tokenizer.ggml.token_type" + struct.pack("<I", 9), struct.pack("<I", 9), "unknown type 9"),
        (b"token_embd.weight", struct.pack("<I", 2**30), "has 1073741824 dimensions"),
        (b"token_embd.weight" + struct.pack("<I", 2), struct.pack("<Q", 2**39), "tensors end at"),
        (b"token_embd.weight" + struct.pack("<I", 2), struct.pack("<Q", 0), "has the shape"),
    ],
)
def test_absurd_numbers_are_refused(good: bytes, tmp_path: Path, before: bytes, value: bytes, said: str) -> None:
    at = good.index(before) + len(before)
    path = tmp_path / "absurd.gguf"
    path.write_bytes(good[:at] + value + good[at + len(value) :])
    with pytest.raises(ModelError, match=f"damaged.*{said}"):
        check_gguf(str(path))


def test_run_refuses_a_damaged_draft_in_one_line(
    target: str, good: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "draft.gguf"
    path.write_bytes(good[:-1000])
    assert main(["run", "-m", target, "-md", str(path), "-p", "x", "-n", "1", "-c", "256", "-t", "1"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert [line for line in said if "error" in line] == said[-1:]
    assert "was it copied whole?" in said[-1]


def test_a_file_that_kills_libllama_is_one_line(target: str, twice: str) -> None:
    with pytest.raises(EngineDied, match=r"twice\.gguf \(a damaged file\?\): killed by SIGABRT: .*GGML_ASSERT"):
        Engine(twice, n_ctx=256, n_threads=1, process=True)
    with pytest.raises(EngineDied, match=r"twice\.gguf \(a damaged file"):
        Engine(target, draft=twice, n_ctx=256, n_threads=1, process=True)
    command = [sys.executable, "-m", "paceline", "serve", "-m", twice, "--port", "0", "-c", "256", "-t", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    assert len(said) == 1
    assert said[0].startswith("paceline: error: the engine's process ended while it was opening")
