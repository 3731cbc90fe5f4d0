"""Drafting on texts that are known: as the engine would, with what steps cost taken from a curve."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from paceline.drafters.base import Draft, Drafter, DraftRequest
from paceline.planner.costs import CostCurve
from paceline.planner.planner import Planner
from paceline.process.replay import Agreed, KnownText, Replay, Written

N_PROMPT, N_ANSWER = 8, 60
TEXT = Written(tuple(range(N_PROMPT)), tuple(range(100, 100 + N_ANSWER)))
CHEAP = {1: 1.0, 2: 1.05, 4: 1.1, 8: 1.2, 16: 1.5}
DEAR = {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0, 16: 16.0}


class Counter(Drafter):
    """Knows that the answer counts up; is wrong wherever `wrong` divides the number."""

    name = "counter"

    def __init__(self, wrong: int = 10_000) -> None:
        self.wrong = wrong
        self.began: list[Sequence[int]] = []
        self.ended: list[Sequence[int]] = []
        self.n_accepted = 0

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        self.began.append(tokens)

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        self.ended.append(tokens)

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        self.n_accepted += n_accepted

    def close(self) -> None:
        return

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        (request,) = requests
        last = request.tokens[-1]
        tokens = [0 if (last + j) % self.wrong == 0 else last + j for j in range(1, min(request.n_max, 4) + 1)]
        return [Draft(tokens, self.name, [0.9] * len(tokens))]


def replayed(drafter: Drafter, seconds: dict[int, float]) -> Replay:
    replay = Replay([drafter], Planner(CostCurve(seconds, attention=0.0)), frozenset())
    replay.write(KnownText(TEXT))
    return replay


def test_agreement_is_the_share_of_places_where_both_say_the_same() -> None:
    always, seldom = Agreed(Counter()), Agreed(Counter(wrong=2))
    for agreed in (always, seldom):
        agreed.read(KnownText(TEXT), seconds=60)
        assert len(agreed.found) == N_ANSWER - 1, "the first token is drawn from the prompt"
    assert always.share == 1.0
    assert seldom.share == pytest.approx(0.5, abs=0.02)
    assert always.token_seconds > 0


def test_there_are_always_two_places_and_no_more_than_there_is_time_for() -> None:
    agreed = Agreed(Counter())
    agreed.read(KnownText(TEXT), seconds=0)
    agreed.read(KnownText(TEXT), seconds=0)
    assert len(agreed.found) == 2


def test_a_drafter_that_is_right_gains_where_batches_are_cheap() -> None:
    drafter = Counter()
    ledger = replayed(drafter, CHEAP).ledger
    assert ledger.plain == pytest.approx(N_ANSWER - 1, rel=0.01), "a second each"
    assert ledger.n_accepted == drafter.n_accepted
    assert ledger.n_accepted + ledger.n_steps in (N_ANSWER - 1, N_ANSWER), "the last token may be a draft's"
    assert ledger.speedup > 2
    assert drafter.began == drafter.ended == [TEXT.prompt], "the answer is not told"


def test_nothing_is_gained_where_batches_cost_as_much_as_their_tokens() -> None:
    ledger = replayed(Counter(), DEAR).ledger
    assert ledger.n_drafted == 0
    assert ledger.speedup == pytest.approx(1.0, abs=0.01)


def test_a_drafter_that_is_wrong_is_left_alone() -> None:
    ledger = replayed(Counter(wrong=1), CHEAP).ledger
    assert ledger.n_accepted == 0
    assert ledger.n_drafts < ledger.n_steps
    assert 0.9 < ledger.speedup < 1.0


def test_moments_in_which_the_machine_did_something_else_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tenth question takes a thousand times as long as the others."""
    now, n_asked = 0.0, 0

    def clock() -> float:
        nonlocal now, n_asked
        n_asked += 1
        now += 1.0 if n_asked % 20 == 0 else 1e-3
        return now

    monkeypatch.setattr("paceline.process.replay.perf_counter", clock)
    assert replayed(Counter(), CHEAP).ledger.speedup > 2
