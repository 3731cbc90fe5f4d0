"""Finding a draft: the right one among files that are not, measured with real models in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.config import ContextParams, ModelParams, Settings
from paceline.errors import ModelError
from paceline.process.candidates import Fit
from paceline.process.pairing import Found, PairingStage, PairReport, pair
from tests.heads.right import write_right_eagle3, write_right_llama, write_right_step35
from tests.process.pair_files import write_deadly, write_five, write_target
from tests.tiny import write_model

pytestmark = pytest.mark.model

ONE_THREAD = ContextParams(n_threads=1)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_target(tmp_path_factory.mktemp("target") / "target.gguf")


def settings(path: str) -> Settings:
    return Settings(model=ModelParams(path=path), context=ONE_THREAD, draft_context=ONE_THREAD)


def by_name(pairing: PairReport) -> dict[str, Found]:
    return {found.candidate.name: found for found in pairing.found}


def test_the_right_draft_is_found_among_five_files(tmp_path: Path, target: str) -> None:
    stages: list[PairingStage] = []
    pairing = pair(settings(target), [str(write_five(tmp_path))], seconds=20, on_stage=stages.append)
    assert [found.candidate.name for found in pairing.found][:2] == ["d-right.gguf", "a-random.gguf"]
    best, random = pairing.found[:2]
    assert pairing.best is best
    assert best.figures and random.figures
    assert best.figures.agreement == 1.0
    assert random.figures.agreement < 0.1
    assert 16 < best.figures.n_places <= pairing.n_written - 3, "places after the first token of each text"
    assert best.figures.speedup > 1.05 * pairing.look_ups
    assert 0 < best.figures.draft_ms < best.figures.plain_ms == pytest.approx(pairing.plain_ms)
    assert not pairing.is_worth(random)
    rest = by_name(pairing)
    assert "reads rows of 48 numbers, the target's have 64" in rest["b-other-width.gguf"].why
    assert rest["c-embedding.gguf"].why == "an embedding model"
    assert "was it copied whole?" in rest["e-cut-short.gguf"].why
    assert {stage.doing for stage in stages} >= {"reading headers", "loading target.gguf", "trying d-right.gguf"}
    assert all(0 <= stage.n_done <= stage.n_all for stage in stages)


def test_a_file_that_ends_the_process_does_not_end_the_search(tmp_path: Path, target: str) -> None:
    """The smallest is tried first: the right one comes after it, in another process that is given the same texts."""
    write_deadly(tmp_path / "deadly.gguf")
    write_right_llama(tmp_path / "right.gguf", n_layer=2)
    pairing = pair(settings(target), [str(tmp_path)], seconds=20)
    assert [found.candidate.name for found in pairing.found] == ["right.gguf", "deadly.gguf"]
    right, deadly = pairing.found
    assert right.figures and right.figures.agreement == 1.0
    assert deadly.figures is None
    assert "GGML_ASSERT" in deadly.why


def test_heads_and_a_targets_own_blocks_are_measured(tmp_path: Path) -> None:
    target = write_right_llama(tmp_path / "target.gguf")
    write_right_eagle3(tmp_path / "head.gguf")
    head = by_name(pair(settings(target), [str(tmp_path)], seconds=20))["head.gguf"]
    assert head.candidate.fit is Fit.HEAD
    assert head.figures and head.figures.agreement == 1.0
    own = write_right_step35(tmp_path / "blocks.gguf")
    (found, *_) = pair(settings(own), [str(tmp_path / "head.gguf")], seconds=20).found
    assert (found.candidate.path, found.candidate.kind) == (own, "draft-mtp")
    assert found.figures and found.figures.agreement == 1.0


def test_a_draft_with_another_vocabulary_is_translated(tmp_path: Path, target: str) -> None:
    write_model(tmp_path / "other.gguf", seed=6, n_layer=1, n_extra=400)
    (found,) = pair(settings(target), [str(tmp_path)], seconds=20).found
    assert found.candidate.fit is Fit.OTHER
    assert found.figures and found.figures.n_places > 16


def test_a_folder_without_models_and_one_that_is_not_there(tmp_path: Path, target: str) -> None:
    nothing = pair(settings(target), [str(tmp_path)], seconds=1)
    assert (nothing.found, nothing.best) == ([], None)
    with pytest.raises(ModelError, match="there is no folder"):
        pair(settings(target), [str(tmp_path / "nowhere")])


def test_the_targets_own_folder_and_the_cache_are_searched_when_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    target = write_model(tmp_path / "models.gguf", n_layer=4)
    for name in ("cut.gguf", "cache/cut-too.gguf"):
        (tmp_path / name).write_bytes(Path(target).read_bytes()[:1000])
    pairing = pair(settings(target))
    assert sorted(by_name(pairing)) == ["cut-too.gguf", "cut.gguf"]
    assert pairing.plain_ms == 0, "nothing was worth measuring"
