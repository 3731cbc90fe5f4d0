"""From a request's body to a `TextRequest`: everything the engine needs, checked. Runs on a worker thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from paceline.config import ModelParams, SamplingParams, SpeculativeParams
from paceline.config.sampler_names import SAMPLER_LETTERS, sampler_name
from paceline.drafters.names import canonical
from paceline.engine.request import Bounds, Grammar
from paceline.errors import ConfigError, ContextFull, PromptError
from paceline.generation import Generation
from paceline.library import Engine, with_overrides
from paceline.server.schema import MAX_INPUTS, AdapterScale, MixedText, PromptField, PromptObject, SamplingBody

BYTES_PER_TOKEN, MIN_TEXT = 64, 2**20
RANDOM_SEED = 2**32 - 1
SAMPLING_FIELDS = {f.name for f in fields(SamplingParams)} - {"logit_bias", "seed", "samplers", "dry_sequence_breakers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a request gets that does not say otherwise: the command line's choices."""

    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    adapter: str | None = None
    cache_prompt: bool = True
    grammar: str | None = None
    json_schema: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest:
    """One text to write, and how the client wants to hear of it."""

    prompt: list[int]
    sampling: SamplingParams
    speculative: SpeculativeParams
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    n_logprobs: int | None = None
    sampled_probs: bool = False
    grammar: Grammar | None = None
    bounds: Bounds | None = None
    spelled: tuple[int, ...] = ()
    adapter: str | None = None
    cache_prompt: bool = True
    n_keep: int | None = None
    slot: int | None = None
    t_max_predict_ms: int = 0
    n_indent: int = 0
    return_progress: bool = False
    timings_per_token: bool = False
    stream: bool = False

    def numbered(self, index: int) -> TextRequest:
        """The same for another choice: with a seed given, each has its own."""
        if index == 0 or self.sampling.seed == -1:
            return self
        return replace(self, sampling=replace(self.sampling, seed=(self.sampling.seed + index) % 2**64))

    def start(self, engine: Engine) -> Generation:
        return engine.generate(
            self.prompt,
            max_tokens=self.max_tokens,
            sampling=self.sampling,
            stop=self.stop,
            speculative=self.speculative,
            logprobs=self.n_logprobs,
            sampled_probs=self.sampled_probs,
            progress=self.return_progress,
            grammar=self.grammar,
            bounds=self.bounds,
            spelled=self.spelled,
            adapter=self.adapter,
            cache_prompt=self.cache_prompt,
            n_keep=self.n_keep,
            slot=self.slot,
        )


def text_request(engine: Engine, body: SamplingBody, prompt: list[int], defaults: Defaults) -> TextRequest:
    """The part all kinds of requests share; callers add grammar and logprobs."""
    return TextRequest(
        prompt=prompt,
        sampling=sampling_of(engine, body, defaults.sampling),
        speculative=speculative_of(engine, body),
        max_tokens=max_tokens_of(body, defaults.max_tokens),
        stop=stops_of(body, defaults.stop),
        adapter=scales_of(engine.settings.model, body.lora) if body.lora else defaults.adapter,
        cache_prompt=defaults.cache_prompt if body.cache_prompt is None else body.cache_prompt,
        n_keep=body.n_keep,
        slot=None if body.id_slot in (None, -1) else body.id_slot,
        t_max_predict_ms=max(0, body.t_max_predict_ms or 0),
        n_indent=max(0, body.n_indent or 0),
        return_progress=bool(body.return_progress and body.stream),
        timings_per_token=bool(body.timings_per_token),
        stream=bool(body.stream),
    )


def scales_of(model: ModelParams, given: Sequence[AdapterScale]) -> str | None:
    """How much every adapter counts: one that is not named, nothing. None where it is as at the start."""
    scales = [0.0] * len(model.adapters)
    for each in given:
        if not 0 <= each.id < len(scales):
            raise ConfigError(f"there is no adapter {each.id}; the server was started with {len(scales)} (--lora)")
        scales[each.id] = each.scale
    return None if scales == [scale for _, scale in model.adapters] else ",".join(map(str, scales))


def sampling_of(engine: Engine, body: SamplingBody, default: SamplingParams) -> SamplingParams:
    given = {name: value for name in SAMPLING_FIELDS if (value := getattr(body, name, None)) is not None}
    if body.seed is not None:
        given["seed"] = -1 if body.seed == RANDOM_SEED else body.seed
    if body.samplers is not None:
        given["samplers"] = samplers_of(body.samplers)
    if body.dry_sequence_breakers is not None:
        given["dry_sequence_breakers"] = tuple(map(utf8, body.dry_sequence_breakers))
    if body.logit_bias is not None:
        given["logit_bias"] = logit_bias_of(engine, body.logit_bias)
    sampling = with_overrides(default, given)
    if not sampling.ignore_eos:
        return sampling
    # What ignoring means, spelled out: replies show it as llama-server's do.
    never = dict.fromkeys(sorted(engine.vocab.eog), float("-inf"))
    return replace(sampling, logit_bias={**sampling.logit_bias, **never})


def samplers_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """A list of names, or llama-server's letters in a row."""
    if not isinstance(given, str):
        return tuple(map(sampler_name, given))
    unknown = sorted(set(given) - set(SAMPLER_LETTERS))
    if unknown:
        raise ConfigError(f"no sampler has the letter {unknown[0]!r}; choose from {''.join(SAMPLER_LETTERS)}")
    return tuple(SAMPLER_LETTERS[letter] for letter in given)


