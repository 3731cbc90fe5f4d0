"""What is said after the text: speeds, acceptance, statistics; as lines for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paceline.engine.request import Timings
from paceline.engine.stats import DrafterStats, acceptance_line

if TYPE_CHECKING:
    from paceline import Chunk, Finish


@dataclass(slots=True)
class Answer:
    """One prompt's whole outcome."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    sources: list[str | None] = field(default_factory=list)
    reason: str = ""
    timings: Timings = field(default_factory=Timings)

    def add(self, chunk: Chunk) -> None:
        self.text += chunk.text
        self.tokens += [piece.token.id for piece in chunk.pieces]
        self.sources += [piece.token.source for piece in chunk.pieces]

    def end(self, finish: Finish | None) -> None:
        if finish:
            self.reason = finish.reason
            self.timings = finish.timings

    def as_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "tokens": self.tokens,
            "sources": self.sources,
            "finish_reason": self.reason,
            "timings": timings_json(self.timings),
            "statistics": [stats_json(stats) for stats in self.timings.drafters],
        }


def json_object(answers: Sequence[Answer], stats: Sequence[DrafterStats]) -> dict[str, Any]:
    """One prompt: its answer. Several: a list of them, and the statistics over all."""
    if len(answers) == 1:
        return answers[0].as_json()
    return {
        "results": [answer.as_json() for answer in answers],
        "statistics": [stats_json(drafter) for drafter in stats],
    }


def timings_json(timings: Timings) -> dict[str, float]:
    """The names of llama-server's `timings`."""
    return {
        "cache_n": timings.cache_n,
        "prompt_n": timings.prompt_n,
        "prompt_ms": timings.prompt_ms,
        "prompt_per_token_ms": timings.prompt_ms / timings.prompt_n if timings.prompt_n else 0.0,
        "prompt_per_second": timings.prompt_per_second,
        "predicted_n": timings.predicted_n,
        "predicted_ms": timings.predicted_ms,
        "predicted_per_token_ms": timings.predicted_ms / timings.predicted_n if timings.predicted_n else 0.0,
        "predicted_per_second": timings.predicted_per_second,
        "draft_n": timings.draft_n,
        "draft_n_accepted": timings.draft_n_accepted,
    }


def stats_json(stats: DrafterStats) -> dict[str, Any]:
    return {
        "name": stats.name,
        "calls": stats.n_calls,
        "drafts": stats.n_drafts,
        "accepted_drafts": stats.n_accepted_drafts,
        "tokens": stats.n_tokens,
        "accepted_tokens": stats.n_accepted_tokens,
        "acceptance_by_position": [round(share, 4) for share in stats.acceptance_by_position()],
        "begin_ms": stats.begin_ms,
        "draft_ms": stats.draft_ms,
        "accept_ms": stats.accept_ms,
    }


def planner_line(why: dict[str, Any]) -> str:
    """The auto policy in one line: what it gained, how well it foresaw a step's cost, who is switched off."""
    off = f"; resting: {', '.join(why['resting'])}" if why["resting"] else ""
    return (
        f"planner:    estimated speed-up {why['speedup'] or 1.0:.2f} against no speculation; "
        f"a step took {why['actual_ms']:.1f} ms, {why['predicted_ms']:.1f} predicted{off}"
    )


def summary(
    all_timings: Sequence[Timings],
    stats: Sequence[DrafterStats],
    wall_ms: float = 0.0,
    why: dict[str, Any] | None = None,
) -> list[str]:
    """The lines at the end of a run: one prompt's own speeds, or the speed of prompts that ran side by side."""
    lines = speed_lines(all_timings[0]) if len(all_timings) == 1 else [together_line(all_timings, wall_ms)]
    if not stats:
        return lines
    n_accepted = sum(timings.draft_n_accepted for timings in all_timings)
    n_drafted = sum(timings.draft_n for timings in all_timings)
    planner = [planner_line(why)] if why and why["policy"] == "auto" else []
    return [*lines, *planner, acceptance_line(n_accepted, n_drafted), *(drafter.line() for drafter in stats)]


def speed_lines(timings: Timings) -> list[str]:
    cached = f", {timings.cache_n} more reused" if timings.cache_n else ""
    return [
        f"prompt:     {timings.prompt_n:6d} tokens in {timings.prompt_ms / 1e3:8.2f} s, "
        f"{timings.prompt_per_second:8.2f} tokens per second{cached}",
        f"generation: {timings.predicted_n:6d} tokens in {timings.predicted_ms / 1e3:8.2f} s, "
        f"{timings.predicted_per_second:8.2f} tokens per second, {timings.tokens_per_step:.2f} tokens per step",
    ]


def total(all_timings: Sequence[Timings]) -> Timings:
    """Requests that ran one after another, as if they were one."""
    counts = (
        "cache_n",
        "prompt_n",
        "prompt_ms",
        "predicted_n",
        "predicted_ms",
        "draft_n",
        "draft_n_accepted",
        "n_steps",
    )
    return Timings(**{name: sum(getattr(timings, name) for timings in all_timings) for name in counts})


def together_line(all_timings: Sequence[Timings], wall_ms: float) -> str:
    n_prompt = sum(timings.prompt_n for timings in all_timings)
    n_predicted = sum(timings.predicted_n for timings in all_timings)
    speed = 1e3 * n_predicted / wall_ms if wall_ms else 0.0
    return (
        f"{len(all_timings)} prompts: {n_prompt} tokens read and {n_predicted} written in {wall_ms / 1e3:.2f} s, "
        f"{speed:.2f} tokens per second together"
    )
