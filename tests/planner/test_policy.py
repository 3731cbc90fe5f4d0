"""The auto policy: what does not pay is not checked, what pays is, and unchecked drafts teach too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.drafters.base import Draft
from paceline.drafters.proposal import Proposal
from paceline.planner.base import DraftBudget, Drafted, ShouldContinue
from paceline.planner.change import ChangeCosts
from paceline.planner.costs import CostCurve
from paceline.planner.planner import Planner
from paceline.planner.policy import PAUSE, AutoPolicy
from paceline.planner.questions import Offer
from tests.fakes import Client, FakeContext, Prophet, RecurrentContext, continuation, make_engine, run

CPU = {1: 1.0, 2: 1.36, 3: 1.61, 4: 1.82, 5: 2.26, 6: 2.51, 8: 2.83, 12: 3.88, 16: 4.88, 32: 9.0}
MODEL = "draft-simple"


@dataclass
class Seat:
    seq: int = 0
    draft: Proposal = field(default_factory=Proposal)
    candidates: list[Draft] = field(default_factory=list)


class Script:
    """Drafters that say the same at every step, and a clock that ticks by rule."""

    def __init__(self, offers: dict[str, tuple[list[float], float]], token_seconds: float = 0.05) -> None:
        self.offers = offers
        self.now = 0.0
        self.asked = dict.fromkeys(offers, 0)
        self.reading = 0.0  # before the next question
        self._token_seconds = token_seconds

    def names(self) -> list[str]:
        return list(self.offers)

    def continues(self, name: str) -> bool:
        return name == MODEL

    def token_seconds(self, name: str, n_slots: int) -> float:
        return self._token_seconds if name == MODEL else 0.0

    def question_seconds(self, name: str, n_slots: int) -> float:
        return 2 * self.token_seconds(name, n_slots)

    def clock(self) -> float:
        return self.now

    def ask(
        self, name: str, drafted: Sequence[Drafted], limits: Sequence[int], rules: Sequence[ShouldContinue | None]
    ) -> list[Draft]:
        confidence, seconds = self.offers[name]
        self.asked[name] += 1
        self.now += self.reading
        self.reading = 0.0
        drafts = []
        for slot, limit in zip(drafted, limits, strict=True):
            self.now += seconds
            drafts.append(Draft(list(range(len(confidence)))[:limit], name, confidence[:limit]))
            slot.candidates.append(drafts[-1])
        return drafts


def new_policy() -> AutoPolicy:
    return AutoPolicy(Planner(CostCurve(dict(CPU))))


def proven_policy() -> AutoPolicy:
    """After drafts have gained enough for bold ones."""
    policy = new_policy()
    policy.planner.purse.book(1e9, 0.0, CPU[1])
    return policy


def propose(policy: AutoPolicy, script: Script, *seats: Seat, limit: int = 16) -> None:
    for seat in seats:
        seat.draft = Proposal()
        seat.candidates.clear()
    policy.propose(script, [DraftBudget(seat, limit, script.names()) for seat in seats])


def simulate(script: Script, n_right: int, n_steps: int = 400, policy: AutoPolicy | None = None) -> tuple[float, int]:
    """Speed-up over plain steps when the first `n_right` tokens of every draft are right; steps that checked drafts."""
    true = CostCurve(dict(CPU))
    policy, seat = policy or new_policy(), Seat()
    policy.begin(0, sampled=False)
    n_tokens = n_checked = 0
    seconds = 0.0
    for _ in range(n_steps):
        before = script.now
        propose(policy, script, seat)
        n_drafted = len(seat.draft)
        right = min(n_right, n_drafted)
        step = true.predict(1 + n_drafted)
        n_checked += n_drafted > 0
        n_tokens += right + 1
        seconds += step + script.now - before
        policy.settled(seat, [*range(right), right if right < n_right else 99])
        policy.observe_step(1 + n_drafted, right + 1, n_drafted, step)
    return n_tokens / seconds, n_checked


def test_a_drafter_that_boasts_is_soon_ignored() -> None:
    speed, n_checked = simulate(Script({"suffix": ([0.9] * 6, 0.0)}), 0)
    assert speed > 0.95
    assert n_checked < 60


def test_a_good_look_up_is_taken() -> None:
    speed, n_checked = simulate(Script({"suffix": ([0.9] * 6, 0.0)}), 5)
    assert speed > 2.0
    assert n_checked > 390


def some_great(name: str, *, policy: AutoPolicy) -> float:
    """What is expected of a drafter that gains eight tokens at one of ten questions, and nothing at the others."""
    policy.begin(0, sampled=False)
    policy.set_agreement(MODEL, [(0.5, True)] * 10, 0.05)
    offers = [Offer(Draft([1], name), [], 1, gain, 0.2) for gain in [8.0, *[0.0] * 9]]
    for _ in range(50):
        policy.questions.learn(0, offers, checked=True)
    return policy.gains.common[name]


def test_few_great_promises_of_a_look_up_do_not_hide_many_small_losses() -> None:
    """A model keeps its promises, where sizes are not kept."""
    assert some_great("suffix", policy=new_policy()) < 0
    assert some_great(MODEL, policy=new_policy()) > 0.3
    keeps_sizes = AutoPolicy(Planner(CostCurve(dict(CPU), None, ChangeCosts({1: [2.0, 2.0]}))))
    assert some_great(MODEL, policy=keeps_sizes) < 0


def test_look_ups_rest_by_their_time_where_they_never_help() -> None:
    """A look-up that takes a tenth of a step is asked seldom, one that takes a thousandth always: nothing is counted
    in tokens."""
    slow, quick = Script({"suffix": ([0.1] * 6, 0.1)}), Script({"suffix": ([0.1] * 6, 0.001)})
    assert simulate(slow, 0, n_steps=1000)[0] > 0.97
    simulate(quick, 0, n_steps=1000)
    assert slow.asked["suffix"] < 250
    assert quick.asked["suffix"] == 1000


def test_where_nobody_pays_the_policy_itself_rests() -> None:
    """Deciding takes time too: a fiftieth of a plain step here, each time the clock is read."""

    class Slow(Script):
        def clock(self) -> float:
            self.now += 0.02
            return self.now

    policy, script, seat = new_policy(), Slow({"suffix": ([0.05] * 6, 0.3)}), Seat()
    policy.begin(0, sampled=False)
    n_rests = 0
    for _ in range(1000):
        if policy.rests:
            n_rests += 1
            policy.observe_step(1, 1, 0, 1.0)
            continue
        propose(policy, script, seat)
        policy.settled(seat, [99])
        policy.observe_step(1 + len(seat.draft), 1, len(seat.draft), 1.0)
    assert n_rests > 600


def test_who_is_not_worth_asking_is_not_considered_again_at_once() -> None:
    """Considering costs nothing by this clock, so that there is always time left for it."""
    policy, script, seat = new_policy(), Script({"suffix": ([0.05] * 6, 0.3)}), Seat()
    policy.gains.common["suffix"] = -1.0
    policy.begin(0, sampled=False)
    considered = []
    for step in range(100):
        if not policy.rests:
            considered.append(step)
            propose(policy, script, seat)
        policy.observe_step(1, 1, 0, 1.0)
    assert script.asked["suffix"] == 0
    assert considered == list(range(0, 100, PAUSE))
    policy.begin(1, sampled=False)
    assert not policy.rests, "a new text is looked at at once"


def lengths(curve: CostCurve, n_right: int, n_steps: int) -> list[int]:
    """Of the drafts that are checked of somebody who is sure of everything, of which the first tokens are right."""
    policy, script, seat = AutoPolicy(Planner(curve)), Script({"suffix": ([0.99] * 40, 0.0)}), Seat()
    policy.begin(0, sampled=False)
    found = []
    for _ in range(n_steps):
        propose(policy, script, seat, limit=40)
        found.append(len(seat.draft))
        right = min(n_right, found[-1])
        policy.settled(seat, [*range(right), right if right < n_right else 99])
        policy.observe_step(1 + found[-1], right + 1, found[-1], curve.predict(1 + found[-1]))
    return found


def test_drafts_of_a_new_process_are_short_where_tokens_are_dear_and_grow_with_what_they_gain() -> None:
    bold = lengths(CostCurve(dict(CPU)), 99, 5)
    assert 1 <= bold[0] <= 2
    assert bold == sorted(bold)
    assert bold[-1] == 40


def test_who_promises_and_fails_from_the_start_costs_a_first_answer_little() -> None:
    """Sure of every token and always wrong, in 40 steps: by its word each draft is a good bet."""
    curve = CostCurve(dict(CPU))
    seconds = sum(curve.predict(1 + n) for n in lengths(curve, 0, 40))
    assert 40 * CPU[1] / seconds > 0.95


def test_several_slots_are_bold_from_the_start_since_they_spread_their_risk() -> None:
    policy, script, seats = new_policy(), Script({"suffix": ([0.99] * 8, 0.0)}), [Seat(seq) for seq in range(2)]
    propose(policy, script, seats[0])
    alone = len(seats[0].draft)
    propose(policy, script, *seats)
    assert min(len(seat.draft) for seat in seats) > alone


def test_where_a_step_costs_the_same_whatever_its_size_drafts_begin_long() -> None:
    assert lengths(CostCurve({1: 1.0, 2: 1.1, 64: 1.4}), 99, 1) == [40]
    gpu = ChangeCosts({1: [2.0, 2.0]})
    assert lengths(CostCurve({1: 1.0, 2: 1.4, 64: 1.8}, None, gpu), 99, 1) == [40]


def test_the_model_is_not_asked_where_a_look_up_pays() -> None:
    script = Script({"suffix": ([0.95] * 6, 0.001), MODEL: ([0.9] * 6, 0.2)})
    simulate(script, 6)
    assert script.asked["suffix"] == 400
    assert script.asked[MODEL] < 10


def test_a_dear_good_model_is_used_beside_a_cheap_mediocre_look_up() -> None:
    script, policy = Script({"suffix": ([0.7], 0.001), MODEL: ([0.95] * 6, 0.2)}), new_policy()
    policy.set_agreement(MODEL, [(0.95, True)] * 30, 0.03)
    speed, _ = simulate(script, 6, policy=policy)
    assert script.asked[MODEL] > 350
    assert speed > 1.8


def test_one_text_must_show_much_of_a_model_that_is_asked_from_the_start() -> None:
    """Four tokens of seven right do not, nine of ten do; the former is tried later."""
    right, wrong = (0.7, True), (0.6, False)
    fair, good = [right, right, wrong, wrong, right, wrong, right] * 4, [(0.95, True)] * 9 + [(0.3, False)]
    for agreements, asked in ((fair, False), (good, True)):
        script, policy = Script({MODEL: ([0.8] * 4, 0.1)}, 0.02), new_policy()
        policy.set_agreement(MODEL, agreements, 0.02, 0.05)
        simulate(script, 3, 40, policy)
        assert bool(script.asked[MODEL]) is asked
        simulate(script, 3, 400, policy)
        assert script.asked[MODEL] > 100


def test_exploration_is_saved_up_before_it_is_spent() -> None:
    """Of a model that promised nothing. A question takes a tenth of a step, which is what twenty steps allow."""
    script, policy = Script({MODEL: ([0.05] * 4, 0.1)}, 0.02), new_policy()
    policy.set_agreement(MODEL, [(0.05, False)] * 30, 0.02, 0.03)
    script.reading = 0.4
    simulate(script, 0, 100, policy)
    assert script.asked[MODEL] == 0, "reading is thought to take sixteen questions"
    simulate(script, 0, 300, policy)
    assert 1 <= script.asked[MODEL] <= 15


def test_reading_a_text_does_not_silence_a_model_that_is_good_there() -> None:
    """It was not elsewhere, so asking is exploration; reading takes more than can be saved up for that. The text's
    beginning is hard to guess."""
    script, policy = Script({MODEL: ([0.05] * 4, 0.05)}, 0.01), new_policy()
    for _ in range(3):
        simulate(script, 0, 200, policy)
        policy.end(0)
    script.reading = 6.0
    simulate(script, 0, 20, policy)
    assert script.reading == 0.0, "it was asked"
    script.offers[MODEL] = ([0.95] * 4, 0.05)
    _, n_checked = simulate(script, 4, 200, policy)
    assert n_checked > 100


def test_catching_up_with_a_text_is_no_part_of_a_questions_price() -> None:
    """A model that rested for a while has much to read before it says something."""
    script, policy, seat = Script({MODEL: ([0.9] * 4, 0.05)}, 0.01), new_policy(), Seat()
    policy.begin(0, sampled=False)
    for n_context in (10, 12, 14, 16):
        policy.propose(script, [DraftBudget(seat, 16, script.names(), n_context)])
    usual = policy.gains.seconds[MODEL]
    script.reading = 3.0
    policy.propose(script, [DraftBudget(seat, 16, script.names(), 90)])
    assert script.reading == 0.0, "it was asked"
    assert policy.gains.seconds[MODEL] == usual == pytest.approx(0.05)
    script.reading = 0.02
    policy.propose(script, [DraftBudget(seat, 16, script.names(), 92)])
    assert policy.gains.seconds[MODEL] > usual


def test_a_text_is_read_only_where_that_is_worth_it_for_what_may_follow() -> None:
    """The interview promises a little, reading takes as long as two plain steps."""
    for n_left, asked in ((4, 0), (200, 1)):
        policy, seat = new_policy(), Seat()
        policy.begin(0, sampled=False)
        policy.gains.common[MODEL] = 0.05
        script = Script({MODEL: ([0.9] * 4, 0.05)}, 2 / 32)
        policy.propose(script, [DraftBudget(seat, 16, script.names(), n_left=n_left)])
        assert script.asked[MODEL] == asked


def test_long_questions_about_one_text_do_not_make_the_next_look_dear() -> None:
    policy = proven_policy()
    simulate(Script({MODEL: ([0.98] * 16, 1.5)}), 16, 200, policy)
    policy.end(0)
    short = Script({MODEL: ([0.9] * 2, 0.1)})
    simulate(short, 2, 150, policy)
    assert short.asked[MODEL] > 140


def test_a_useless_model_costs_two_per_cent_at_most() -> None:
    script = Script({MODEL: ([0.02] * 4, 0.1)})
    assert simulate(script, 0, n_steps=2000)[0] > 0.98
    assert script.asked[MODEL] < 400


def test_a_model_too_slow_to_pay_is_never_asked() -> None:
    script = Script({MODEL: ([0.9] * 4, 4.0)}, token_seconds=1.0)
    assert simulate(script, 4)[0] == 1.0
    assert script.asked[MODEL] == 0


def test_why_a_model_is_not_used_is_said_once_in_numbers(caplog: pytest.LogCaptureFixture) -> None:
    policy = new_policy()
    simulate(Script({MODEL: ([0.9] * 4, 4.0)}, token_seconds=0.9), 4, policy=policy)
    simulate(Script({MODEL: ([0.9] * 4, 4.0)}, token_seconds=0.9), 4, policy=policy)
    said = [record.message for record in caplog.records]
    batches = "2260.0 ms for a batch of 5 tokens, 1000.0 ms for one of 1"
    assert said == [f"draft-simple: 900.0 ms a draft token, {batches}: it cannot pay"]
    caplog.clear()
    useless = new_policy()
    useless.set_agreement(MODEL, [(0.5, False)] * 20, 0.01)
    for _ in range(8):
        simulate(Script({MODEL: ([0.02] * 4, 0.05)}, token_seconds=0.01), 0, 2000, useless)
        useless.end(0)
    (told,) = [record.message.split() for record in caplog.records]
    assert told[:4] == ["draft-simple:", "a", "question", "takes"]
    assert float(told[4]) == pytest.approx(50, rel=0.01)


def test_where_it_is_the_batches_that_are_dear_they_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Two slots on a machine where every token costs a plain step: no draft can pay, however quick."""
    policy = AutoPolicy(Planner(CostCurve({n: float(n) for n in (1, 2, 4, 8, 16, 32)})))
    propose(policy, Script({MODEL: ([0.9] * 4, 0.1)}, token_seconds=0.001), Seat(0), Seat(1))
    said = [record.message for record in caplog.records]
    batches = "10000.0 ms for a batch of 10 tokens, 2000.0 ms for one of 2"
    assert said == [f"draft-simple: 1.0 ms a draft token, {batches}: it cannot pay"]


