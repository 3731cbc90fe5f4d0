"""The rows of a text against a dictionary of them by position."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.drafters.trace import RowTrace
from paceline.llama.lib import Floats

Action = tuple[str, int, int]
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["go on", "go on", "back", "gap", "cut"]), st.integers(0, 30), st.integers(1, 12))
)


class Model:
    """Every row is a number of its own."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.text: list[int] = []
        self.rows: dict[int, float] = {}
        self.n = 0

    def follow(self, start: int, n: int) -> tuple[list[int], Floats]:
        """The target computes n tokens from `start` on; the text knows one more, which nobody has computed."""
        self.n += 1
        text = [*self.text[:start], *(10 * self.n + i % 7 for i in range(n + 1 + max(0, start - len(self.text))))]
        rows = np.arange(n, dtype=np.float32).reshape(-1, 1) + 100 * self.n
        if not min(self.rows, default=0) <= start <= len(self.text):
            self.rows = {}
        self.rows = {at: row for at, row in self.rows.items() if at < start}
        self.rows |= {start + i: float(row) for i, row in enumerate(rows[:, 0])}
        self.text = text[: start + n]
        self.rows = {at: row for at, row in self.rows.items() if at >= len(self.text) - self.window}
        return text, rows

    def cut(self, n: int) -> None:
        self.text = self.text[:n]
        self.rows = {at: row for at, row in self.rows.items() if at < n}


@settings(max_examples=300, deadline=None, derandomize=True)
@given(window=st.sampled_from([1, 3, 8, 20]), actions=ACTIONS)
def test_rows_are_those_that_were_handed_out(window: int, actions: list[Action]) -> None:
    trace, model = RowTrace(window), Model(window)
    for action, where, n in actions:
        end = len(model.text)
        if action == "cut":
            trace.cut(min(where, end))
            model.cut(min(where, end))
        else:
            start = {"go on": end, "back": min(where, end), "gap": end + n % 4}[action]
            trace.follow(start, *model.follow(start, n))
        assert trace.text == model.text
        assert trace.end - trace.start == len(model.rows)
        found = trace.rows(trace.start, trace.end)[:, 0].tolist() if model.rows else []
        assert dict(enumerate(found, start=trace.start)) == model.rows


def test_what_a_text_has_in_common() -> None:
    trace = RowTrace(4)
    trace.follow(0, [5, 6, 7, 8], np.zeros((3, 1), np.float32))
    assert trace.n_common([]) == 0
    assert trace.n_common([5, 6]) == 2
    assert trace.n_common([5, 9, 7]) == 1
    assert trace.n_common([5, 6, 7, 8]) == 3, "the last one nobody has computed"


def test_the_last_row_is_that_of_the_last_token_but_one() -> None:
    trace = RowTrace(4)
    assert not trace.ends_before_last([5])
    trace.follow(0, [5, 6, 7, 8], np.zeros((3, 1), np.float32))
    assert trace.ends_before_last([5, 6, 7, 8])
    assert not trace.ends_before_last([5, 6, 7, 8, 9])
    assert not trace.ends_before_last([5, 6, 7])
