"""When an answer ends by its clock or its layout, as editors ask for: llama-server's t_max_predict_ms and n_indent."""

from __future__ import annotations

import re
from time import perf_counter

BLANKS = re.compile(r"[ \t]*")


class Ending:
    """Watches one answer go by. `over` once it is to end."""

    def __init__(self, t_max_ms: int, n_indent: int) -> None:
        self._deadline = Deadline(t_max_ms)
        self._indent = Indent(n_indent)
        self.over = False

    def kept(self, text: str) -> str:
        """What of this text still belongs to the answer."""
        kept = self._indent.kept(text)
        self.over = self.over or self._indent.over or self._deadline.passed(text)
        return kept


class Deadline:
    """So long after the first token, and not before a line is complete."""

    def __init__(self, ms: int) -> None:
        self._ms = ms
        self._first: float | None = None
        self._line = False

    def passed(self, text: str) -> bool:
        if not self._ms:
            return False
        now = perf_counter()
        self._first = self._first or now
        self._line = self._line or "\n" in text
        return self._line and 1e3 * (now - self._first) > self._ms


class Indent:
    """Every line but the first begins with so many blanks; with the first that does not, the answer is over."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._line = ""
        self._first = True
        self.over = False

    def kept(self, text: str) -> str:
        if self._n <= 0 or not text:
            return text
        kept = ""
        for part in text.splitlines(keepends=True) if not self.over else ():
            kept += self._kept_of_line(part)
            if self.over:
                break
        return kept

    def _kept_of_line(self, part: str) -> str:
        """A line, or what has come of it."""
        n_before, self._line = len(self._line), self._line + part
        found = BLANKS.match(self._line)
        n_blanks = found.end() if found else 0
        self.over = not self._first and n_blanks < min(self._n, len(self._line))
        if self.over:
            return self._line[n_before:n_blanks]
        if part.endswith("\n"):
            self._line, self._first = "", False
        return part