def test_one_try_does_not_decide() -> None:
    """The machine hesitated for a hundred steps while the model drafted."""
    script, policy, seat = Script({MODEL: ([0.95] * 3, 0.05)}), new_policy(), Seat()
    for step in range(20):
        script.offers[MODEL] = ([0.95] * 3, 100.0 if step == 10 else 0.05)
        propose(policy, script, seat)
        policy.settled(seat, [0, 1, 2, 3])
        policy.observe_step(4, 4, 3, CPU[4])
    assert script.asked[MODEL] == 20


def test_a_model_that_becomes_useful_is_noticed() -> None:
    """It is probed now and then, and what it says is compared with the text even when it is not checked."""
    script, policy, seat, true = Script({MODEL: ([0.05] * 4, 0.05)}), new_policy(), Seat(), CostCurve(dict(CPU))
    checked = []
    for step in range(3000):
        if step == 1000:
            script.offers[MODEL] = ([0.95] * 4, 0.05)
        propose(policy, script, seat)
        n = len(seat.draft)
        right = n if step >= 1000 else 0
        checked.append(n)
        policy.settled(seat, [*range(right), right if step >= 1000 else 99])
        policy.observe_step(1 + n, right + 1, n, true.predict(1 + n))
    assert sum(checked[500:1000]) < 20
    assert sum(checked[-200:]) > 200


