"""What steps, drafts and Python cost on machines that were measured: replays and pretended devices go by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.planner.change import ChangeCosts

MS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Milliseconds: a step by tokens, what a change of size adds to it and to the next, context, Python, drafting."""

    steps: dict[int, float]
    change: Mapping[int, tuple[float, float]] = field(default_factory=lambda: {1: (0.0, 0.0)})
    attention: float = 0.0055  # for each token of a batch and each of its context
    python: float = 0.46
    deciding: float = 0.1  # the policy's own time for a slot, when it considers anybody
    looking_up: float = 0.1
    question: float = 0.8  # to the draft model: Python and a cold cache
    token: float = 0.85
    reading: float = 0.12  # each of the last tokens that the draft model has not read
    noise: float = 0.08
    odd: float = 0.05  # the share of steps that take half as long again
    off: float = 0.05  # error of the warm-up

    @property
    def changes(self) -> ChangeCosts:
        return ChangeCosts({n: [MS * ms for ms in both] for n, both in self.change.items()})


GPU: dict[str, Any] = {
    "attention": 0,
    "python": 0.1,
    "deciding": 0.06,
    "looking_up": 0.06,
    "question": 0.25,
    "reading": 0.01,
}
GPU |= {"noise": 0.03, "odd": 0}
QUICK: dict[str, Any] = {
    "attention": 0.0025,
    "python": 0.2,
    "deciding": 0.13,
    "looking_up": 0.09,
    "token": 0.42,
    "question": 0.6,
    "reading": 0.025,
}
STAIRS = QUICK | {
    "attention": 0.0013,
    "deciding": 0.06,
    "looking_up": 0.08,
    "token": 0.45,
    "question": 0.4,
    "noise": 0.05,
    "odd": 0.03,
}
MACHINES = {
    # two cores, on two days and machines: the later one is quicker with one token, and so gains less
    "F16": Machine(
        steps={1: 19.2, 2: 22, 3: 24.8, 4: 26.3, 5: 28.6, 6: 29.8, 8: 35.6, 10: 40.1, 12: 42.5, 16: 52.5, 32: 101}
    ),
    "Q8_0": Machine(
        steps={1: 10.8, 2: 13.7, 3: 15.6, 4: 17.7, 5: 22, 6: 24.2, 8: 25.9, 10: 33, 12: 34.5, 16: 43.5, 32: 86}
    ),
    "F16-steep": Machine(
        steps={1: 13.2, 2: 19.2, 3: 21, 4: 25, 5: 26.5, 6: 28.5, 7: 31, 8: 34, 10: 39, 12: 44, 16: 54, 32: 104}
    ),
    "Q8_0-steep": Machine(
        steps={1: 10.5, 2: 18, 3: 26, 4: 26, 5: 32, 6: 32, 7: 38, 8: 38, 10: 44, 12: 50, 16: 66, 32: 130}
    ),
    "Q4_K_M-steep": Machine(
        steps={1: 10.2, 2: 16, 3: 24.4, 4: 24.4, 5: 33, 6: 33, 7: 41, 8: 45, 10: 52, 12: 61, 16: 76, 32: 150}
    ),
    # two cores of yet another: from two tokens on the kernels wait for memory
    "F16-steepest": Machine(
        steps={1: 6.5, 2: 10.4, 3: 11.5, 4: 12.5, 5: 15, 6: 15, 7: 16, 8: 19.6, 10: 21, 12: 23, 16: 25.3, 32: 45},
        change={1: (0.6, 0.0)},
        **QUICK,
    ),
    "Q8_0-steepest": Machine(
        steps={1: 5.1, 2: 11.4, 3: 14.6, 4: 16.6, 5: 19, 6: 20.6, 7: 20.6, 8: 20.6, 10: 24.8, 12: 25, 16: 25.7, 32: 47},
        change={1: (0.65, 0.0)},
        **QUICK,
    ),
    # two cores with AVX-512 (AMD): with F16 from two to six tokens cost nearly the same, with Q8_0 from five to sixteen
    "F16-stairs": Machine(
        steps={1: 7, 2: 10.6, 3: 11.7, 4: 12.3, 5: 13.5, 6: 13.6, 8: 19.5, 10: 20.6, 12: 22.6, 16: 24.5, 32: 43},
        change={1: (0.3, 0.0)},
        **STAIRS,
    ),
    "Q8_0-stairs": Machine(
        steps={1: 5.5, 2: 11, 3: 16.5, 4: 19.1, 5: 22.5, 6: 22.5, 8: 22.5, 12: 24.2, 16: 24.6, 24: 36, 32: 46},
        change={1: (0.3, 0.0)},
        **STAIRS,
    ),
    "H200-F16": Machine(
        steps={1: 1.06, 2: 1.65, 4: 1.77, 8: 1.83, 16: 2.0, 32: 2.69, 64: 3.01},
        token=0.26,
        **GPU,
        change={1: (2.2, 2.9), 8: (1.8, 3.6), 16: (2.1, 3.7), 32: (5.8, 9.0), 64: (5.4, 8.3)},
    ),
    "H200-Q8_0": Machine(
        steps={1: 1.16, 2: 1.37, 4: 1.63, 8: 1.86, 16: 3.43, 32: 4.2, 64: 5.1},
        change={1: (2.9, 3.0)},
        token=0.26,
        **GPU,
    ),
    "H200-7B": Machine(
        steps={1: 4.8, 2: 6.8, 4: 6.9, 8: 7.3, 16: 7.98, 32: 7.99, 64: 8.64}, change={1: (1.5, 2.5)}, token=0.3, **GPU
    ),
}
