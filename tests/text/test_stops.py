from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.text.stops import StopMatcher

# Two letters make overlaps, self-overlaps and stops inside stops common.
WORD = st.text("ab", min_size=1, max_size=5)
STOPS = st.lists(WORD, max_size=5)
PUSHES = st.lists(st.text("abc", max_size=6), max_size=8)


def reference(stops: list[str], text: str) -> tuple[str, str | None]:
    """Slow and obvious: look at the text after each character."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


def needlessly_held(stops: list[str], held: str) -> bool:
    return not any(stop != held and stop.startswith(held) for stop in stops)


@given(STOPS, PUSHES)
@example(["ab", "b"], ["a", "b"])
@example(["aab"], ["aaab"])
@example(["abab", "ba"], ["ab", "abc"])
def test_any_split_gives_what_the_slow_reference_gives(stops: list[str], pushes: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = "".join([matcher.push(text) for text in pushes] + [matcher.flush()])
    assert (shown, matcher.stopped) == reference(stops, "".join(pushes))


@given(STOPS, PUSHES)
def test_no_more_is_held_back_than_may_become_a_stop(stops: list[str], pushes: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = "".join(matcher.push(text) for text in pushes)
    if matcher.stopped is None:
        held = "".join(pushes)[len(shown) :]
        assert not held or not needlessly_held(stops, held)


def test_what_may_become_a_stop_waits_until_it_cannot() -> None:
    matcher = StopMatcher(["</end>"])
    assert matcher.push("text </e") == "text "
    assert matcher.push("m> and <") == "</em> and "
    assert matcher.flush() == "<"
    assert matcher.stopped is None


def test_nothing_after_a_stop_is_shown() -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.push("go STO") == "go "
    assert matcher.push("P now") == ""
    assert matcher.stopped == "STOP"
    assert matcher.push("more") == ""
    assert matcher.flush() == ""


def test_the_first_to_end_wins_over_the_first_to_start() -> None:
    matcher = StopMatcher(["a long one", "long"])
    assert matcher.push("such a long one") == "such a "
    assert matcher.stopped == "long"


def test_the_longest_of_those_that_end_together_wins() -> None:
    matcher = StopMatcher(["one", "a long one"])
    assert matcher.push("such a long one") == "such "
    assert matcher.stopped == "a long one"


def test_without_stops_text_passes_at_once() -> None:
    matcher = StopMatcher([])
    assert matcher.push("anything\n") == "anything\n"
    assert matcher.flush() == ""


def test_ten_thousand_stops_cost_little() -> None:
    stops = [f"<stop number {n}>" for n in range(10_000)]
    text = "an <stop number -1> is held back for long, " * 500
    started = time.process_time()
    matcher = StopMatcher(stops)
    shown = "".join(matcher.push(char) for char in text + "<stop number 9999>")
    # About 0.05 s; trying every stop string at every character takes minutes.
    assert time.process_time() - started < 2.0
    assert (shown, matcher.stopped) == (text, "<stop number 9999>")


@pytest.mark.parametrize("stops", [[""], ["a", ""], "END", [3], [None]])
def test_stops_that_cannot_be_meant_are_refused(stops: list[str]) -> None:
    with pytest.raises(ConfigError, match="stop string"):
        StopMatcher(stops)