def test_a_model_that_does_well_in_the_probe_is_used_from_the_first_step_and_another_is_not() -> None:
    def n_asked(right: bool) -> int:
        policy, script, seat = new_policy(), Script({MODEL: ([0.8] * 4, 0.1)}), Seat()
        policy.set_agreement(MODEL, [(0.8, right)] * 30, 0.05)
        for _ in range(40):
            propose(policy, script, seat)
            n = len(seat.draft)
            policy.settled(seat, [*range(n), n])
            policy.observe_step(1 + n, 1 + n, n, CPU[1 + n])
        return script.asked[MODEL]

    assert n_asked(False) < 10
    assert n_asked(True) == 40


def test_what_the_probe_promises_depends_on_the_company() -> None:
    """With eight slots a batch is dear already: the model that is used for one is not for eight, and for one again."""
    policy, script = proven_policy(), Script({MODEL: ([0.8] * 4, 0.1)})
    policy.set_agreement(MODEL, [(0.8, True)] * 30, 0.05)
    seats = [Seat(seq) for seq in range(8)]

    def n_asked(*company: Seat) -> int:
        before = script.asked[MODEL]
        for _ in range(10):
            propose(policy, script, *company)
            for seat in company:
                policy.settled(seat, [*range(len(seat.draft) + 1)])
            policy.observe_step(len(company), len(company), 0, CPU[len(company)])
        return script.asked[MODEL] - before

    assert n_asked(seats[0]) == 10
    assert n_asked(*seats) < 3
    assert n_asked(seats[0]) == 10


