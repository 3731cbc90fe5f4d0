"""`benchmarks.placement` as it is called on a lent machine, with tiny models in a folder."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from benchmarks import placement
from benchmarks.common import guarded
from paceline.llama.devices import can_offload
from tests.tiny import write_model

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target with experts, a draft for it, and a smaller model that is none."""
    folder = tmp_path_factory.mktemp("folder")
    write_model(folder / "target.gguf", seed=1, n_layer=4, n_ctx=1024, n_expert=4, scale=4.0)
    write_model(folder / "draft.gguf", seed=2, n_layer=2, n_ctx=1024)
    write_model(folder / "other.gguf", seed=3, n_layer=1, n_embd=32, changed_token=65)
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["placement", *words])
    placement.main()


def test_the_draft_is_the_smallest_that_fits(folder: Path) -> None:
    target, draft = placement.chosen(str(folder), None, None)
    assert (Path(target).name, Path(draft).name) == ("target.gguf", "draft.gguf")
    lines = placement.combinations(target)
    assert {"", "-nkvo", "-ncmoe 2"} <= set(lines)
    assert ("-ngl 2" in lines) is can_offload()
    assert "-cmoe" not in placement.combinations(draft)


def test_every_placement_is_a_row(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    options = ["-n", "6", "-c", "512", "-t", "1", "--only", "ctk", "--also=-ctk q8_0 -ot x=VRAM", "--json", str(kept)]
    run(monkeypatch, str(folder), *options)
    rows = json.loads(kept.read_text())
    assert [row["flags"] for row in rows] == ["-ctk q8_0 -ctv q8_0", "-ctkd q8_0 -ctvd q8_0", "-ctk q8_0 -ot x=VRAM"]
    assert "no memory called VRAM" in rows[2]["error"]
    assert all(row["same"] and row["plain_tps"] > 0 and row["drafted_tps"] > 0 for row in rows[:2])
    target, draft = rows[:2]
    assert sum(target["target"]["cache"].values()) < sum(draft["target"]["cache"].values())
    assert sum(draft["draft"]["cache"].values()) < sum(target["draft"]["cache"].values())
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == rows


def test_what_is_loaded_again_counts_once() -> None:
    seen = placement.Placements()
    for text in (
        "llama_model_loader: loaded meta data with 3 key-value pairs from a.gguf (version GGUF V3 (latest))",
        "load_tensors:   CUDA0 model buffer size =    92.10 MiB",
        "load_tensors:   CPU_Mapped model buffer size =     8.00 MiB",
        "llama_context: constructing llama_context",
        "llama_kv_cache:      CUDA0 KV buffer size =     5.00 MiB",
        "llama_context: constructing llama_context",
        "llama_kv_cache:      CUDA0 KV buffer size =     6.00 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =     1.00 MiB",
    ):
        seen.emit(logging.LogRecord("paceline.llama", logging.INFO, "", 0, text, None, None))
    weights = {"CUDA0": 92.1, "CPU_Mapped": 8.0}
    assert seen.found == {"a.gguf": {"weights": weights, "cache": {"CUDA0": 7.0}, "computing": {}}}


def test_what_it_lacks_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["placement", str(tmp_path)])
    with pytest.raises(SystemExit):
        guarded(placement.main)
    assert capsys.readouterr().err == "placement: needs models: a folder with GGUF files, or -m and -md\n"
