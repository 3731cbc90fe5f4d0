"""The answers of /v1/completions: chunks first, the whole reply a fold over them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from paceline.generation import Piece
from paceline.server.reply import (
    BUILD,
    logprobs_json,
    new_id,
    pieces_json,
    progress_json,
    timings_json,
    usage_json,
)
from paceline.server.service import Choice
from paceline.server.sse import DONE
from paceline.server.stream import Step
from paceline.text.vocabulary import Vocabulary


class TextReply:
    """One request's texts. `echoes` are put before each: the prompts, when the client wants them back."""

    def __init__(
        self,
        model: str,
        vocab: Vocabulary,
        choices: Sequence[Choice],
        echoes: Sequence[str],
        *,
        n_choices: int = 1,
        include_usage: bool = False,
    ) -> None:
        self._vocab = vocab
        self.choices = choices
        self._echoes = list(echoes)
        self._n_choices = n_choices
        self._include_usage = include_usage
        self._n_chars = [0] * len(choices)
        self._head = {
            "id": new_id("cmpl"),
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": BUILD,
        }

    def parts(self, step: Step) -> list[dict[str, Any]]:
        return [self._chunk(step)]

    def last_parts(self) -> list[dict[str, Any]]:
        if not self._include_usage:
            return []
        return [{**self._head, "choices": [], "usage": usage_json(self.choices, self._n_choices)}]

    def last_line(self) -> bytes:
        return DONE

    def _chunk(self, step: Step) -> dict[str, Any]:
        echo = "" if step.progress else self._echoes[step.index]
        self._echoes[step.index] = self._echoes[step.index] if step.progress else ""
        text = echo + step.text
        self._n_chars[step.index] += len(echo)
        running = self.choices[step.index]
        choice: dict[str, Any] = {"index": step.index, "text": text, "logprobs": None, "finish_reason": None}
        if running.wanted.n_logprobs is not None and step.pieces:
            choice["logprobs"] = self._logprobs(step.index, step.pieces)
        self._n_chars[step.index] += len(step.text)
        chunk = {**self._head, "choices": [choice]}
        if step.progress:
            chunk["prompt_progress"] = progress_json(len(running.wanted.prompt), step.progress)
        if step.finish:
            choice["finish_reason"] = step.finish.reason
            chunk["timings"] = timings_json(step.finish.timings)
        elif running.wanted.timings_per_token:
            chunk["timings"] = timings_json(step.progress or step.timings)
            chunk["paceline"] = pieces_json(step.pieces)
        return chunk

    def _logprobs(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        """OpenAI's four lists, and llama-server's one."""
        content = logprobs_json(self._vocab, [piece for piece in pieces if piece.token.id not in self._vocab.eog])
        offsets, at = [], self._n_chars[index]
        for entry in content:
            offsets.append(at)
            at += len(entry["token"])
        return {
            "tokens": [entry["token"] for entry in content],
            "token_logprobs": [entry["logprob"] for entry in content],
            "top_logprobs": [{top["token"]: top["logprob"] for top in entry["top_logprobs"]} for entry in content],
            "text_offset": offsets,
            "content": content,
        }

    # -- the fold

    def whole(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        choices: list[dict[str, Any]] = [
            {"index": index, "text": "", "logprobs": None, "finish_reason": None} for index in range(len(self.choices))
        ]
        timings: dict[str, Any] = {}
        for part in parts:
            timings = part.get("timings", timings)
            for choice in part["choices"]:
                add(choices[choice["index"]], choice)
        usage = usage_json(self.choices, self._n_choices)
        return {**self._head, "choices": choices, "usage": usage, "timings": timings}


def add(whole: dict[str, Any], part: dict[str, Any]) -> None:
    whole["text"] += part["text"]
    whole["finish_reason"] = part["finish_reason"] or whole["finish_reason"]
    if part["logprobs"]:
        whole["logprobs"] = whole["logprobs"] or {name: [] for name in part["logprobs"]}
        for name, values in part["logprobs"].items():
            whole["logprobs"][name] += values
