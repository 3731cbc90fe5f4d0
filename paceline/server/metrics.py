"""Prometheus: llama-server's names; under our own what each drafter did, and histograms.

Counters of finished requests are kept here; the engine's own are read when somebody asks.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from paceline.engine.request import Timings
from paceline.engine.stats import DrafterStats
from paceline.generation import Chunk
from paceline.process.base import Health, ReplicaHealth, Status

WINDOW_S = 5.0
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5)
COUNTER, GAUGE = "counter", "gauge"
THEIRS, OURS = "llamacpp:", "paceline:"
DRAFTED = {
    "drafts": ("drafts checked", "n_drafts"),
    "draft_tokens": ("draft tokens checked", "n_tokens"),
    "accepted_tokens": ("draft tokens accepted", "n_accepted_tokens"),
}
LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


class Metrics:
    """What this server did since its start. Used on the event loop only."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.totals: dict[str, float] = defaultdict(float)
        self._scraped: dict[str, float] = defaultdict(float)  # the totals when they were last asked for
        self.n_tokens_max = 0
        self._recent: deque[tuple[float, int]] = deque()
        self._first_token = self._histogram("time_to_first_token_seconds", "from arrival to the first token", SECONDS)
        self._per_token = self._histogram("time_per_token_seconds", "between tokens of one answer", TOKEN_SECONDS)
        self._queue = self._histogram("queue_seconds", "waiting for a slot", SECONDS)
        self._accepted = Histogram(
            "paceline:accepted_length",
            "draft tokens accepted in a step, for each draft",
            ("drafter",),
            buckets=LENGTHS,
            registry=self.registry,
        )

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"paceline:{name}", help, buckets=buckets, registry=self.registry)

    # -- what happens

    def step(self, chunk: Chunk, seconds: float, *, first: bool) -> None:
        n = len(chunk.pieces)
        if not n:
            return
        if first:
            self._first_token.observe(seconds)
        else:
            self._per_token.observe(seconds / n)
        self._recent.append((perf_counter(), n))
        self._forget_old()
        sources = [piece.token.source for piece in chunk.pieces if piece.token.source]
        for source, n_accepted in Counts(sources).items() if sources else ():
            self._accepted.labels(source).observe(n_accepted)

    def finished(self, timings: Timings) -> None:
        self.totals["requests"] += 1
        for name in ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "cache_n"):
            self.totals[name] += getattr(timings, name)
        self._queue.observe(timings.queue_ms / 1e3)
        self.n_tokens_max = max(self.n_tokens_max, timings.cache_n + timings.prompt_n + timings.predicted_n)
        for stats in timings.drafters:
            for _ in range(stats.n_drafts - stats.n_accepted_drafts):
                self._accepted.labels(stats.name).observe(0)

    def embedded(self, n_tokens: int, seconds: float) -> None:
        """Texts became vectors: so many tokens were read, beside what the engine writes."""
        self.totals["prompt_n"] += n_tokens
        self.totals["prompt_ms"] += 1e3 * seconds
        self.totals["embedded"] += 1

    # -- what is asked

    @property
    def tokens_per_second(self) -> float:
        """Over the last seconds, all requests together."""
        self._forget_old()
        return sum(n for _, n in self._recent) / WINDOW_S

    def _forget_old(self) -> None:
        oldest = perf_counter() - WINDOW_S
        while self._recent and self._recent[0][0] < oldest:
            self._recent.popleft()

    @property
    def mean_request_s(self) -> float:
        if not self.totals["requests"]:
            return 1.0
        return (self.totals["prompt_ms"] + self.totals["predicted_ms"]) / 1e3 / self.totals["requests"]

    def rate(self, what: str) -> float:
        """Tokens per second since the metrics were last asked for, as in llama-server."""
        n, ms = (self.totals[f"{what}_{unit}"] - self._scraped[f"{what}_{unit}"] for unit in ("n", "ms"))
        return share(n, ms / 1e3)

    def text(self, status: Status, health: Health) -> bytes:
        """Everything, in Prometheus' format."""
        restarts = Family(f"{OURS}engine_restarts_total", COUNTER, "how often the engine's process was started again")
        ours = [
            restarts.of(health.n_restarts),
            *drafter_families(status.drafters),
            *replica_families(health.replicas),
        ]
        families = [*self._upstream(status), *speculation(status.drafters), *ours]
        text = "".join(map(str, families)).encode() + generate_latest(self.registry)
        self._scraped = defaultdict(float, self.totals)
        return text

    def _upstream(self, status: Status) -> Iterator[Family]:
        """llama-server's names, read off at one moment."""
        totals = self.totals
        prompt_s, predicted_s = totals["prompt_ms"] / 1e3, totals["predicted_ms"] / 1e3
        yield counter("prompt_tokens_total", "prompt tokens read, without those reused", totals["prompt_n"])
        yield counter("prompt_tokens_cached_total", "prompt tokens reused", totals["cache_n"])
        yield counter("prompt_seconds_total", "time spent on prompts", prompt_s)
        yield counter("tokens_predicted_total", "tokens written", totals["predicted_n"])
        yield counter("tokens_predicted_seconds_total", "time spent writing", predicted_s)
        yield counter("n_decode_total", "steps of the engine", status.n_steps + totals["embedded"])
        yield counter("n_tokens_max", "longest text seen, prompt and answer", self.n_tokens_max)
        yield gauge("prompt_tokens_seconds", "prompt tokens per second", self.rate("prompt"))
        yield gauge("predicted_tokens_seconds", "tokens written per second", self.rate("predicted"))
        n_busy = sum(slot.request is not None for slot in status.slots)
        yield gauge("requests_processing", "requests at work", n_busy)
        yield gauge("requests_deferred", "requests waiting for a slot", status.n_waiting)
        yield gauge("n_busy_slots_per_decode", "slots at work in a step", share(status.n_busy, status.n_steps))


