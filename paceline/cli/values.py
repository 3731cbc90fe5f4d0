"""From the text of a flag to its value. Every function raises ValueError with a reason fit for the user."""

from __future__ import annotations

import re

from paceline.cli.options import Prompt
from paceline.config import SAMPLER_ORDER, EngineParams

ON = frozenset({"on", "enabled", "true", "1", "yes"})
OFF = frozenset({"off", "disabled", "false", "0", "no"})
AUTO = frozenset({"auto", "-1"})

SAMPLER_NAMES = {
    "top_nsigma": "top_n_sigma",
    "typical": "typ_p",
    "typical_p": "typ_p",
    "nucleus": "top_p",
    "temp": "temperature",
}
SAMPLER_LETTERS = dict(zip("edskypmxt", SAMPLER_ORDER, strict=True))

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([nrt'\"\\]))")

UPSTREAM_RANDOM_SEED = 2**32 - 1


def whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def switch(text: str) -> bool:
    value = on_off_auto(text)
    if value is None:
        raise ValueError(f"{text!r} is neither on nor off")
    return value


def on_off_auto(text: str) -> bool | None:
    word = text.lower()
    if word in ON:
        return True
    if word in OFF:
        return False
    if word in AUTO:
        return None
    raise ValueError(f"{text!r} is none of on, off, auto")


def seed(text: str) -> int:
    """llama-server's default, 2^32 - 1, asks for a random seed; ours is -1."""
    value = whole(text)
    return -1 if value == UPSTREAM_RANDOM_SEED else value


def layers(text: str) -> int:
    """libllama takes any negative number as "all of them", so `auto` and `all` are the same."""
    return -1 if text in ("auto", "all") else whole(text)


def slots(text: str) -> int:
    """-1 leaves the number to us, as in llama-server."""
    value = whole(text)
    return EngineParams().n_slots if value == -1 else value


def seconds_or_never(text: str) -> int | None:
    """-1 is never."""
    value = whole(text)
    return None if value == -1 else value


def numbers(text: str) -> tuple[float, ...]:
    return tuple(number(part.strip()) for part in text.split(","))


def words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def samplers(text: str) -> tuple[str, ...]:
    names = [word.strip().replace("-", "_") for word in text.split(";") if word.strip()]
    return tuple(SAMPLER_NAMES.get(name, name) for name in names)


def sampler_letters(text: str) -> tuple[str, ...]:
    for letter in text:
        if letter not in SAMPLER_LETTERS:
            raise ValueError(f"no sampler has the letter {letter!r}; choose from {''.join(SAMPLER_LETTERS)}")
    return tuple(SAMPLER_LETTERS[letter] for letter in text)


def logit_bias(text: str) -> tuple[tuple[int, float], ...]:
    match = re.fullmatch(r"([0-9]{1,10})([+-].+)", text)
    if not match:
        raise ValueError(f"{text!r} is not TOKEN_ID+BIAS or TOKEN_ID-BIAS, as in 15043+1.5")
    return ((int(match[1]), number(match[2])),)


def one(text: str) -> tuple[str, ...]:
    return (text,)


def breaker(text: str) -> tuple[str, ...]:
    return () if text == "none" else (text,)


def prompt_text(text: str) -> tuple[Prompt, ...]:
    return (Prompt(text=text),)


def prompt_file(text: str) -> tuple[Prompt, ...]:
    return (Prompt(path=text),)


def unescape(text: str) -> str:
    """The sequences llama-cli knows: \\n \\r \\t \\' \\" \\\\ and \\xHH; anything else stays as it is."""

    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else ESCAPES[match[2]]

    return ESCAPE.sub(character, text)
