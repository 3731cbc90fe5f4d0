"""What a header tells of a file: which could draft for a target, which could not, and why."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import gguf
import pytest

from paceline.errors import ModelError
from paceline.process.candidates import Candidate, FamiliarHeader, Fit, Look, files_in
from paceline.process.gguf_check import Header, check_gguf
from tests.heads.heads import write_dflash, write_eagle3
from tests.heads.right import write_right_step35
from tests.tiny import write_adapter, write_bert, write_encoder, write_model


@pytest.fixture
def target(tmp_path: Path) -> str:
    return write_model(tmp_path / "target.gguf", seed=1, n_layer=4)


def look(target: str, path: str | Path) -> Candidate:
    return Look(target).at(str(path))


# -- vocabularies


def test_the_same_tokens_are_the_same_vocabulary(tmp_path: Path, target: str) -> None:
    found = look(target, write_model(tmp_path / "draft.gguf", seed=2, n_layer=1))
    assert (found.fit, found.kind, found.note) == (Fit.SAME, "draft-simple", "")
    assert found.n_bytes == (tmp_path / "draft.gguf").stat().st_size
    n_weights = 2 * 266 * 64 + 64 + 2 * 64 + 4 * 64 * 64 + 3 * 64 * 128
    assert found.n_params == n_weights


def test_a_few_tokens_more_or_otherwise_are_nearly_the_same(tmp_path: Path, target: str) -> None:
    more = look(target, write_model(tmp_path / "more.gguf", n_layer=1, n_extra=5))
    assert (more.fit, more.note) == (Fit.SAME, "5 tokens more")
    changed = look(target, write_model(tmp_path / "changed.gguf", n_layer=1, changed_token=65))
    assert (changed.fit, changed.note) == (Fit.NEARLY, "1 spelled otherwise")


def test_many_others_are_another_vocabulary(tmp_path: Path, target: str) -> None:
    found = look(target, write_model(tmp_path / "other.gguf", n_layer=1, n_extra=400))
    assert (found.fit, found.note) == (Fit.OTHER, "666 tokens, the target has 266")


def test_a_vocabulary_is_compared_once_and_read_quickly_the_second_time(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write_model(tmp_path / f"{n}.gguf", seed=n, n_layer=1, n_extra=300) for n in range(3)]
    slowly: list[int] = []
    strings = Header.strings

    def counted(header: Header, n: int) -> None:
        slowly.append(n)
        strings(header, n)

    monkeypatch.setattr(Header, "strings", counted)
    at = Look(target)
    assert {at.at(path).fit for path in paths} == {Fit.OTHER}
    assert slowly.count(566) == 1, "three files have it"
    seen = {1: [b"no such list"]}
    assert check_gguf(paths[0], partial(FamiliarHeader, seen=seen)) == check_gguf(paths[0])


# -- what is no use


def test_why_a_file_is_no_use(tmp_path: Path, target: str) -> None:
    whole = Path(target).read_bytes()
    (tmp_path / "short.gguf").write_bytes(whole[:-100])
    (tmp_path / "header.gguf").write_bytes(whole[:300])
    (tmp_path / "text.gguf").write_bytes(b"no model")
    (tmp_path / "empty.gguf").write_bytes(b"")
    wanted = {
        write_bert(tmp_path / "bert.gguf"): "an embedding model",
        write_encoder(tmp_path / "t5.gguf"): "an embedding model",
        write_adapter(tmp_path / "lora.gguf"): "a LoRA adapter",
        write_model(tmp_path / "larger.gguf", n_layer=5): "larger than the target",
        str(tmp_path / "short.gguf"): "was it copied whole?",
        str(tmp_path / "header.gguf"): "it ends in the middle of",
        str(tmp_path / "text.gguf"): "not a GGUF file",
        str(tmp_path / "empty.gguf"): "not a GGUF file",
        str(tmp_path / "nowhere.gguf"): "not found",
    }
    at = Look(target)
    for path, why in wanted.items():
        found = at.at(path)
        assert found.fit is Fit.NONE, path
        assert why in found.note
        assert str(tmp_path) not in found.note, "the file's name stands beside it"


def test_a_copy_of_the_target_is_worth_a_try_only_if_it_is_much_smaller(tmp_path: Path) -> None:
    target = write_model(tmp_path / "target.gguf", seed=1, n_layer=8)
    shutil.copyfile(target, tmp_path / "copy.gguf")
    found = look(target, tmp_path / "copy.gguf")
    assert (found.fit, found.note) == (Fit.NONE, "the target itself, 100% of its size")
    half = quantised(target, tmp_path / "half.gguf")
    found = look(target, half)
    assert found.fit is Fit.SAME
    assert found.note.startswith("the target itself, ")


def quantised(source: str, path: Path) -> str:
    """Every matrix at Q8_0, about a quarter of the size."""
    reader = gguf.GGUFReader(source)
    model = write_model(path, seed=1, n_layer=8)
    writer = gguf.GGUFWriter(str(path), "llama")
    for name, entry in gguf.GGUFReader(model).fields.items():
        if name.startswith(("GGUF.", "general.architecture")):
            continue
        kind, *inner = entry.types
        writer.add_key_value(name, entry.contents(), kind, inner[0] if inner else None)
    for tensor in reader.tensors:
        matrix = len(tensor.shape) > 1
        kind = gguf.GGMLQuantizationType.Q8_0 if matrix else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(tensor.data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def test_a_target_that_cannot_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be drafted for: it is an embedding model"):
        Look(write_bert(tmp_path / "bert.gguf"))


# -- heads


def test_heads_are_known_by_what_they_are_for(tmp_path: Path, target: str) -> None:
    at = Look(target)
    eagle = at.at(write_eagle3(tmp_path / "eagle.gguf"))
    assert (eagle.fit, eagle.kind) == (Fit.HEAD, "draft-eagle3")
    assert at.at(write_dflash(tmp_path / "flash.gguf")).kind == "draft-dflash"
    assert at.own_heads() == []


def test_a_targets_own_blocks_are_a_candidate(tmp_path: Path) -> None:
    target = write_right_step35(tmp_path / "step.gguf")
    (own,) = Look(target).own_heads()
    assert (own.path, own.fit, own.kind) == (target, Fit.HEAD, "draft-mtp")


# -- files


def test_every_file_once_and_split_ones_by_their_first_part(tmp_path: Path, target: str) -> None:
    names = ["a.gguf", "deep/er/b.gguf", "c-00001-of-00002.gguf", "c-00002-of-00002.gguf", "note.txt", ".hidden/d.gguf"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"GGUF")
    os.symlink(tmp_path / "a.gguf", tmp_path / "link.gguf")
    os.symlink(target, tmp_path / "the-target-again.gguf")
    found = [Path(path).relative_to(tmp_path).as_posix() for path in files_in([tmp_path, tmp_path / "deep"], target)]
    assert found == ["a.gguf", "c-00001-of-00002.gguf", "deep/er/b.gguf"]
    assert files_in([tmp_path / "a.gguf"], target) == [str(tmp_path / "a.gguf")]


def test_folders_far_below_are_not_searched(tmp_path: Path, target: str) -> None:
    far = tmp_path.joinpath(*"abcdefg")
    far.mkdir(parents=True)
    (far / "far.gguf").write_bytes(b"GGUF")
    assert files_in([tmp_path], target) == []


def test_a_split_model_is_counted_whole_and_not_without_a_part(tmp_path: Path, target: str) -> None:
    """Two files with a block each, as a splitter makes them: the vocabulary is in the first."""
    parts = [write_model(tmp_path / f"draft-0000{n}-of-00002.gguf", seed=n, n_layer=n) for n in (1, 2)]
    found = look(target, parts[0])
    assert found.fit is Fit.SAME
    assert found.n_bytes == sum(Path(part).stat().st_size for part in parts)
    Path(parts[1]).unlink()
    found = look(target, parts[0])
    assert (found.fit, found.note) == (Fit.NONE, "part 2 of 2 is missing")
