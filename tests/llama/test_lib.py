from __future__ import annotations

import logging

import pytest

from paceline.llama.lib import LEVEL_CONTINUE, LEVEL_DEBUG, LEVEL_ERROR, LEVEL_INFO, LEVEL_WARN, log

NAME = "paceline.llama"


def say(level: int, text: str) -> None:
    """As libllama does."""
    log._on_line(level, text.encode(), None)


def test_lines_reach_the_logger_at_their_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, NAME)
    say(LEVEL_DEBUG, "graph\n")
    say(LEVEL_INFO, "loading ")
    say(LEVEL_CONTINUE, ".")
    say(LEVEL_CONTINUE, "\n")
    say(LEVEL_WARN, "odd: 100 %s\n")
    say(LEVEL_ERROR, "broken\n")
    found = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert found == [
        ("DEBUG", "graph"),
        ("INFO", "loading"),
        ("INFO", "."),
        ("WARNING", "odd: 100 %s"),
        ("ERROR", "broken"),
    ]


def test_what_nobody_wants_is_not_even_decoded(caplog: pytest.LogCaptureFixture) -> None:
    class Text(bytes):
        def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
            raise AssertionError

    caplog.set_level(logging.WARNING, NAME)
    log._on_line(LEVEL_DEBUG, Text(b"graph"), None)
    log._on_line(LEVEL_INFO, Text(b"loading"), None)


def test_the_last_warnings_and_errors_are_kept_whatever_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, NAME)
    log.clear()
    say(LEVEL_INFO, "loading")
    for n in range(30):
        say(LEVEL_WARN, f"warning {n}")
    say(LEVEL_ERROR, "load: it broke")
    assert log.tail() == [*(f"warning {n}" for n in range(11, 30)), "load: it broke"]
    assert log.reason() == "it broke"
    log.clear()
    assert log.reason() == "libllama gave no reason"
    assert log.tail()[-1] == "load: it broke"
