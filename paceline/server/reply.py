"""What all replies share: timings, probabilities, usage; as JSON under llama-server's and OpenAI's names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from paceline import __version__
from paceline.engine.request import Timings
from paceline.engine.stats import DrafterStats
from paceline.generation import Piece
from paceline.server.service import Choice
from paceline.text.vocabulary import Vocabulary

BUILD = f"b{__version__}-paceline"


def new_id(prefix: str) -> str:
    return f"{prefix}-{os.urandom(16).hex()}"


def timings_json(timings: Timings) -> dict[str, Any]:
    """llama-server's `timings`, and what each drafter did."""
    return {
        "cache_n": timings.cache_n,
        "prompt_n": timings.prompt_n,
        "prompt_ms": round(timings.prompt_ms, 3),
        "prompt_per_token_ms": per(timings.prompt_ms, timings.prompt_n),
        "prompt_per_second": round(timings.prompt_per_second, 3),
        "predicted_n": timings.predicted_n,
        "predicted_ms": round(timings.predicted_ms, 3),
        "predicted_per_token_ms": per(timings.predicted_ms, timings.predicted_n),
        "predicted_per_second": round(timings.predicted_per_second, 3),
        "draft_n": timings.draft_n,
        "draft_n_accepted": timings.draft_n_accepted,
        "drafters": [drafter_json(stats) for stats in timings.drafters],
    }


def per(ms: float, n: int) -> float:
    return round(ms / n, 3) if n else 0.0


def progress_json(n_prompt: int, timings: Timings) -> dict[str, Any]:
    """llama-server's `prompt_progress`: tokens in all, those reused, those done."""
    n_done = timings.cache_n + timings.prompt_n
    return {"total": n_prompt, "cache": timings.cache_n, "processed": n_done, "time_ms": round(timings.prompt_ms)}


def drafter_json(stats: DrafterStats) -> dict[str, Any]:
    return {
        "name": stats.name,
        "n_calls": stats.n_calls,
        "n_drafts": stats.n_drafts,
        "draft_n": stats.n_tokens,
        "draft_n_accepted": stats.n_accepted_tokens,
    }


def usage_json(choices: Sequence[Choice], n_choices: int = 1) -> dict[str, Any]:
    """Finished requests' tokens. Each prompt counts once, however many choices it has."""
    all_timings = [choice.generation.timings for choice in choices]
    n_prompt = sum(t.prompt_n + t.cache_n for t in all_timings[::n_choices])
    n_written = sum(t.predicted_n for t in all_timings)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_written,
        "total_tokens": n_prompt + n_written,
        "prompt_tokens_details": {"cached_tokens": sum(t.cache_n for t in all_timings[::n_choices])},
        "completion_tokens_details": {
            "accepted_prediction_tokens": sum(t.draft_n_accepted for t in all_timings),
            "rejected_prediction_tokens": sum(t.draft_n - t.draft_n_accepted for t in all_timings),
        },
    }


def token_json(vocab: Vocabulary, token: int, logprob: float | None) -> dict[str, Any]:
    piece = vocab.render(token, special=True)
    return {
        "id": token,
        "token": piece.decode(errors="replace"),
        "bytes": list(piece),
        "logprob": logprob if logprob is None or logprob > -9999.0 else -9999.0,
    }


def logprobs_json(vocab: Vocabulary, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """One entry per token that has them."""
    return [
        {
            **token_json(vocab, piece.token.id, piece.token.logprob),
            "top_logprobs": [token_json(vocab, token, logprob) for token, logprob in piece.token.top_logprobs],
        }
        for piece in pieces
        if piece.token.logprob is not None
    ]


def pieces_json(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Who wrote what, for pages that tint drafted text."""
    return {"pieces": [{"text": piece.text, "source": piece.token.source} for piece in pieces]}
