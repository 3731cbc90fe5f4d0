"""The auto policy: what does not pay is not checked, what pays is, and unchecked offers teach too."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.drafters.base import Draft
from paceline.engine.auto import AutoPolicy, Hope
from paceline.engine.costs import CostCurve
from paceline.engine.planner import Planner
from paceline.engine.policy import GoOn, Want
from paceline.engine.proposal import Proposal
from paceline.engine.slot import Slot
from paceline.engine.stats import DrafterStats
from tests.fakes import Client, FakeContext, Prophet, continuation, make_engine, run

CPU = {1: 1.0, 2: 1.36, 3: 1.61, 4: 1.82, 5: 2.26, 6: 2.51, 8: 2.83, 12: 3.88, 16: 4.88, 32: 9.0}


class Script:
    """Drafters that say the same at every step, and clocks that tick by rule."""

    def __init__(self, offers: dict[str, tuple[list[float], float]]) -> None:
        self.offers = offers
        self.clock = dict.fromkeys(offers, 0.0)
        self.asked = dict.fromkeys(offers, 0)

    def names(self) -> list[str]:
        return list(self.offers)

    def seconds(self, name: str) -> float:
        return self.clock[name]

    def ask(self, name: str, slots: list[Slot], limits: list[int], go_on: Sequence[GoOn | None]) -> list[Draft]:
        confidence, seconds = self.offers[name]
        self.asked[name] += 1
        drafts = []
        for slot, limit in zip(slots, limits, strict=True):
            self.clock[name] += seconds
            draft = Draft(list(range(len(confidence)))[:limit], name, confidence[:limit])
            slot.offers.append((tuple(slot.draft.tokens), draft))
            drafts.append(draft)
        return drafts


def simulate(script: Script, n_right: int, n_steps: int = 400) -> tuple[float, int]:
    """Speed-up over plain steps when the first `n_right` tokens of every draft are right; steps that checked drafts."""
    true = CostCurve(dict(CPU))
    policy = AutoPolicy(Planner(CostCurve(dict(CPU)), CostCurve({1: 0.05})))
    slot = Slot(0, request=Client([1]).request, stats={name: DrafterStats(name) for name in script.names()})
    n_tokens = n_checked = 0
    seconds = 0.0
    for _ in range(n_steps):
        slot.draft, before = Proposal(), sum(script.clock.values())
        slot.offers.clear()
        policy.propose(script, [Want(slot, 16)])
        right = min(n_right, len(slot.draft))
        step = true.predict(1 + len(slot.draft))
        n_checked += len(slot.draft) > 0
        n_tokens += right + 1
        seconds += step + sum(script.clock.values()) - before
        policy.settled(slot, [*range(right), right if right < n_right else 99])
        policy.spent(1 + len(slot.draft), right + 1, step)
    return n_tokens / seconds, n_checked


def test_a_drafter_that_boasts_is_soon_ignored() -> None:
    speed, n_checked = simulate(Script({"suffix": ([0.9] * 6, 0.0)}), 0)
    assert speed > 0.95
    assert n_checked < 60


def test_a_good_look_up_is_taken() -> None:
    speed, n_checked = simulate(Script({"suffix": ([0.9] * 6, 0.0)}), 5)
    assert speed > 2.0
    assert n_checked > 390


def test_look_ups_rest_where_they_never_help_and_only_there() -> None:
    useless, good = Script({"suffix": ([0.9] * 6, 0.0)}), Script({"suffix": ([0.9] * 6, 0.0)})
    simulate(useless, 0, n_steps=400)
    simulate(good, 5, n_steps=400)
    assert useless.asked["suffix"] < 250
    assert good.asked["suffix"] == 400


@pytest.mark.parametrize(
    ("promise", "seconds_for_probes", "is_asked"),
    [(0.05, 0.0, True), (-0.05, 0.0, False), (-0.05, 1.0, True), (-0.3, 1.0, False)],
)
def test_a_new_text_is_tried_where_it_pays_or_may_pay_while_there_is_time(
    promise: float, seconds_for_probes: float, is_asked: bool
) -> None:
    policy = AutoPolicy(Planner(CostCurve(dict(CPU)), CostCurve({1: 0.05})))
    script, slot = Script({"draft-simple": ([0.5], 0.05)}), Slot(0, request=Client([1]).request)
    slot.stats = {"draft-simple": DrafterStats("draft-simple")}
    policy._common = {True: promise, False: promise}
    policy._seconds_for_probes = seconds_for_probes
    policy.propose(script, [Want(slot, 16)])
    assert script.asked["draft-simple"] == is_asked
    assert policy._seconds_for_probes == pytest.approx(seconds_for_probes - (0.05 if is_asked and promise < 0 else 0))


def test_hope_follows_the_text_and_forgets_it() -> None:
    hope = Hope({True: 0.1, False: 0.1})
    for _ in range(20):
        hope.learn(True, -0.2)
    assert -0.2 < hope.values[True] < -0.12
    assert hope.values[False] == 0.1
    assert hope.at_best(True) < 0
    for _ in range(200):
        hope.fade()
    assert hope.at_best(True) > 0


def test_one_try_does_not_decide() -> None:
    """The machine hesitated for a hundred steps while the model drafted."""
    script = Script({"draft-simple": ([0.95] * 3, 0.05)})
    policy = AutoPolicy(Planner(CostCurve(dict(CPU)), CostCurve({1: 0.05})))
    slot = Slot(0, request=Client([1]).request, stats={"draft-simple": DrafterStats("draft-simple")})
    for step in range(20):
        script.offers["draft-simple"] = ([0.95] * 3, 100.0 if step == 10 else 0.05)
        slot.draft = Proposal()
        slot.offers.clear()
        policy.propose(script, [Want(slot, 16)])
        policy.settled(slot, [0, 1, 2, 3])
        policy.spent(4, 4, CPU[4])
    assert script.asked["draft-simple"] == 20


def test_a_useless_model_costs_two_per_cent_at_most() -> None:
    script = Script({"draft-simple": ([0.02] * 4, 0.1)})
    speed, _ = simulate(script, 0, n_steps=2000)
    assert speed > 0.97
    assert script.asked["draft-simple"] < 600


def test_a_model_that_becomes_useful_is_noticed() -> None:
    """It is probed now and then, and what it says is compared with the text even when it is not checked."""
    script = Script({"draft-simple": ([0.05] * 4, 0.05)})
    true = CostCurve(dict(CPU))
    policy = AutoPolicy(Planner(CostCurve(dict(CPU)), CostCurve({1: 0.05})))
    slot = Slot(0, request=Client([1]).request, stats={"draft-simple": DrafterStats("draft-simple")})
    checked = []
    for step in range(3000):
        if step == 1000:
            script.offers["draft-simple"] = ([0.95] * 4, 0.05)
        slot.draft = Proposal()
        slot.offers.clear()
        policy.propose(script, [Want(slot, 16)])
        right = len(slot.draft) if step >= 1000 else 0
        checked.append(len(slot.draft))
        policy.settled(slot, [*range(right), right if step >= 1000 else 99])
        policy.spent(1 + len(slot.draft), right + 1, true.predict(1 + len(slot.draft)))
    assert sum(checked[500:1000]) < 20
    assert sum(checked[-200:]) > 200


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.6, 1.0]),
    st.booleans(),
)
def test_the_text_is_the_same_under_the_auto_policy(texts: list[list[int]], p: float, exact: bool) -> None:
    context = FakeContext(n_ctx=256, n_seqs=2, exact=exact)
    engine = make_engine(context, Prophet(p))
    engine.drafting.policy = AutoPolicy(Planner(CostCurve({1: 1e-4, 8: 1.2e-4}), CostCurve(), least=2 * exact))
    clients = [Client(text, max_tokens=30) for text in texts]
    run(engine, *clients)
    for client, text in zip(clients, texts, strict=True):
        assert client.tokens == continuation(text, 30)


def test_no_probe_drafts_past_the_limit() -> None:
    """A model that is only probed, with room for one token: two would write past the request's end."""
    script = Script({"draft-simple": ([0.99] * 4, 0.0)})
    policy = AutoPolicy(Planner(CostCurve({1: 1.0, 2: 1.01, 4: 1.03, 16: 1.1}), CostCurve({1: 0.001})))
    slot = Slot(0, request=Client([1]).request, stats={"draft-simple": DrafterStats("draft-simple")})
    for _ in range(50):
        policy._hope_of(slot).values = dict.fromkeys((True, False), -0.05)
        slot.draft = Proposal()
        slot.offers.clear()
        policy.propose(script, [Want(slot, 1)])
        assert len(slot.draft) <= 1
        policy.settled(slot, [*slot.draft.tokens, 99])
        policy.spent(1 + len(slot.draft), 1 + len(slot.draft), 1.0)
    assert script.asked["draft-simple"] > 0