def logit_bias_of(engine: Engine, given: Mapping[str, Any] | Sequence[Sequence[Any]]) -> dict[int, float]:
    """{"15043": 1.5}, [[15043, 1.5]], [["Hello", false]]: a text means each of its tokens, false means never."""
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    bias: dict[int, float] = {}
    for key, value in pairs:
        if value is True or isinstance(value, str):
            raise ConfigError("logit_bias takes a number, or false for never")
        if isinstance(key, float | bool):
            raise ConfigError("logit_bias takes a token id or a text, and then a number")
        for token in biased_tokens(engine, key):
            bias[token] = float("-inf") if value is False else number(value)
    return bias


def number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ConfigError("logit_bias has a number that is too large") from None


def biased_tokens(engine: Engine, key: int | str) -> Sequence[int]:
    if isinstance(key, str) and not key.strip().isdecimal():
        return engine.tokenize(key, special=False)
    if len(str(key)) > 10 or not 0 <= int(key) < engine.vocab.n_tokens:
        raise ConfigError(f"logit_bias has token {key}; the vocabulary has {engine.vocab.n_tokens}")
    return [int(key)]


def speculative_of(engine: Engine, body: SamplingBody) -> SpeculativeParams:
    """Both ways to write it: {"speculative": {"n_max": 4}} and {"speculative.n_max": 4}, which wins."""
    nested = body.speculative.model_dump(exclude_none=True) if body.speculative else {}
    flat = {name: getattr(body, f"speculative_{name}") for name in ("n_max", "n_min", "p_min", "types")}
    given: dict[str, Any] = nested | {name: value for name, value in flat.items() if value is not None}
    if "types" in given:
        given["types"] = types_of(given["types"])
    return with_overrides(engine.settings.engine.speculative, given)


def types_of(given: str | list[str]) -> tuple[str, ...]:
    """Drafters by name; `none` is none of them."""
    names = [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]
    return canonical([name for name in names if name])


def max_tokens_of(body: SamplingBody, default: int | None) -> int | None:
    """OpenAI's new name, its old one, llama-server's; -1 is no limit."""
    for value in (body.max_completion_tokens, body.max_tokens, body.n_predict):
        if value is not None:
            return None if value < 0 else value
    return default


def stops_of(body: SamplingBody, default: tuple[str, ...]) -> tuple[str, ...]:
    if body.stop is None:
        return default
    stops = [body.stop] if isinstance(body.stop, str) else body.stop
    return tuple(utf8(stop) for stop in stops if stop)


def utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PromptError("a text holds half of a surrogate pair, which is not valid Unicode") from None
    return text


# -- prompts


def prompts_of(engine: Engine, prompt: PromptField) -> list[list[int]]:
    """One prompt or several, each a text, a list of tokens, or a mixture."""
    if not isinstance(prompt, list):
        return [tokens_of(engine, [prompt])]
    if len(prompt) > MAX_INPUTS and not isinstance(prompt[0], int):
        raise PromptError(f"{len(prompt)} prompts are too many; {MAX_INPUTS} at once are allowed")
    if any(isinstance(item, list) for item in prompt) or all(isinstance(item, str | PromptObject) for item in prompt):
        prompts = [tokens_of(engine, item if isinstance(item, list) else [item]) for item in prompt]
    else:
        prompts = [tokens_of(engine, prompt)]
    if not prompts:
        raise PromptError("the prompt is an empty list")
    return prompts


def tokens_of(engine: Engine, parts: Sequence[Any], *, special: bool = True, parse_special: bool = True) -> list[int]:
    """Texts and tokens in a row; what the model wants before a text comes before the first part only."""
    n, n_ctx = len(parts), engine.n_ctx
    if n > n_ctx:
        raise ContextFull(f"the prompt has {n} parts or tokens, a slot holds {n_ctx}", n, n_ctx)
    if sum(not isinstance(part, int) for part in parts) > MAX_INPUTS:
        raise PromptError(f"a prompt of more than {MAX_INPUTS} texts is too many; join them")
    tokens: list[int] = []
    for i, part in enumerate(parts):
        if isinstance(part, PromptObject):
            if part.multimodal_data:
                raise PromptError("this server reads text only; leave multimodal_data out")
            part = part.prompt_string
        if isinstance(part, str):
            text = bounded(engine, part)
            tokens += engine.tokenize(text, special=special and i == 0, parse_special=parse_special)
        elif isinstance(part, int):
            tokens.append(part)
        else:
            raise PromptError("a prompt is text, or a list of texts and token ids")
    return tokens


def bounded(engine: Engine, text: str) -> str:
    """The text, unless it is so long that it cannot fit: counting its tokens would only take time and memory."""
    n, n_max = engine.n_ctx, max(MIN_TEXT, BYTES_PER_TOKEN * engine.n_ctx)
    if len(text) > n_max:
        raise ContextFull(f"the text has {len(text)} characters, a slot holds {n} tokens; {n_max} can be sent")
    return text


def mixed_tokens(engine: Engine, given: MixedText, *, special: bool, parse_special: bool) -> list[int]:
    """A text, or texts and tokens in a row."""
    parts = [given] if isinstance(given, str) else given
    return tokens_of(engine, parts, special=special, parse_special=parse_special)
