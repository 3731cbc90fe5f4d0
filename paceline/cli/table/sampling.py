"""Flags that say how the next token is drawn. For `serve` they are the defaults of requests that do not say."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import EVERY, WRITING, Flag, Kind, rows
from paceline.config.sampler_names import SAMPLER_LETTERS, SAMPLER_ORDER


def number(names: str, field: str, help: str, env: str = "") -> Flag:
    return Flag(names=names, sets=f"sampling.{field}", kind=Kind.FLOAT, env=env, help=help)


def count(names: str, field: str, help: str, env: str = "") -> Flag:
    return Flag(names=names, sets=f"sampling.{field}", kind=Kind.INT, env=env, help=help)


DRAW = [
    number(
        "--temp --temperature",
        "temperature",
        "how daring the draw is: 0 always takes the likeliest token, 1 follows the model's own odds",
        "LLAMA_ARG_TEMPERATURE",
    ),
    Flag(
        names="-s --seed",
        sets="sampling.seed",
        kind=Kind.INT,
        convert=values.seed,
        default="random",
        help="with --exact the same seed and prompt give the same text, whatever drafts; -1 = another one each time",
    ),
]

COMMON = [
    count("--top-k", "top_k", "draw among the K likeliest tokens only; 0 = all", "LLAMA_ARG_TOP_K"),
    number("--top-p", "top_p", "draw among the likeliest tokens that make up this share; 1 = all", "LLAMA_ARG_TOP_P"),
    number("--min-p", "min_p", "drop tokens less likely than this share of the likeliest; 0 = none", "LLAMA_ARG_MIN_P"),
    number("--typical --typical-p", "typical_p", "keep tokens whose surprise is near the average; 1 = off"),
    number(
        "--top-nsigma --top-n-sigma", "top_n_sigma", "keep logits within this many deviations of the best; -1 = off"
    ),
    number("--dynatemp-range", "dynatemp_range", "let the temperature swing this far with the model's doubt; 0 = off"),
    number("--dynatemp-exp", "dynatemp_exponent", "how doubt maps to temperature within --dynatemp-range"),
    number("--xtc-probability", "xtc_probability", "chance of leaving out the likeliest tokens at a step; 0 = off"),
    number("--xtc-threshold", "xtc_threshold", "XTC leaves out tokens above this probability, all but the last one"),
    count("--mirostat", "mirostat", "hold the surprise of the text steady: 1 or 2 is the version; 0 = off"),
    number("--mirostat-lr", "mirostat_eta", "how fast mirostat corrects itself"),
    number("--mirostat-ent", "mirostat_tau", "the surprise mirostat aims at"),
    number("--adaptive-target", "adaptive_target", "with adaptive_p in --samplers: draw tokens near this probability"),
    number("--adaptive-decay", "adaptive_decay", "how long adaptive_p remembers what was drawn"),
]

PENALTIES = [
    number(
        "--repeat-penalty",
        "repeat_penalty",
        "make tokens seen lately less likely; 1 = off, 1.1 is mild",
        "LLAMA_ARG_REPEAT_PENALTY",
    ),
    count("--repeat-last-n", "repeat_last_n", "how many tokens count as lately; 0 = none, -1 = the whole context"),
    number(
        "--presence-penalty",
        "presence_penalty",
        "subtract this from every token seen lately; 0 = off",
        "LLAMA_ARG_PRESENCE_PENALTY",
    ),
    number(
        "--frequency-penalty",
        "frequency_penalty",
        "subtract this for each time a token was seen lately; 0 = off",
        "LLAMA_ARG_FREQUENCY_PENALTY",
    ),
    number(
        "--dry-multiplier", "dry_multiplier", "strength of DRY, which breaks up repeated phrases; 0 = off, 0.8 is usual"
    ),
    number("--dry-base", "dry_base", "how steeply DRY grows with the length of the repetition"),
    count("--dry-allowed-length", "dry_allowed_length", "repetitions up to this many tokens are free of DRY"),
    count("--dry-penalty-last-n", "dry_penalty_last_n", "how far back DRY looks; 0 = nowhere, -1 = the whole context"),
    Flag(
        names="--dry-sequence-breaker",
        sets="sampling.dry_sequence_breakers",
        kind=Kind.LIST,
        metavar="TEXT",
        convert=values.breaker,
        grows=True,
        help="text at which DRY starts afresh, instead of the usual ones; may be given several times; none = nowhere",
    ),
    Flag(
        names="-l --logit-bias",
        sets="sampling.logit_bias",
        kind=Kind.LIST,
        metavar="TOKEN±BIAS",
        convert=values.logit_bias,
        grows=True,
        default="",
        help="make one token id likelier or less likely, as in 15043+1 or 15043-inf; may be given several times",
    ),
    Flag(
        names="--ignore-eos",
        sets="sampling.ignore_eos",
        help="never let the model end by itself; -n says when",
    ),
    Flag(
        names="--samplers",
        sets="sampling.samplers",
        kind=Kind.LIST,
        metavar="A;B",
        convert=values.samplers,
        help="which filters run, in which order",
    ),
    Flag(
        names="--sampler-seq --sampling-seq",
        sets="sampling.samplers",
        kind=Kind.LIST,
        metavar="LETTERS",
        convert=values.sampler_letters,
        default="".join(letter for letter, name in SAMPLER_LETTERS.items() if name in SAMPLER_ORDER),
        help="--samplers, one letter each",
    ),
]

GRAMMAR = [
    Flag(
        names="--grammar",
        sets="request.grammar",
        kind=Kind.STR,
        metavar="GBNF",
        help="a grammar the answer must follow; what it forces is drafted for free with --spec-type grammar",
    ),
    Flag(names="--grammar-file", sets="request.grammar_file", kind=Kind.PATH, help="the grammar, from a file"),
    Flag(
        names="-j --json-schema",
        sets="request.json_schema",
        kind=Kind.STR,
        metavar="SCHEMA",
        help="a JSON schema the answer must fit; {} allows any JSON",
    ),
    Flag(
        names="-jf --json-schema-file", sets="request.json_schema_file", kind=Kind.PATH, help="the schema, from a file"
    ),
]

ROWS = (
    rows("grammar", WRITING, GRAMMAR)
    + rows("sampling", WRITING, DRAW)
    + rows("sampling", EVERY, COMMON)
    + rows("penalties", EVERY, PENALTIES)
)
