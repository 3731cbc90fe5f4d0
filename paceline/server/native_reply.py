"""The answers of /completion, under llama-server's names: events first, the whole reply a fold over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paceline.generation import Finish, Piece
from paceline.server.reply import chances_json, logprobs_json, pieces_json, progress_json, timings_json
from paceline.server.service import Choice
from paceline.server.stream import Step
from paceline.server.text_request import TextRequest
from paceline.text.vocabulary import Vocabulary

ABSENT = object()
RANDOM_SEED = 2**32 - 1


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """What a client wants to see. `several` asks for a list even of one text."""

    tokens: bool = False
    fields: tuple[str, ...] = ()
    several: bool = False


class NativeReply:
    """One request's texts."""

    def __init__(
        self, model: str, vocab: Vocabulary, n_ctx: int, choices: Sequence[Choice], options: ReplyOptions
    ) -> None:
        self._model = model
        self._vocab = vocab
        self._n_ctx = n_ctx
        self.choices = choices
        self._options = options
        self._n_written = [0] * len(choices)

    def parts(self, step: Step) -> list[dict[str, Any]]:
        self._n_written[step.index] += len(step.pieces)
        streams = self.choices[step.index].wanted.stream
        if step.finish is None:
            return [self._part(step)]
        last = self._last(step, step.finish)
        return [only(last, self._options.fields) if streams else last]

    def last_parts(self) -> list[dict[str, Any]]:
        return []

    def last_line(self) -> bytes:
        return b""

    def _part(self, step: Step) -> dict[str, Any]:
        choice = self.choices[step.index]
        part: dict[str, Any] = {
            "index": step.index,
            "content": step.text,
            "tokens": [piece.token.id for piece in step.pieces],
            "stop": False,
            "id_slot": choice.generation.slot,
            "tokens_predicted": self._n_written[step.index],
            "tokens_evaluated": len(choice.wanted.prompt),
        }
        if step.progress:
            part["prompt_progress"] = progress_json(len(choice.wanted.prompt), step.progress)
        if choice.wanted.timings_per_token:
            part["timings"] = timings_json(step.progress or step.timings)
            part["paceline"] = pieces_json(step.pieces)
        return part | self._probabilities(choice.wanted, step.pieces)

    def _probabilities(self, wanted: TextRequest, pieces: Sequence[Piece]) -> dict[str, Any]:
        if not wanted.n_logprobs or not pieces:
            return {}
        worded = chances_json if wanted.sampled_probs else logprobs_json
        return {"completion_probabilities": worded(self._vocab, pieces)}

    def _last(self, step: Step, finish: Finish) -> dict[str, Any]:
        choice = self.choices[step.index]
        timings, n_prompt = finish.timings, len(choice.wanted.prompt)
        return {
            "index": step.index,
            "content": "",
            "tokens": [],
            "id_slot": choice.generation.slot,
            "stop": True,
            "model": self._model,
            "tokens_predicted": timings.predicted_n,
            "tokens_evaluated": n_prompt,
            "generation_settings": settings_json(choice.wanted),
            "prompt": b"".join(self._vocab.render(t, special=True) for t in choice.wanted.prompt).decode(
                errors="replace"
            ),
            "has_new_line": choice.has_new_line,
            "truncated": n_prompt + timings.predicted_n >= self._n_ctx,
            "stop_type": "limit" if finish.reason == "length" else "word" if finish.stop else "eos",
            "stopping_word": finish.stop or "",
            "tokens_cached": n_prompt + timings.predicted_n,
            "timings": timings_json(timings),
        }

    # -- the fold

    def whole(self, parts: Sequence[dict[str, Any]]) -> Any:
        texts = [FoldedText() for _ in self.choices]
        for part in parts:
            texts[part["index"]].add(part, tokens=self._options.tokens)
        replies = [only(text.reply, self._options.fields) for text in texts]
        return replies if self._options.several else replies[0]


class FoldedText:
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
    """`response_fields`: "timings/draft_n" is an inner field, under that very name; what is not there is left out."""
    if not names:
        return reply
    out: dict[str, Any] = {}
    for name in names:
        value: Any = reply
        for step in name.split("/"):
            value = value.get(step, ABSENT) if isinstance(value, dict) else ABSENT
        if value is not ABSENT:
            out[name] = value
    return out


def settings_json(wanted: TextRequest) -> dict[str, Any]:
    """What the request was served with, under llama-server's names."""
    sampling = asdict(wanted.sampling)
    seed = wanted.sampling.seed
    n_predict = -1 if wanted.max_tokens is None else wanted.max_tokens
    speculative = wanted.speculative
    scales = wanted.adapter.split(",") if wanted.adapter else []
    return {
        **sampling,
        "seed": RANDOM_SEED if seed < 0 else seed,
        "logit_bias": [{"token": token, "bias": bias} for token, bias in wanted.sampling.logit_bias.items()],
        "n_predict": n_predict,
        "max_tokens": n_predict,
        "stop": list(wanted.stop),
        "stream": wanted.stream,
        "n_probs": wanted.n_logprobs or 0,
        "post_sampling_probs": wanted.sampled_probs,
        "grammar": wanted.grammar.source if wanted.grammar else "",
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": [],
        "timings_per_token": wanted.timings_per_token,
        "cache_prompt": wanted.cache_prompt,
        "backend_sampling": False,
        "lora": [{"id": id, "scale": float(scale)} for id, scale in enumerate(scales)],
        "speculative.n_max": speculative.n_max,
        "speculative.n_min": speculative.n_min,
        "speculative.p_min": speculative.p_min,
        "speculative.types": None if speculative.types is None else ",".join(speculative.types),
    }
