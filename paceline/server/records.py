"""What the server's log says about a model and about a request, in llama-server's words. Text only; writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.config import Settings
from paceline.engine.request import Timings
from paceline.engine.stats import acceptance_line
from paceline.process.base import Info


def loaded_lines(settings: Settings, info: Info) -> list[str]:
    """Which model on which devices, how many slots of how many tokens, who drafts or why nobody does."""
    lines = [
        f"loaded model '{Path(settings.model.path).name}' ({info.description})",
        f"devices: {', '.join(info.devices) or 'none'}",
        f"n_slots = {info.limits.n_slots}, n_ctx_slot = {info.limits.n_room}",
        speculation(info.drafters, settings.draft.path if settings.draft else None, info.speculation_off),
        *info.heads,
        *([f"exact: {info.exactness}"] if info.exactness else []),
    ]
    return [f"srv  {'load_model':>12}: {line}" for line in lines]


def speculation(drafters: Sequence[str], draft: str | None, off: str | None) -> str:
    if off:
        return f"speculation is off: {off}"
    if not drafters:
        return "no drafters"
    model = f"; draft model '{Path(draft).name}'" if draft and "draft-simple" in drafters else ""
    return f"drafters: {', '.join(drafters)}{model}"


def request_lines(id_slot: int, id_task: int, timings: Timings) -> list[str]:
    """How long a request took, and what was drafted for it. Each line names its slot: several write at once."""
    lines = [
        f"prompt eval time = {speed(timings.prompt_n, timings.prompt_ms)}",
        f"       eval time = {speed(timings.predicted_n, timings.predicted_ms)}",
        f"      total time = {timings.prompt_ms + timings.predicted_ms:10.2f} ms / "
        f"{timings.prompt_n + timings.predicted_n:5d} tokens",
    ]
    if timings.draft_n:
        lines.append(acceptance_line(timings.draft_n_accepted, timings.draft_n))
    lines += [drafter.line() for drafter in timings.drafters]
    return [f"slot {'print_timing':>12}: id {id_slot:2d} | task {id_task} | {line}" for line in lines]


def speed(n_tokens: int, ms: float) -> str:
    per_token = ms / n_tokens if n_tokens else 0.0
    per_second = 1e3 * n_tokens / ms if ms else 0.0
    return f"{ms:10.2f} ms / {n_tokens:5d} tokens ({per_token:8.2f} ms per token, {per_second:8.2f} tokens per second)"
