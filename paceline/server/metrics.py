"""Prometheus: llama-server's names, with a label per drafter where it helps, and histograms of our own.

Counters of finished requests are kept here; the engine's own are read when somebody asks.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections import deque
from collections.abc import Iterable, Iterator
from time import perf_counter

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from paceline.engine.request import Timings
from paceline.engine.stats import DrafterStats
from paceline.generation import Chunk
from paceline.process.base import Health, Status

WINDOW_S = 5.0
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5)
LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


class Metrics:
    """What this server did since its start. Used on the event loop only."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.totals: Counts[str] = Counts()
        self._scraped: Counts[str] = Counts()  # the totals when they were last asked for
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
        registry = CollectorRegistry()
        registry.register(Upstream(self, status, health))
        text = generate_latest(registry) + generate_latest(self.registry)
        self._scraped = Counts(self.totals)
        return text


class Upstream(Collector):
    """llama-server's metrics, read off at one moment."""

    def __init__(self, metrics: Metrics, status: Status, health: Health) -> None:
        self.metrics = metrics
        self.status = status
        self.health = health

    def collect(self) -> Iterator[Metric]:
        totals, status = self.metrics.totals, self.status
        prompt_s, predicted_s = totals["prompt_ms"] / 1e3, totals["predicted_ms"] / 1e3
        yield counter("prompt_tokens", "prompt tokens read, without those reused", totals["prompt_n"])
        yield counter("prompt_tokens_cached", "prompt tokens reused", totals["cache_n"])
        yield counter("prompt_seconds", "time spent on prompts", prompt_s)
        yield counter("tokens_predicted", "tokens written", totals["predicted_n"])
        yield counter("tokens_predicted_seconds", "time spent writing", predicted_s)
        yield counter("n_decode", "steps of the engine", status.n_steps)
        yield gauge("n_tokens_max", "longest text seen, prompt and answer", self.metrics.n_tokens_max)
        yield gauge("prompt_tokens_seconds", "prompt tokens per second", self.metrics.rate("prompt"))
        yield gauge("predicted_tokens_seconds", "tokens written per second", self.metrics.rate("predicted"))
        n_busy = sum(slot.request is not None for slot in status.slots)
        yield gauge("requests_processing", "requests at work", n_busy)
        yield gauge("requests_deferred", "requests waiting for a slot", status.n_waiting)
        yield gauge("n_busy_slots_per_decode", "slots at work in a step", n_busy)
        yield from draft_counters(status.drafters)
        help = "how often the engine's process was started again"
        yield CounterMetricFamily("paceline:engine_restarts", help, value=self.health.n_restarts)


def draft_counters(drafters: Iterable[DrafterStats]) -> Iterator[Metric]:
    drafters = list(drafters)
    names = {
        "spec_decode_num_drafts": ("drafts checked", "n_drafts"),
        "spec_decode_num_draft_tokens": ("draft tokens checked", "n_tokens"),
        "spec_decode_num_accepted_tokens": ("draft tokens accepted", "n_accepted_tokens"),
    }
    for name, (help, field) in names.items():
        family = CounterMetricFamily(f"llamacpp:{name}", help, labels=["drafter"])
        for stats in drafters:
            family.add_metric([stats.name], getattr(stats, field))
        if not drafters:
            family.add_metric(["none"], 0)
        yield family
    yield positions(drafters)


def positions(drafters: Iterable[DrafterStats]) -> Metric:
    help = "draft tokens accepted, by their place in the draft"
    family = CounterMetricFamily(
        "llamacpp:spec_decode_num_accepted_tokens_per_pos", help, labels=["position", "drafter"]
    )
    for stats in drafters:
        for position, n in enumerate(stats.accepted_at):
            if stats.drafted_at[position]:
                family.add_metric([str(position), stats.name], n)
    return family


def counter(name: str, help: str, value: float) -> Metric:
    return CounterMetricFamily(f"llamacpp:{name}", help, value=value)


def gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"llamacpp:{name}", help, value=value)


def share(n: float, seconds: float) -> float:
    return n / seconds if seconds else 0.0
