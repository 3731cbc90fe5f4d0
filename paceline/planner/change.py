"""What changing the size of batches costs, by the size changed to.

libllama builds its graph anew for another number of tokens, and a GPU's captured graph is made anew one step later.
Both take longer for large batches, which use other kernels: on an H200 the first two steps of 64 tokens take 14 ms
longer, those of one token 5 ms. On a CPU it is next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WARM = 2  # steps of one size after which no change is felt
RATE = 0.1
FAR = 3.0  # a step is believed to have taken at most so many times what was known


class ChangeCosts:
    """Seconds that the first and the second step of a size take longer. Sizes in between count as the next larger."""

    def __init__(self, by_size: Mapping[int, Sequence[float]] | None = None) -> None:
        self.by_size = {n: list(seconds[:WARM]) for n, seconds in sorted((by_size or {1: (0.0,) * WARM}).items())}

    def _near(self, n: int) -> list[float]:
        for size, seconds in self.by_size.items():
            if size >= n:
                return seconds
        return seconds

    def at(self, n: int, age: int) -> float:
        """What a batch of n tokens takes longer when so many of its size came just before."""
        return self._near(n)[age] if age < WARM else 0.0

    def whole(self, n: int) -> float:
        """Until batches of n tokens cost what they should."""
        return sum(self._near(n))

    def learn(self, n: int, age: int, felt: float) -> None:
        known = self._near(n)
        most = FAR * max(known[age], self.by_size[1][age] if 1 in self.by_size else 0.0)
        known[age] += RATE * (min(most, max(0.0, felt)) - known[age])
