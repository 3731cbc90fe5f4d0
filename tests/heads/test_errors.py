"""Heads that do not fit: one line that says what, before anything is written; a server's clients notice nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from paceline.cli.main import main
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.errors import PacelineError
from paceline.process.parts import Parts
from tests.heads.heads import write_dflash, write_dspark, write_eagle3
from tests.heads.targets import write_gemma4, write_gemma4_assistant, write_qwen2, write_step35
from tests.server.live import Live, live, settings
from tests.tiny import write_model

pytestmark = pytest.mark.model

Writer = Callable[[Path], str]
SMALL = ContextParams(n_ctx=256, n_threads=1)
ANY = ("draft-simple",)
"""What -md alone asks for: whatever the file is."""


def write_llama(path: Path) -> str:
    return write_model(path, seed=1, n_layer=4, scale=4.0)


def write_half(path: Path) -> str:
    write_eagle3(path)
    path.write_bytes(path.read_bytes()[:200_000])
    return str(path)


def write_without(path: Path, name: str) -> str:
    """An EAGLE-3 head that lacks a tensor: its name is another one's."""
    write_eagle3(path)
    path.write_bytes(path.read_bytes().replace(name.encode(), name[::-1].encode(), 1))
    return str(path)


def patched(path: Path, key: bytes, n: int, byte: int) -> str:
    """The same file with another n-th byte in this entry's value, on which libllama would assert."""
    data = bytearray(path.read_bytes())
    data[data.find(key) + len(key) + 4 + n] = byte
    path.write_bytes(data)
    return str(path)


def write_negative(path: Path) -> str:
    write_eagle3(path)
    return patched(path, b"attention.layer_norm_rms_epsilon", 3, 0xB7)


def write_too_many(path: Path) -> str:
    write_step35(path)
    return patched(path, b"nextn_predict_layers", 0, 200)


def write_one_number(path: Path) -> str:
    """An EAGLE-3 head that names a layer where a list of them belongs."""
    writer = gguf.GGUFWriter(str(path), "eagle3")
    writer.add_uint32("eagle3.target_layers", 3)
    writer.add_embedding_length(64)
    writer.add_tensor("fc.weight", np.zeros((64, 192), np.float32))
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    return str(path)


REFUSED: dict[str, tuple[Writer, Writer | None, tuple[str, ...], str]] = {
    "another model's words": (
        write_llama,
        lambda path: write_eagle3(path, n_extra=400),
        ANY,
        "head.gguf does not fit: target has 266 tokens and draft 666",
    ),
    "another model's width": (
        write_llama,
        lambda path: write_eagle3(path, target_width=96),
        ANY,
        "head.gguf reads rows of 96 numbers, the target's have 64",
    ),
    "a width that cannot borrow": (
        write_llama,
        lambda path: write_eagle3(path, width=128, own_embeddings=False),
        ANY,
        "lacks embeddings or output and has 128 numbers a row, not 64",
    ),
    "truncated": (write_llama, write_half, ANY, "damaged: .*head.gguf .*was it copied whole"),
    "without a tensor": (
        write_llama,
        lambda path: write_without(path, "blk.0.attn_q.weight"),
        ANY,
        "head.gguf cannot be loaded: .*'blk.0.attn_q.weight' not found",
    ),
    "a layer that is not there": (
        write_llama,
        lambda path: write_eagle3(path, layers=(1, 2, 9)),
        ANY,
        "head.gguf reads layer 9; the target has 4",
    ),
    "two layers": (
        write_llama,
        lambda path: write_eagle3(path, layers=(1, 2)),
        ANY,
        "names 2 layers of the target to read; draft-eagle3 needs 3",
    ),
    "an epsilon below nothing": (write_llama, write_negative, ANY, "damaged: .*layer_norm_rms_epsilon is -"),
    "no list of layers": (write_llama, write_one_number, ANY, "names 0 layers of the target to read"),
    "the last state of a llama": (
        write_llama,
        lambda path: write_eagle3(path, layers=(1, 2, 4)),
        ANY,
        "reads the target's last state, which libllama does not hand out for llama models",
    ),
    "words out of range": (
        write_llama,
        lambda path: write_eagle3(path, d2t=[1, 2, 3, 900]),
        ANY,
        "drafts tokens that the target does not know",
    ),
    "qwen2": (
        write_qwen2,
        write_eagle3,
        ANY,
        "head.gguf reads the target's layers, which libllama does not hand out for qwen2 models",
    ),
    "qwen2, dflash": (write_qwen2, write_dflash, ANY, "does not hand out for qwen2 models"),
    "no mask": (write_llama, lambda path: write_dflash(path, mask=None), ANY, "names no mask token"),
    "dflash of another width": (write_llama, lambda path: write_dflash(path, width=96), ANY, "rows of 96 numbers"),
    "a block of one": (write_llama, lambda path: write_dflash(path, block_size=1), ANY, "is for blocks of 1 tokens"),
    "a block of many": (
        write_llama,
        lambda path: write_dflash(path, block_size=2**26, markov=True),
        ANY,
        "is for blocks of 67108864 tokens; 2 to 64 can be drafted at once",
    ),
    "no blocks": (write_llama, None, ("draft-mtp",), "draft-mtp needs a model that has MTP blocks in its file"),
    "more heads than blocks": (write_too_many, None, ("draft-mtp",), "200 of its 3 blocks are heads"),
    "another model's blocks": (
        write_llama,
        lambda path: write_step35(path, trunk=False),
        ANY,
        "reads the target's last state, which libllama does not hand out for llama models",
    ),
    "blocks of another width": (
        write_step35,
        lambda path: write_step35(path, trunk=False, width=128),
        ANY,
        "rows of 128 numbers, the target's have 64",
    ),
    "an assistant of another width": (
        write_gemma4,
        lambda path: write_gemma4_assistant(path, target_width=96),
        ANY,
        "rows of 96 numbers, the target's have 64",
    ),
    "no head": (write_llama, None, ("draft-eagle3",), "draft-eagle3 needs a head: give one with -md FILE"),
    "a model for a head": (
        write_llama,
        write_llama,
        ("draft-eagle3",),
        "draft-eagle3 cannot use head.gguf, which is no head but a model of its own",
    ),
    "a head for another": (
        write_llama,
        write_dspark,
        ("draft-dflash",),
        "draft-dflash cannot use head.gguf, which is for draft-dspark",
    ),
}