def test_asking_for_what_is_then_not_checked_gains_nothing() -> None:
    """One slot's token alone is not worth the jump from four to five tokens, however likely it is."""
    policy = AutoPolicy(Planner(CostCurve({4: 1.0, 5: 1.35, 8: 1.45, 16: 2.9})))
    script, seats = Script({MODEL: ([0.9], 0.01)}, 0.01), [Seat(i) for i in range(4)]
    before = policy.gains.of(0, MODEL).expected
    policy.propose(script, [DraftBudget(seat, 1, script.names() if seat.seq == 0 else ()) for seat in seats])
    assert script.asked[MODEL] == 1
    assert not seats[0].draft
    assert policy.gains.of(0, MODEL).expected < before


def test_no_draft_goes_past_the_limit_or_stays_under_the_minimum() -> None:
    script, policy, seat = Script({"suffix": ([0.99] * 6, 0.0)}), proven_policy(), Seat()
    policy.propose(script, [DraftBudget(seat, 2, script.names())])
    assert len(seat.draft) == 2
    policy.propose(script, [DraftBudget(seat, 2, script.names(), n_min=5)])
    assert len(seat.draft) == 0


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.6, 1.0]),
    st.sampled_from(["cpu", "gpu", "exact", "recurrent", "snapshots"]),
)
def test_the_text_is_the_same_under_the_auto_policy(texts: list[list[int]], p: float, machine: str) -> None:
    exact = machine == "exact"
    n_rollback = {"recurrent": 0, "snapshots": 4}.get(machine)
    context = FakeContext(n_ctx=256, n_seqs=2, exact=exact)
    if n_rollback is not None:
        context = RecurrentContext(n_rollback, n_ctx=256, n_seqs=2)
    engine = make_engine(context, Prophet(p))
    change = (1e-4, 1e-4) if machine == "gpu" else (0.0, 0.0)
    curve = CostCurve({1: 1e-4, 8: 1.2e-4}, change=ChangeCosts({1: change}))
    engine.drafting.policy = AutoPolicy(Planner(curve, least=2 if exact else 0, n_rollback=n_rollback))
    clients = [Client(text, max_tokens=30) for text in texts]
    run(engine, *clients)
    for client, text in zip(clients, texts, strict=True):
        assert client.tokens == continuation(text, 30)
