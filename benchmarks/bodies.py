"""Requests of every kind the server answers. Each has a seed or is greedy: with --exact its answer is one text only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
NATIVE = "/completion"

STORY = (
    "A fox came to a river in the evening and wanted to cross it. The ferryman was asleep, the bridge was far, and "
    "the water was cold and quick. So the fox sat down beside the old willow and began to think about it aloud. "
)
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
SAMPLED: dict[str, Any] = {"temperature": 0.8, "seed": 7, "ignore_eos": True}
FREE: dict[str, Any] = {"temperature": 0.8, "seed": 11}
NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 12, "maxItems": 30}
RECORD = {
    "type": "object",
    "properties": {"kind": {"enum": ["fox", "ferryman"]}, "numbers": NUMBERS, "sure": {"type": "boolean"}},
    "required": ["kind", "numbers", "sure"],
    "additionalProperties": False,
}
LETTERS = 'root ::= word (" " word){9,20} "."\nword ::= [a-f] [g-m] [n-z]+'


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to ask."""

    name: str
    path: str
    body: dict[str, Any]

    def request(self, *, stream: bool) -> dict[str, Any]:
        """Its body. Streams tell their usage too, so that it can be compared."""
        if not stream:
            return self.body
        usage = {} if self.path == NATIVE else {"stream_options": {"include_usage": True}}
        return {**self.body, "stream": True, **usage}

    def with_seed(self, seed: int) -> Kind:
        """The same for another text, where a seed matters."""
        return replace(self, body={**self.body, "seed": seed}) if "seed" in self.body else self

    def stopped_by(self, text: str) -> Kind:
        """The same, ended early by a text that is known to come."""
        return replace(self, name=f"{self.name}, stop", body={**self.body, "stop": ["\0never\0", text]})


def story(n_chars: int, start: int = 0) -> str:
    return (STORY * (1 + (start + n_chars) // len(STORY)))[start : start + n_chars]


def kinds() -> list[Kind]:
    return [*chats(), *texts(), *natives()]


def chats() -> list[Kind]:
    def kind(name: str, prompt: str, n: int, /, **options: Any) -> Kind:
        messages = [{"role": "user", "content": prompt}]
        return Kind(f"chat, {name}", CHAT, {"messages": messages, "max_tokens": n, **options})

    schema = {"type": "json_schema", "json_schema": {"name": "record", "schema": RECORD}}
    return [
        kind("greedy", story(60), 120, **GREEDY),
        kind("sampled", story(300), 200, **SAMPLED),
        kind("schema", story(90), 160, **FREE, response_format=schema),
        kind("logprobs", story(200, 40), 60, **GREEDY, logprobs=True, top_logprobs=3),
        kind("two choices", story(120), 80, **SAMPLED, n=2),
        kind("logit bias", story(40, 9), 100, **SAMPLED, logit_bias={"101": 3.0, "120": -100, "32": 1.5}),
        kind("long prompt", story(2000), 40, **GREEDY),
        kind("sampled logprobs", story(700, 30), 90, **SAMPLED, logprobs=True, presence_penalty=0.4),
    ]


def texts() -> list[Kind]:
    def kind(name: str, prompt: str | list[str], n: int, /, **options: Any) -> Kind:
        return Kind(f"text, {name}", TEXT, {"prompt": prompt, "max_tokens": n, **options})

    penalties = {"repeat_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.2}
    return [
        kind("greedy", story(500), 150, **GREEDY),
        kind("penalties", story(150), 150, **SAMPLED, **penalties),
        kind("grammar", story(80, 5), 120, **FREE, grammar=LETTERS),
        kind("logprobs", story(250, 70), 60, **SAMPLED, logprobs=2),
        kind("two choices", story(30), 70, **SAMPLED, n=2),
        kind("two prompts", [story(50), story(900, 11)], 40, **GREEDY, echo=True),
    ]


def natives() -> list[Kind]:
    def kind(name: str, prompt: str | list[int], n: int, /, **options: Any) -> Kind:
        return Kind(f"native, {name}", NATIVE, {"prompt": prompt, "n_predict": n, "return_tokens": True, **options})

    return [
        kind("greedy", story(100), 200, **GREEDY),
        kind("sampled", story(800, 21), 100, **SAMPLED),
        kind("DRY", story(180), 120, **SAMPLED, dry_multiplier=0.8, dry_allowed_length=1, repeat_penalty=1.05),
        kind("schema", story(70), 160, **FREE, json_schema=RECORD),
        kind("grammar and probabilities", story(90, 3), 50, **FREE, grammar=LETTERS, n_probs=3),
        kind("probabilities", story(400), 50, **SAMPLED, n_probs=4),
        kind("mirostat", story(110), 90, **SAMPLED, mirostat=2, mirostat_tau=4.0),
        kind("XTC", story(130), 90, **SAMPLED, xtc_probability=0.5, dynatemp_range=0.3),
        kind("two texts", story(35), 60, **SAMPLED, n_cmpl=2),
        kind("tokens", list(range(40, 120)), 20, **GREEDY),
    ]


def stop_in(text: str) -> str | None:
    """Three characters that first come after a third of the text."""
    for at in range(len(text) // 3, len(text) - 3):
        found = text[at : at + 3]
        if "\ufffd" not in found and text.find(found) == at:
            return found
    return None
