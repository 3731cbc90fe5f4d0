"""Opening for exact mode: what is tried, what is kept between starts, and when it is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline import Engine
from paceline.config import ContextParams, ModelParams
from paceline.engine import exactness
from paceline.engine.exactness import CANDIDATES, Layout
from paceline.errors import ConfigError
from paceline.llama import context as llama_context
from paceline.llama.context import Context, fingerprint
from paceline.llama.model import Model, quantize
from paceline.process.opening import Finding, open_exactly
from tests.tiny import write_model


def test_a_finding_comes_back_from_its_file_and_a_broken_file_counts_as_none(tmp_path: Path) -> None:
    found = Finding(Layout(16, 16, 256), False, 1.9, True, 4096)
    path = tmp_path / "costs" / "m.exact.json"
    found.save(path)
    assert Finding.load(path) == found
    for text in ("", "[]", "{}", path.read_text().replace("16", "-1"), path.read_text().replace("cost", "price")):
        path.write_text(text)
        assert Finding.load(path) is None
    assert Finding.load(tmp_path / "missing") is None


def test_people_are_told_what_it_costs() -> None:
    assert str(Finding(Layout(16, 16), True, 1.94, True, 512)) == (
        "batches of 16 tokens; a step takes 1.9 times a plain one"
    )
    assert "2 to 62 tokens, weights not repacked;" in str(Finding(Layout(), False, 1.5, True, 512))


def test_a_file_of_another_machine_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    model, context = ModelParams(path=str(path)), ContextParams()
    ours = fingerprint(model, context)
    assert fingerprint(model, context) == ours
    others = {fingerprint(replace(model, n_gpu_layers=4), context), fingerprint(model, replace(context, n_threads=7))}
    with monkeypatch.context() as patch:
        patch.setattr(llama_context, "devices", lambda: ("NVIDIA H200",))
        others.add(fingerprint(model, context))
    with monkeypatch.context() as patch:
        patch.setattr(llama_context, "build", lambda: (("libggml.so", 1),))
        others.add(fingerprint(model, context))
    path.write_bytes(b"GGUF2")
    others.add(fingerprint(model, context))
    assert len(others | {ours}) == 6


class Trials:
    """Stands in for the trial: which layouts pass on which way of loading, and what was asked."""

    def __init__(self, repacked: set[Layout], plain: set[Layout]) -> None:
        self.passing = {True: repacked, False: plain}
        self.asked: list[tuple[bool, Layout]] = []

    def find(self, context: Context, candidates: Iterable[Layout]) -> Layout | None:
        repacked = context.model.params.use_extra_bufts
        for layout in candidates:
            self.asked.append((repacked, layout))
            if layout in self.passing[repacked]:
                return layout
        return None


@pytest.fixture
def opened(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opens the tiny model with trials that pass as told, in a cache folder of its own."""
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))

    def open_with(trials: Trials, n_slots: int = 1, n_ctx: int = 1024) -> Finding:
        monkeypatch.setattr("paceline.process.opening.find", trials.find)
        shape = ContextParams(n_ctx=n_ctx * n_slots, n_threads=2, n_seqs=n_slots, kv_unified=False, flash_attn=True)
        opening, found = open_exactly(ModelParams(path=target), shape, None)
        assert opening.model.params.use_extra_bufts == found.repacked
        assert opening.context.n_seqs == n_slots
        opening.close()
        return found

    return open_with


@pytest.mark.model
def test_what_was_found_is_kept_and_not_looked_for_again(opened: Any) -> None:
    first = opened(Trials({Layout(2, 62)}, set()))
    assert (first.layout, first.repacked) == (Layout(2, 62), True)
    assert first.cost > 0.5
    again = Trials(set(), set())
    assert opened(again) == first
    assert not again.asked


@pytest.mark.model
def test_weights_stay_as_in_the_file_where_smaller_batches_are_exact_then(opened: Any) -> None:
    trials = Trials({Layout(8, 8)}, {Layout(2, 62), Layout(8, 8)})
    found = opened(trials)
    assert (found.layout, found.repacked) == (Layout(2, 62), False)
    assert opened(Trials(set(), set())) == found


@pytest.mark.model
def test_weights_are_repacked_where_that_is_no_worse(opened: Any) -> None:
    found = opened(Trials({Layout(8, 8)}, {Layout(8, 8), Layout(16, 16)}))
    assert (found.layout, found.repacked) == (Layout(8, 8), True)


@pytest.mark.model
def test_more_slots_and_longer_texts_are_tried_anew(opened: Any) -> None:
    opened(Trials({Layout(2, 62)}, set()), n_ctx=256)
    longer = Trials({Layout(2, 62)}, set())
    assert opened(longer, n_ctx=1024).layout == Layout(2, 62)
    assert longer.asked == [(True, Layout(2, 62))]
    more = Trials({Layout(16, 16)}, set())
    assert opened(more, n_slots=3).layout == Layout(16, 16)
    known = Trials(set(), set())
    assert opened(known, n_slots=3).layout == Layout(16, 16)
    assert opened(known).layout == Layout(16, 16)
    assert not known.asked


@pytest.mark.model
def test_where_nothing_is_exact_it_is_refused_in_one_line(opened: Any) -> None:
    trials = Trials(set(), set())
    with pytest.raises(ConfigError, match=r"--exact cannot be kept for target\.gguf on .*without --exact") as refused:
        opened(trials)
    assert "\n" not in str(refused.value)
    assert trials.asked == [(repacked, layout) for repacked in (True, False) for layout in CANDIDATES]


@pytest.mark.model
def test_the_trial_passes_and_fails_on_the_real_library(target: str, tmp_path: Path) -> None:
    """On a CPU one token takes another way through attention than two, once there are 512 cells to look at."""
    path = str(tmp_path / "q8.gguf")
    quantize(target, path, "Q8_0")
    shape = ContextParams(n_ctx=2048, n_threads=2, n_seqs=2, kv_unified=False, flash_attn=True)
    with Model(ModelParams(path=path, n_gpu_layers=0)) as model, Context(model, shape) as context:
        assert exactness.find(context, [Layout(1, 62)]) is None
        assert exactness.find(context) is not None
        batch = context.new_batch()
        batch.add(0, [1, 2], 0, 1)
        assert np.isfinite(context.decode(batch)).all()


@pytest.mark.model
@pytest.mark.parametrize("kind", ["Q4_K_M", "Q6_K", "IQ4_XS"])
def test_other_kinds_of_weights_are_exact_too(kind: str, tmp_path: Path) -> None:
    source = write_model(tmp_path / "f32.gguf", seed=5, n_embd=256, n_layer=2, scale=4.0)
    path = str(tmp_path / f"{kind}.gguf")
    quantize(source, path, kind)

    def text(*types: str) -> str:
        with Engine(path, n_ctx=512, n_threads=2, exact=True, spec_types=types, spec_policy="fixed") as engine:
            return engine.generate("on and on and on", max_tokens=40, temperature=0, ignore_eos=True).text()

    assert text("suffix") == text()