def test_asking_for_what_is_then_not_checked_gains_nothing() -> None:
    """One slot's token alone is not worth the jump from four to five tokens, however likely it is."""
    jump = CostCurve({4: 1.0, 5: 1.35, 8: 1.45, 16: 2.9})
    policy = AutoPolicy(Planner(jump, CostCurve({1: 0.01})))
    policy._common = {True: 0.1, False: 0.1}
    script = Script({"draft-simple": ([0.9], 0.01)})
    slots = [Slot(i, request=Client([1]).request) for i in range(4)]
    slots[0].stats = {"draft-simple": DrafterStats("draft-simple")}
    policy.propose(script, [Want(slot, 1) for slot in slots])
    assert script.asked["draft-simple"] == 1
    assert not slots[0].draft
    assert policy._hope_of(slots[0]).values[False] < 0.1


def test_a_model_that_failed_its_interview_is_hardly_asked() -> None:
    def n_asked(right: bool) -> int:
        policy = AutoPolicy(Planner(CostCurve(dict(CPU)), CostCurve({1: 0.05})))
        policy.hear("draft-simple", [(0.8, right)] * 30)
        script = Script({"draft-simple": ([0.8] * 4, 0.1)})
        slot = Slot(0, request=Client([1]).request, stats={"draft-simple": DrafterStats("draft-simple")})
        for _ in range(40):
            slot.draft = Proposal()
            slot.offers.clear()
            policy.propose(script, [Want(slot, 16)])
            policy.settled(slot, [99])
            policy.spent(1 + len(slot.draft), 1, CPU[1 + len(slot.draft)])
        return script.asked["draft-simple"]

    assert n_asked(False) < 10 < n_asked(True)


def test_where_nobody_has_anything_to_offer_two_steps_of_three_are_plain() -> None:
    policy = AutoPolicy(Planner(CostCurve(dict(CPU)), CostCurve({1: 0.05})))
    script = Script({"suffix": ([0.1], 0.0)})
    slots = [Slot(i, request=Client([1]).request, stats={"suffix": DrafterStats("suffix")}) for i in range(4)]

    def run(n_steps: int) -> int:
        before = script.asked["suffix"]
        for _ in range(n_steps):
            for slot in slots:
                slot.draft = Proposal()
                slot.offers.clear()
            policy.propose(script, [Want(slot, 8) for slot in slots])
            policy.spent(4 + sum(len(slot.draft) for slot in slots), 4, CPU[4])
        return script.asked["suffix"] - before

    run(40)
    assert run(30) == 10
    script.offers["suffix"] = ([0.95] * 4, 0.0)
    run(30)
    assert run(30) == 30
