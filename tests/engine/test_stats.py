"""Statistics in events: copies that stand still, made anew only when something happened."""

from __future__ import annotations

from paceline.engine.stats import DrafterStats, Records


def test_copies_are_made_again_when_a_drafter_was_asked_and_not_before() -> None:
    stats, records = {"suffix": DrafterStats("suffix")}, Records()
    first = records.of(stats)
    assert records.of(stats) is first
    stats["suffix"].asked(1, 0.5)
    stats["suffix"].count(3, 2)
    (second,) = records.of(stats)
    assert (second.n_calls, second.n_accepted_tokens, second.drafted_at) == (1, 2, [1, 1, 1])
    assert first[0].n_calls == 0
    assert second is not stats["suffix"]


def test_another_request_in_the_slot_has_its_own() -> None:
    records = Records()
    records.of({"suffix": DrafterStats("suffix", begin_ms=3.0)})
    (copy,) = records.of({"suffix": DrafterStats("suffix")})
    assert copy.begin_ms == 0