@dataclass(frozen=True, slots=True)
class Family:
    """A name and its values. Written by hand: the client library insists on names that llama-server does not have."""

    name: str
    kind: str
    help: str
    lines: tuple[str, ...] = ()

    def of(self, value: float, **labels: object) -> Family:
        """With one more value."""
        inside = ",".join(f'{name}="{label}"' for name, label in labels.items())
        line = f"{self.name}{{{inside}}} {value}" if inside else f"{self.name} {value}"
        return replace(self, lines=(*self.lines, line))

    def __str__(self) -> str:
        head = (f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}")
        return "\n".join((*head, *self.lines, ""))


def counter(name: str, help: str, value: float) -> Family:
    return Family(f"{THEIRS}{name}", COUNTER, help).of(value)


def gauge(name: str, help: str, value: float) -> Family:
    return Family(f"{THEIRS}{name}", GAUGE, help).of(value)


def speculation(drafters: Sequence[DrafterStats]) -> Iterator[Family]:
    """llama-server's counters of drafts, over all drafters."""
    for name, (help, field) in DRAFTED.items():
        total = sum(getattr(stats, field) for stats in drafters)
        yield counter(f"spec_decode_num_{name}_total", help, total)
    help = "draft tokens accepted, by their place in the draft"
    family = Family(f"{THEIRS}spec_decode_num_accepted_tokens_per_pos_total", COUNTER, help)
    for position, n in sorted(by_position(drafters).items()):
        family = family.of(n, position=position)
    if family.lines:
        yield family


def by_position(drafters: Sequence[DrafterStats]) -> Counts[int]:
    counts: Counts[int] = Counts()
    for stats in drafters:
        for position, n in enumerate(stats.accepted_at):
            if stats.drafted_at[position]:
                counts[position] += n
    return counts


def drafter_families(drafters: Sequence[DrafterStats]) -> Iterator[Family]:
    """The same for each drafter."""
    for name, (help, field) in DRAFTED.items():
        family = Family(f"{OURS}drafter_{name}_total", COUNTER, f"{help}, by drafter")
        for stats in drafters:
            family = family.of(getattr(stats, field), drafter=stats.name)
        yield family


REPLICA = {
    "ready": (GAUGE, "whether it computes", "ready"),
    "requests_processing": (GAUGE, "requests it has, at work and waiting", "n_running"),
    "restarts_total": (COUNTER, "how often it, or its engine's process, was started again", "n_restarts"),
    "requests_total": (COUNTER, "requests it has finished", "n_requests"),
    "prompt_tokens_total": (COUNTER, "prompt tokens read, without those reused", "n_prompt"),
    "prompt_tokens_cached_total": (COUNTER, "prompt tokens reused", "n_cached"),
    "tokens_predicted_total": (COUNTER, "tokens written", "n_predicted"),
}


def replica_families(replicas: Sequence[ReplicaHealth]) -> Iterator[Family]:
    """Engine by engine what stands above as a sum, where there are several."""
    for name, (kind, help, field) in REPLICA.items() if replicas else ():
        family = Family(f"{OURS}replica_{name}", kind, f"{help}, by replica")
        for replica in replicas:
            family = family.of(int(getattr(replica, field)), replica=replica.number)
        yield family


def share(n: float, whole: float) -> float:
    return n / whole if whole else 0.0
