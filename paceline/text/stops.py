"""Stop strings in streamed text. Knows characters, and what tokens stand for; nothing of requests.

The text ends at the first character that completes any stop string; of several that end there the longest counts. The
rule looks at one character after the other, so the result does not depend on how the text was cut into pushes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from paceline.errors import ConfigError
from paceline.text.detokenizer import Detokenizer


class StopMatcher:
    """Passes on text up to the first stop string, holding back an ending that may still become one.

    Kept: the stop strings, sorted, so that "is this the start of one?" is a binary search. A character costs
    O(log n) for n stop strings, and one set look-up per distinct length no longer than what is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str):
            raise ConfigError(f"stop strings must be a list, got the string {stops!r}")
        for stop in stops:
            if not isinstance(stop, str):
                raise ConfigError(f"a stop string must be text, got {stop!r}")
            if not stop:
                raise ConfigError("a stop string must not be empty")
        self._stops = frozenset(stops)
        self._sorted = sorted(self._stops)
        self._lengths = sorted({len(stop) for stop in self._stops})
        self._first_chars = frozenset(stop[0] for stop in self._stops)
        self._held = ""
        self.stopped: str | None = None

    def push(self, text: str) -> str:
        """The text that is safe to show now; nothing once stopped."""
        if self.stopped is not None:
            return ""
        total = self._held + text
        for end, char in enumerate(text, start=len(self._held) + 1):
            if not self._held and char not in self._first_chars:
                continue
            self._held = self._longest_start(self._held + char)
            self.stopped = self._stop_at_end_of_held()
            if self.stopped is not None:
                self._held = ""
                return total[: end - len(self.stopped)]
        return total[: len(total) - len(self._held)]

    def flush(self) -> str:
        """The end of the text: what was held back and did not become a stop string."""
        text, self._held = self._held, ""
        return text

    def _longest_start(self, text: str) -> str:
        """The longest ending of `text` with which a stop string starts."""
        while text and not self._starts_a_stop(text):
            text = text[1:]
        return text

    def _starts_a_stop(self, text: str) -> bool:
        at = bisect_left(self._sorted, text)
        return at < len(self._sorted) and self._sorted[at].startswith(text)

    def _stop_at_end_of_held(self) -> str | None:
        longest = None
        for length in self._lengths:
            if length > len(self._held):
                break
            if self._held[-length:] in self._stops:
                longest = self._held[-length:]
        return longest


class TextStream:
    """Tokens to text, up to a stop string. `pieces` gives a token's bytes."""

    def __init__(self, pieces: Callable[[int], bytes], stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(pieces)
        self._matcher = StopMatcher(stops) if stops else None

    def push(self, token: int) -> str:
        text = self._detokenizer.push(token)
        return self._matcher.push(text) if self._matcher else text

    def flush(self) -> str:
        """The end of the text: what was held back and is no part of a stop string."""
        text = self._detokenizer.flush()
        return self._matcher.push(text) + self._matcher.flush() if self._matcher else text

    @property
    def stopped(self) -> str | None:
        return self._matcher.stopped if self._matcher else None


def stop_check(pieces: Callable[[int], bytes], stops: Sequence[str]) -> Callable[[int], bool]:
    """Told token after token: does the text end with this one?"""
    stream = TextStream(pieces, stops)

    def check(token: int) -> bool:
        stream.push(token)
        return stream.stopped is not None

    return check
