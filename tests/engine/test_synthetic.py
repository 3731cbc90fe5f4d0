"""Drafts accepted by chance: how many, and which."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline import Engine
from paceline.config import EngineParams, ModelParams
from paceline.config.drafters import DrafterSettings, DraftModelParams
from paceline.engine.synthetic import Synthetic, rates_for
from paceline.errors import ConfigError
from tests.server.live import settings

NEVER: frozenset[int] = frozenset()
FOUR = DrafterSettings(draft_model=DraftModelParams(n_max=4, p_min=0.0))


@pytest.mark.parametrize("length", [1.0, 1.5, 3.0, 4.9, 5.0])
def test_a_mean_length_is_met(length: float) -> None:
    synthetic = Synthetic(rates_for(length, 4))
    n = [1 + len(synthetic.accepted([5, 6, 7, 8], 1, position, NEVER)) for position in range(4000)]
    assert sum(n) / len(n) == pytest.approx(length, abs=0.1)


def test_rates_are_met_position_by_position() -> None:
    synthetic = Synthetic([0.9, 0.5, 0.0, 0.0])
    drafts = [synthetic.accepted([5, 6, 7, 8], 1, position, NEVER) for position in range(4000)]
    assert sum(len(draft) >= 1 for draft in drafts) / 4000 == pytest.approx(0.9, abs=0.03)
    assert sum(len(draft) >= 2 for draft in drafts) / 4000 == pytest.approx(0.5, abs=0.03)
    assert max(map(len, drafts)) == 2


def test_chance_is_the_same_again_and_ends_no_text() -> None:
    synthetic = Synthetic([0.5, 0.4])
    assert [synthetic.accepted([5, 6], 7, i, NEVER) for i in range(50)] == [
        synthetic.accepted([5, 6], 7, i, NEVER) for i in range(50)
    ]
    assert Synthetic([1.0, 1.0]).accepted([5, 6], 7, 0, frozenset([6])) == [5]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"synth_rates": (0.5,)}, "needs 4 numbers"),
        ({"synth_rates": (0.5, 0.6, 0.1, 0.0)}, "must not rise"),
        ({"synth_rates": (1.5, 0.6, 0.1, 0.0)}, "between 0 and 1"),
        ({"synth_len": 6.0}, "--spec-synth-len"),
        ({"synth_len": 2.0, "synth_rates": (0.5, 0.4, 0.3, 0.2)}, "exclude each other"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EngineParams(drafters=FOUR, **given)


@pytest.mark.model
def test_a_text_by_chance(target: str, models: Path) -> None:
    """Rates of nought leave the text alone, rates of one take every draft."""
    with Engine(target, n_ctx=512, n_threads=1) as plain:
        expected = plain.generate("on and on", max_tokens=24, temperature=0, ignore_eos=True).text()
    draft = ModelParams(path=str(models / "draft.gguf"))
    for rate, accepted in ((0.0, False), (1.0, True)):
        params = settings(target, n_ctx=512, spec_types=("draft-simple",), drafters=FOUR, synth_rates=(rate,) * 4)
        with Engine.from_settings(replace(params, draft=draft)) as engine:
            done = engine.generate("on and on", max_tokens=24, temperature=0, ignore_eos=True)
            text, timings = done.text(), done.timings
            assert timings.draft_n
            assert timings.draft_n_accepted == (timings.draft_n if accepted else 0)
            assert (text == expected) != accepted
