"""From the text of a flag to its value. Every function raises ValueError with a reason fit for the user."""

from __future__ import annotations

import re

from paceline.cli.options import Prompt
from paceline.config.endpoints import endpoint_of
from paceline.config.sampler_names import SAMPLER_LETTERS, sampler_name

ON = frozenset({"on", "enabled", "true", "1", "yes"})
OFF = frozenset({"off", "disabled", "false", "0", "no"})
AUTO = frozenset({"auto", "-1"})

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([nrt'\"\\]))")

CPU = "CPU"
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
FEED_FORWARD = r"\.ffn_(up|down|gate)\."
"""How tensors of these parts are named in GGUF files."""
MOST_LAYERS, MOST_CORES = 4096, 1024

BETWEEN = "\x1f"
"""Between the two words of a flag that takes a pair."""

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


def devices(text: str) -> tuple[str, ...]:
    """`none` is no device at all: the processor, which some call by its name."""
    names = words(text)
    if not names:
        raise ValueError("no device is named; none = the processor alone")
    return tuple(name for name in names if name.lower() not in ("none", "cpu"))


def workers(text: str) -> tuple[str, ...]:
    names = words(text)
    if not names:
        raise ValueError("no RPC worker is named; give HOST:PORT")
    for name in names:
        endpoint_of(name)
    return names


def shares(text: str) -> tuple[float, ...]:
    return tuple(number(word) for word in re.split("[,/]", text) if word.strip())


def tensors(text: str) -> tuple[tuple[str, str], ...]:
    """PATTERN=MEMORY, several with commas; a pattern alone means the processor's."""
    pairs = [word.partition("=") for word in words(text)]
    if not pairs or not all(pattern for pattern, _, _ in pairs):
        raise ValueError(f"{text!r} is not PATTERN=MEMORY, as in exps=CPU")
    return tuple((pattern, memory or CPU) for pattern, _, memory in pairs)


def split_mode(text: str) -> str:
    """ik_llama.cpp's `graph` is a way of its own to share layers."""
    return "layer" if text == "graph" else text


def experts(text: str) -> tuple[tuple[str, str], ...]:
    """The experts of the first N layers, on the processor."""
    return tuple((rf"blk\.{layer}{EXPERTS}", CPU) for layer in range(layer_count(text)))


def feed_forward(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((rf"blk\.{layer}{FEED_FORWARD}", CPU) for layer in range(layer_count(text)))


def layer_count(text: str) -> int:
    n = whole(text)
    if not 0 <= n <= MOST_LAYERS:
        raise ValueError(f"{text} is no number of layers")
    return n


def metadata(text: str) -> tuple[str, ...]:
    """KEY=TYPE:VALUE, several with commas; \\, is a comma within a value."""
    parts = [part.replace("\\,", ",") for part in re.split(r"(?<!\\),", text)]
    for part in parts:
        if not re.fullmatch(r"[^=]+=(int|float|bool|str):.*", part, re.DOTALL):
            raise ValueError(f"{part!r} is not KEY=TYPE:VALUE with a type of int, float, bool or str")
    return tuple(parts)


def adapters(text: str) -> tuple[tuple[str, float], ...]:
    return tuple((path, 1.0) for path in words(text))


def scaled_adapters(text: str) -> tuple[tuple[str, float], ...]:
    """FILE:SCALE, several with commas."""
    pairs = [word.rpartition(":") for word in words(text)]
    if not pairs or not all(path for path, _, _ in pairs):
        raise ValueError(f"{text!r} is not FILE:SCALE, as in style.gguf:0.5")
    return tuple((path, number(scale)) for path, _, scale in pairs)


def inverse(text: str) -> float:
    value = number(text)
    if not value > 0:
        raise ValueError(f"{text} is not above 0")
    return 1 / value


def cpu_mask(text: str) -> tuple[int, ...]:
    """Hexadecimal, a bit for each core."""
    if not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,256}", text):
        raise ValueError(f"{text!r} is not a hexadecimal mask, as in 0x0f for the first four cores")
    mask = int(text, 16)
    return tuple(core for core in range(mask.bit_length()) if mask >> core & 1)


def cpu_range(text: str) -> tuple[int, ...]:
    """LOW-HIGH; either may be left out."""
    match = re.fullmatch(r"([0-9]{0,4})-([0-9]{0,4})", text)
    if not match:
        raise ValueError(f"{text!r} is not LOW-HIGH, as in 0-3")
    return tuple(range(int(match[1] or 0), int(match[2] or MOST_CORES - 1) + 1))


def seconds_or_never(text: str) -> int | None:
    """-1 is never."""
    value = whole(text)
    return None if value == -1 else value


def numbers(text: str) -> tuple[float, ...]:
    return tuple(number(part.strip()) for part in text.split(","))


def words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def samplers(text: str) -> tuple[str, ...]:
    return tuple(sampler_name(word) for word in text.split(";") if word.strip())


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


def replacement(text: str) -> tuple[tuple[str, str], ...]:
    """Two texts: as two words of the command line, or as one with a blank between them."""
    ours, between, theirs = text.partition(BETWEEN) if BETWEEN in text else text.strip().partition(" ")
    if not (ours and between):
        raise ValueError(f"takes two texts, the target's and the draft's, not {text!r}")
    return ((ours, theirs if between == BETWEEN else theirs.lstrip()),)


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
