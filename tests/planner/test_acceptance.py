"""Chances: what the text showed teaches, slots apart, greedy and sampled apart."""

from __future__ import annotations

import pytest

from paceline.drafters.base import Draft
from paceline.planner import acceptance
from paceline.planner.acceptance import AcceptanceModel
from paceline.planner.calibration import Calibration


def draft(tokens: list[int], source: str = "a", confidence: float = 0.5) -> Draft:
    return Draft(tokens, source, [confidence] * len(tokens))


def n_seen(model: AcceptanceModel, source: str) -> int:
    calibration, _ = model.of(source, sampled=False)
    return calibration.n_seen


def test_only_what_the_text_showed_teaches() -> None:
    model = AcceptanceModel()
    model.learn(0, [draft([1, 2, 3])], [1])
    assert n_seen(model, "a") == 1
    model.learn(0, [draft([1, 2, 3])], [1, 9, 3])
    assert n_seen(model, "a") == 3
    model.learn(0, [draft([5]), draft([1, 2], "b")], [1, 2, 3])
    assert n_seen(model, "a") == 4
    assert n_seen(model, "b") == 2


def test_greedy_and_sampled_confidences_are_calibrated_apart() -> None:
    model = AcceptanceModel()
    for _ in range(100):
        model.begin(0, sampled=False)
        model.learn(0, [draft([1])], [1])
        model.begin(1, sampled=True)
        model.learn(1, [draft([1])], [2])
    model.begin(0, sampled=False)
    model.begin(1, sampled=True)
    assert model.p_accept(0, draft([1]))[0] > 0.85
    assert model.p_accept(1, draft([1]))[0] < 0.15


def test_one_text_s_bias_is_its_own_and_ends_with_it() -> None:
    model = AcceptanceModel()
    model.begin(0, sampled=False)
    model.begin(1, sampled=False)
    for _ in range(10):
        model.learn(0, [draft([1])], [2])
    assert model.p_accept(0, draft([1]))[0] < model.p_accept(1, draft([1]))[0]
    model.end(0)
    model.begin(0, sampled=False)
    assert model.p_accept(0, draft([1])) == model.p_accept(1, draft([1]))


def test_the_rule_for_one_token_is_the_rule_for_all() -> None:
    model = AcceptanceModel()
    for _ in range(5):
        model.learn(0, [draft([1, 2], confidence=0.7)], [1, 3])
    chance, mean = model.rule(0, "a")
    said = draft([1, 2], confidence=0.7)
    assert [chance(said.cut(1)), chance(said)] == model.p_accept(0, said)
    assert mean == model.means()["a"]


def test_a_drafter_is_believed_less_with_tokens_that_it_gets_wrong() -> None:
    """On any text, and after any token; other tokens are believed in as before."""
    model = AcceptanceModel()
    for token in range(20, 60):
        model.learn(0, [draft([token, 7], confidence=0.7)], [token, 8])
    model.begin(1, sampled=False)
    wrong, right, new = (model.p_accept(1, draft([token], confidence=0.7))[0] for token in (7, 30, 99))
    assert wrong < new - 0.2
    assert right > new


def test_a_drafter_is_believed_less_after_tokens_where_it_goes_wrong() -> None:
    model = AcceptanceModel()
    for token in range(20, 60):
        model.learn(0, [draft([5, token], confidence=0.7)], [5, 99])
    model.begin(1, sampled=False)
    after_five, after_six = (model.p_accept(1, draft([first, 77], confidence=0.7))[1] for first in (5, 6))
    assert after_five < after_six - 0.2
    lone = Draft([77], "a", [0.7], before=5)
    assert model.p_accept(1, lone) == [after_five]
    assert lone.cut(1).before == 5


def test_a_calibration_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer to make one than to look one up, and every draft asks for it."""
    made = []

    class Counted(Calibration):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(acceptance, "Calibration", Counted)
    model = AcceptanceModel()
    model.begin(0, sampled=False)
    for _ in range(3):
        model.p_accept(0, draft([1, 2]))
        model.learn(0, [draft([1, 2])], [1, 3])
    assert len(made) == 1
