"""LoRA adapters in the engine: who is computed with whom, what is read again, and drafts of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline import Engine
from paceline.cli.main import main
from paceline.config import ModelParams, Settings, SpeculativeParams
from paceline.config.drafters import DrafterSettings, DraftModelParams
from paceline.errors import ConfigError
from paceline.generation import Generation
from paceline.llama.context import Batch, Context
from paceline.llama.lib import Floats
from paceline.process.local import LocalEngine
from tests.heads.targets import write_step35
from tests.heads.test_sequences import write_lora
from tests.server.live import settings
from tests.tiny import write_adapter, write_model

pytestmark = pytest.mark.model
PROMPT = "the cat and the dog and the cat and the "
SCALES = ("0.0", "0.5", "1.0")


@pytest.fixture(scope="module")
def adapted(target: str, tmp_path_factory: pytest.TempPathFactory) -> ModelParams:
    path = write_adapter(tmp_path_factory.mktemp("lora") / "lora.gguf", strength=3.0)
    return ModelParams(path=target, adapters=((path, 1.0),))


def options(model: ModelParams, **engine: Any) -> Settings:
    found = settings(model.path, n_ctx=512, n_slots=engine.pop("n_slots", 3), **engine)
    return replace(found, model=model)


def greedy(engine: Engine, scale: str | None, **more: Any) -> Generation:
    return engine.generate(PROMPT, max_tokens=24, temperature=0, adapter=scale, **more)


def written(engine: Engine, scales: Sequence[str | None]) -> list[str]:
    """Side by side."""
    return [generation.text() for generation in [greedy(engine, scale) for scale in scales]]


def test_requests_of_other_adapters_are_computed_apart(adapted: ModelParams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the same are not."""
    seen: list[tuple[str | None, list[str | None]]] = []
    with Engine.from_settings(options(adapted, n_slots=4)) as engine:
        assert isinstance(engine.backend, LocalEngine)
        slots = engine.backend.core.slots
        decode = Context.decode

        def watched(context: Context, batch: Batch) -> Floats:
            seen.append((context._scales, [slots[seq].adapter for seq in batch.starts]))
            return decode(context, batch)

        monkeypatch.setattr(Context, "decode", watched)
        written(engine, ("0.0", "0.5", "0.5", None))
    assert all(set(adapters) == {scales} for scales, adapters in seen)
    assert {scales for scales, _ in seen} == {"0.0", "0.5", None}
    assert max(len(adapters) for _, adapters in seen) == 2


def exact_texts(model: ModelParams, draft: str | None, *types: str) -> tuple[list[str], int]:
    """By scale, all at once; and how many tokens were accepted."""
    limits = SpeculativeParams(n_max=4)
    drafters = DrafterSettings(draft_model=DraftModelParams(p_min=0.0, window=256))
    found = options(model, exact=True, spec_types=types, spec_policy="fixed", speculative=limits, drafters=drafters)
    if draft:
        found = replace(found, draft=ModelParams(path=draft))
    with Engine.from_settings(found) as engine:
        texts = written(engine, SCALES)
        return texts, sum(stats.n_accepted_tokens for stats in engine.drafter_stats())


@pytest.mark.parametrize("types", [("suffix",), ("draft-simple",), ("suffix", "draft-simple")], ids=" ".join)
def test_drafts_stay_right(adapted: ModelParams, types: tuple[str, ...]) -> None:
    """The draft model is the target without its adapter."""
    alone = []
    for scale in SCALES:
        with Engine.from_settings(options(adapted, exact=True, n_slots=1)) as engine:
            alone += written(engine, (scale,))
    assert len(set(alone)) == len(SCALES)
    texts, n_accepted = exact_texts(adapted, adapted.path if "draft-simple" in types else None, *types)
    assert texts == alone
    assert n_accepted > 0 or types == ("suffix",)


def test_heads_stay_right(tmp_path: Path) -> None:
    target = write_step35(tmp_path / "target.gguf")
    lora = write_lora(tmp_path / "lora.gguf", "step35")
    model = ModelParams(path=target, adapters=((lora, 0.0),))
    plain, _ = exact_texts(model, None)
    drafted, _ = exact_texts(model, None, "draft-mtp")
    assert drafted == plain
    assert len(set(plain)) > 1


def test_what_was_set_aside_is_for_its_own_adapter(adapted: ModelParams) -> None:
    """One slot, and room for prompts beside it."""
    long = PROMPT * 8
    with Engine.from_settings(options(adapted, n_slots=1, cache_ram=64)) as engine:

        def n_reused(scale: str) -> int:
            generation = engine.generate(long, max_tokens=1, temperature=0, adapter=scale)
            generation.text()
            return generation.timings.cache_n

        assert n_reused("0.5") == 0
        assert n_reused("1.0") == 0, "what the slot holds is another's"
        assert n_reused("0.5") > 100, "its own comes back"
        assert n_reused("0.25") == 0
        assert n_reused("1.0") > 100


def refused(capsys: pytest.CaptureFixture[str], target: str, *words: str) -> str:
    assert main(["run", "-m", target, "-t", "1", "-p", "x", "-n", "1", *words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    return lines[0]


def test_a_wrong_file_is_one_line(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.gguf"
    text.write_text("no adapter")
    cut = Path(write_adapter(tmp_path / "cut.gguf"))
    cut.write_bytes(cut.read_bytes()[:-100])
    narrow = write_adapter(tmp_path / "narrow.gguf", n_embd=32)
    foreign = write_adapter(tmp_path / "foreign.gguf", arch="qwen2")
    whole = write_model(tmp_path / "whole.gguf")
    activated = write_adapter(tmp_path / "activated.gguf", invocation=[1, 2])
    for path, why in (
        (str(tmp_path / "none.gguf"), "not found"),
        (str(text), "not a GGUF file"),
        (str(cut), "damaged"),
        (narrow, "incorrect shape"),
        (foreign, "arch mismatch"),
        (whole, "expect general.type to be 'adapter'"),
        (activated, "aLoRA"),
    ):
        line = refused(capsys, target, "--lora", path)
        assert why in line
        assert path in line


@pytest.mark.parametrize("scale", ["nan", "inf", "much", ""])
def test_a_wrong_scale_is_one_line(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], scale: str) -> None:
    path = write_adapter(tmp_path / "lora.gguf")
    assert "number" in refused(capsys, target, "--lora-scaled", f"{path}:{scale}")


def test_scales_of_the_library_are_checked(adapted: ModelParams) -> None:
    with Engine.from_settings(options(adapted)) as engine:
        for scale in ("0.5,0.5", "nan", "x", ""):
            with pytest.raises(ConfigError, match="how much each of 1 LoRA adapters counts"):
                greedy(engine, scale).text()
        assert greedy(engine, "0.5").text()