def chosen(target: str, head: str | None, types: tuple[str, ...]) -> Settings:
    return Settings(
        model=ModelParams(path=target),
        draft=ModelParams(path=head) if head else None,
        context=SMALL,
        draft_context=SMALL,
        engine=EngineParams(spec_types=types, spec_policy="fixed"),
    )


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_said(case: str, tmp_path: Path) -> None:
    target, head, types, words = REFUSED[case]
    paths = target(tmp_path / "target.gguf"), head and head(tmp_path / "head.gguf")
    with pytest.raises(PacelineError, match=words) as caught:
        Parts(chosen(*paths, types)).close()
    assert "\n" not in str(caught.value)


# -- as people see it


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    write_llama(folder / "llama.gguf")
    write_qwen2(folder / "qwen2.gguf")
    write_eagle3(folder / "eagle3.gguf")
    write_half(folder / "half.gguf")
    return folder


ON_THE_LINE = [
    ("-m qwen2.gguf -md eagle3.gguf", "does not hand out for qwen2 models"),
    ("-m llama.gguf -md half.gguf", "was it copied whole?"),
    ("-m llama.gguf --spec-type draft-mtp", "needs a model that has MTP blocks"),
    ("-m llama.gguf --spec-type draft-eagle3 -md llama.gguf", "is no head but a model of its own"),
]


@pytest.mark.parametrize(("line", "words"), ON_THE_LINE, ids=lambda text: text)
def test_a_command_ends_with_one_line(
    line: str, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["run", *line.split(), "-p", "hello", "-n", "4", "-t", "1", "-c", "256"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("paceline: error: ")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize(("line", "words"), ON_THE_LINE[:2], ids=lambda text: text)
def test_a_server_ends_with_the_same_line(line: str, words: str, folder: Path) -> None:
    command = [sys.executable, "-m", "paceline", "serve", *line.split(), "--port", "0", "-t", "1", "-c", "256"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    assert done.returncode == 2
    assert len(errors) == 1
    assert words in errors[0]
    assert "Traceback" not in done.stderr


@pytest.fixture
def plain_server(folder: Path) -> Iterator[Live]:
    with live(settings(str(folder / "llama.gguf"), n_ctx=512, spec_types=("suffix",))) as server:
        yield server


def test_a_wish_for_a_head_that_is_not_there_harms_nobody(plain_server: Live) -> None:
    body = {"prompt": "hello", "n_predict": 24, "temperature": 0, "ignore_eos": True}
    before = plain_server.post("/completion", **body).json()["content"]
    with plain_server.http.stream("POST", "/completion", json={**body, "n_predict": 200, "stream": True}) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        for name in ("draft-eagle3", "draft-mtp", "draft-dflash", "dspark"):
            refused = plain_server.post("/completion", **body, **{"speculative.types": [name]})
            assert refused.status_code == 400
            assert "is not loaded; there are suffix here" in refused.json()["error"]["message"]
        assert '"stop":true' in [line for line in lines if line][-1]
    assert plain_server.post("/completion", **body).json()["content"] == before
    assert plain_server.http.get("/health").status_code == 200
