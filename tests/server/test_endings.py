"""Answers that end by their clock or by the layout of their lines."""

from __future__ import annotations

import pytest

from paceline.server.endings import Ending, Indent


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("n", "text", "kept", "over"),
    [
        (0, "a\nb\n", "a\nb\n", False),
        (2, "first\n  x\n   y\n  z", "first\n  x\n   y\n  z", False),
        (2, "first\n  x\ny\n", "first\n  x\n", True),
        (2, "first\n x\n", "first\n ", True),
        (2, "first\n\n  x", "first\n", True),
        (2, "\t\tfirst\n\t\tx", "\t\tfirst\n\t\tx", False),
        (4, "first\n  ", "first\n  ", False),
    ],
)
def test_lines_keep_their_indentation(n: int, text: str, kept: str, over: bool, size: int) -> None:
    indent = Indent(n)
    assert "".join(indent.kept(text[i : i + size]) for i in range(0, len(text), size)) == kept
    assert indent.over == over


def test_time_runs_out_at_the_end_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("paceline.server.endings.perf_counter", lambda: now)
    ending = Ending(500, 0)
    assert (ending.kept("a"), ending.over) == ("a", False)
    now += 1
    assert (ending.kept("b"), ending.over) == ("b", False)
    assert (ending.kept("c\n"), ending.over) == ("c\n", True)
