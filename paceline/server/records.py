"""What the server's log says about a model and about a request, in llama-server's words. Text only; writes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.engine.request import Timings
from paceline.engine.stats import acceptance_line


def loaded_lines(
    model: str,
    description: str,
    n_slots: int,
    n_ctx: int,
    devices: Sequence[str],
    drafters: Sequence[str],
    draft: str | None,
    off: str | None,
) -> list[str]:
    """Which model on which devices, how many slots of how many tokens, who drafts; `off` is why nobody does."""
    lines = [
        f"loaded model '{model}' ({description})",
        f"devices: {', '.join(devices) or 'none'}",
        f"n_slots = {n_slots}, n_ctx_slot = {n_ctx}",
        speculation(drafters, draft, off),
    ]
    return [f"srv  {'load_model':>12}: {line}" for line in lines]


def speculation(drafters: Sequence[str], draft: str | None, off: str | None) -> str:
    if off:
        return f"speculation is off: {off}"
    if not drafters:
        return "no drafters"
    return f"drafters: {', '.join(drafters)}" + (f"; draft model '{draft}'" if draft else "")


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
