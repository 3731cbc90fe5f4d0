"""The answers of /completion, under llama-server's names: events first, the whole reply a fold over them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

from paceline.generation import Finish, Piece
from paceline.llama.model import Vocab
from paceline.server.jobs import Job
from paceline.server.reply import logprobs_json, pieces_json, timings_json
from paceline.server.service import Running
from paceline.server.sse import event
from paceline.server.steps import Step, steps


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a client wants to see. `several` asks for a list even of one text."""

    tokens: bool = False
    fields: tuple[str, ...] = ()
    several: bool = False


class NativeStream:
    """One request's texts."""

    def __init__(self, model: str, vocab: Vocab, n_ctx: int, runnings: Sequence[Running], wishes: Wishes) -> None:
        self._model = model
        self._vocab = vocab
        self._n_ctx = n_ctx
        self._runnings = runnings
        self._wishes = wishes
        self._n_written = [0] * len(runnings)
        self._lines = [False] * len(runnings)

    async def parts(self) -> AsyncGenerator[dict[str, Any], None]:
        async with aclosing(steps(self._runnings)) as stream:
            async for step in stream:
                self._n_written[step.index] += len(step.pieces)
                self._lines[step.index] |= "\n" in step.text
                yield self._last(step, step.finish) if step.finish else self._part(step)

    async def events(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self.parts()) as parts:
            async for part in parts:
                yield event(only(part, self._wishes.fields) if part["stop"] else part)

    def _part(self, step: Step) -> dict[str, Any]:
        running = self._runnings[step.index]
        part: dict[str, Any] = {
            "index": step.index,
            "content": step.text,
            "tokens": [piece.token.id for piece in step.pieces],
            "stop": False,
            "id_slot": running.id_slot,
            "tokens_predicted": self._n_written[step.index],
            "tokens_evaluated": len(running.job.prompt),
        }
        if running.job.timings_per_token:
            part["timings"] = timings_json(running.timings())
            part["paceline"] = pieces_json(step.pieces)
        return part | self._probabilities(running.job, step.pieces)

    def _probabilities(self, job: Job, pieces: Sequence[Piece]) -> dict[str, Any]:
        if not job.n_logprobs or not pieces:
            return {}
        return {"completion_probabilities": logprobs_json(self._vocab, pieces)}

    def _last(self, step: Step, finish: Finish) -> dict[str, Any]:
        running = self._runnings[step.index]
        timings, n_prompt = finish.timings, len(running.job.prompt)
        return {
            "index": step.index,
            "content": "",
            "tokens": [],
            "id_slot": running.id_slot,
            "stop": True,
            "model": self._model,
            "tokens_predicted": timings.predicted_n,
            "tokens_evaluated": n_prompt,
            "generation_settings": settings_json(running.job),
            "prompt": b"".join(self._vocab.render(t, special=True) for t in running.job.prompt).decode(
                errors="replace"
            ),
            "has_new_line": self._lines[step.index],
            "truncated": n_prompt + timings.predicted_n >= self._n_ctx,
            "stop_type": "limit" if finish.reason == "length" else "word" if finish.stop else "eos",
            "stopping_word": finish.stop or "",
            "tokens_cached": n_prompt + timings.predicted_n,
            "timings": timings_json(timings),
        }

    # -- the fold

    async def whole(self) -> Any:
        texts = [Folded() for _ in self._runnings]
        async with aclosing(self.parts()) as parts:
            async for part in parts:
                texts[part["index"]].add(part, tokens=self._wishes.tokens)
        replies = [only(text.reply, self._wishes.fields) for text in texts]
        return replies if self._wishes.several else replies[0]


class Folded:
    """Parts of one text, put together."""

    def __init__(self) -> None:
        self.reply: dict[str, Any] = {}
        self._content = ""
        self._tokens: list[int] = []
        self._probabilities: list[dict[str, Any]] = []

    def add(self, part: dict[str, Any], *, tokens: bool) -> None:
        self._content += part["content"]
        self._tokens += part["tokens"] if tokens else ()
        self._probabilities += part.get("completion_probabilities", ())
        if part["stop"]:
            self.reply = {**part, "content": self._content, "tokens": self._tokens}
            if self._probabilities:
                self.reply["completion_probabilities"] = self._probabilities


def only(reply: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """`response_fields`: "timings/draft_n" lifts an inner field out; what is not there is left out."""
    if not names:
        return reply
    out: dict[str, Any] = {}
    for name in names:
        value: Any = reply
        for step in name.split("/"):
            value = value.get(step) if isinstance(value, dict) else None
        if value is not None:
            out[name.rsplit("/", 1)[-1]] = value
    return out


def settings_json(job: Job) -> dict[str, Any]:
    """What the request was served with, under llama-server's names."""
    sampling = asdict(job.sampling)
    n_predict = -1 if job.max_tokens is None else job.max_tokens
    wishes = job.speculative
    return {
        **sampling,
        "logit_bias": [{"token": token, "bias": bias} for token, bias in job.sampling.logit_bias.items()],
        "n_predict": n_predict,
        "max_tokens": n_predict,
        "stop": list(job.stop),
        "stream": job.stream,
        "n_probs": job.n_logprobs or 0,
        "grammar": job.grammar.source if job.grammar else "",
        "timings_per_token": job.timings_per_token,
        "cache_prompt": job.cache_prompt,
        "speculative.n_max": wishes.n_max,
        "speculative.n_min": wishes.n_min,
        "speculative.p_min": wishes.p_min,
        "speculative.types": None if wishes.types is None else ",".join(wishes.types),
    }
