"""Which replica a request goes to: where the longest part of its prompt was read before, unless that one has more than
its share of the work. Knows hashes of prefixes, names and counts; nothing of Ray, sockets or engines, so that
`benchmarks/growth.py` asks the same code."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence
from math import ceil

from paceline.engine.request import Request

BLOCK = 32  # tokens
N_REMEMBERED = 2**18
"""Blocks, each counted once for every replica that has read it: some 60 MiB."""
SHARE = 1.25
"""Times the mean load a replica may have (consistent hashing with bounded loads, arXiv 1608.01350)."""


def prefix_hashes(request: Request) -> list[int]:
    """One for each whole block of the prompt, which stands for all tokens up to its end. Adapters read differently."""
    tokens = request.tokens
    last, hashes = hash(request.adapter or 0), []
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        last = hash((last, *tokens[start : start + BLOCK]))
        hashes.append(last)
    return hashes


class Routes:
    """Where which prefixes were sent, and how many requests everybody has. The least recently used are forgotten."""

    def __init__(self, n_slots: int, n_remembered: int = N_REMEMBERED) -> None:
        self.loads: dict[str, int] = {}
        self._n_slots = n_slots
        self._n_remembered = n_remembered
        self._readers: OrderedDict[int, set[str]] = OrderedDict()
        self._n_blocks: Counter[str] = Counter()
        self._n_pairs = 0

    def join(self, replica: str, load: int = 0) -> None:
        self.loads[replica] = load

    def leave(self, replica: str) -> None:
        """Nobody is sent there any more. What it had read is forgotten by and by: names do not come back."""
        self.loads.pop(replica, None)
        self._n_blocks.pop(replica, None)

    def choose(self, hashes: Sequence[int], able: Collection[str]) -> str:
        """Among these, of which there is at least one."""
        most = self._most(len(able))
        for prefix in reversed(hashes):
            readers = self._readers.get(prefix)
            free = [name for name in readers if name in able and self.loads[name] < most] if readers else ()
            if free:
                return min(free, key=self.loads.__getitem__)
        return min(able, key=lambda name: (self.loads[name], self._n_blocks[name]))

    def _most(self, n_replicas: int) -> int:
        """A load that is too much. One that has slots to spare never has it."""
        return max(self._n_slots, ceil(SHARE * (sum(self.loads.values()) + 1) / n_replicas))

    def sent(self, hashes: Sequence[int], replica: str) -> None:
        """A request has gone there, and its prompt will be read."""
        self.loads[replica] += 1
        for prefix in hashes:
            readers = self._readers.setdefault(prefix, set())
            self._readers.move_to_end(prefix)
            if replica not in readers:
                readers.add(replica)
                self._n_pairs += 1
                self._n_blocks[replica] += 1
        while self._n_pairs > self._n_remembered:
            _, readers = self._readers.popitem(last=False)
            self._n_pairs -= len(readers)
            self._n_blocks.subtract(name for name in readers if name in self.loads)

    def done(self, replica: str) -> None:
        """A request that had gone there has ended, or goes elsewhere."""
        if replica in self.loads:
            self.loads[replica] -= 1
