"""Flags of `paceline distill`: which draft, how long it may take, and what else than the target it learns from."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import DISTILL, Flag, Kind, rows

STAGES = ("prepare", "write", "train", "export")

MAKE = [
    Flag(
        names="-m --model",
        sets="model.path",
        kind=Kind.PATH,
        env="LLAMA_ARG_MODEL",
        default="the demo model",
        help="the target: a GGUF file of the architecture llama, qwen2 or qwen3",
    ),
    Flag(names="-o --output", sets="distill.output", kind=Kind.PATH, help="the draft to make, a GGUF file"),
    Flag(
        names="--type",
        sets="distill.type",
        kind=Kind.CHOICE,
        choices=("model", "eagle3"),
        help="what is made: a small model that speaks the target's tokens, or an EAGLE-3 head that reads the target's "
        "own states and drafts from them",
    ),
    Flag(
        names="--size",
        sets="distill.size",
        kind=Kind.STR,
        metavar="auto|s|m|l|xl|WIDTH:LAYERS",
        help="how large the draft is; auto measures what a token of each size costs here and takes the one that "
        "promises most",
    ),
    Flag(
        names="--head-tokens",
        sets="distill.head_tokens",
        kind=Kind.INT,
        default="16384 or all there are; with --continue as many as it knew",
        help="how many of the target's tokens a head may draft, the most frequent ones; fewer are cheaper",
    ),
    Flag(
        names="--head-ff",
        sets="distill.head_ff",
        kind=Kind.INT,
        default="four times the target's width",
        help="how wide the feed-forward part of a head is",
    ),
    Flag(
        names="--continue",
        sets="distill.start",
        kind=Kind.PATH,
        metavar="FILE",
        help="a draft or head of this target that is trained further, with --log on what you ask for",
    ),
    Flag(
        names="--minutes",
        sets="distill.minutes",
        kind=Kind.FLOAT,
        help="how long writing text (three tenths) and training may take together",
    ),
    Flag(
        names="--quant",
        sets="distill.kind",
        kind=Kind.STR,
        metavar="KIND",
        help="the precision of the file, as Q4_0, Q8_0, Q6_K or F16",
    ),
    Flag(
        names="--prompts --log",
        sets="distill.prompts",
        kind=Kind.LIST,
        metavar="FILE",
        grows=True,
        convert=values.one,
        help="what you ask, for half of the text: one question a line, or JSON lines with messages, turns or prompt, "
        "such as a recorded log of requests; recorded answers are learned from as they are, and the target answers "
        "anew",
    ),
    Flag(
        names="--work",
        sets="distill.work",
        kind=Kind.PATH,
        metavar="FOLDER",
        default="OUTPUT.work",
        help="where text and checkpoints are kept; the same command goes on from there after an interruption, one that "
        "contradicts them is refused",
    ),
    Flag(
        names="--stage",
        sets="distill.stage",
        kind=Kind.LIST,
        metavar=",".join(STAGES),
        default="all four",
        help="do only these; prepare and the measuring in export need libllama, write and train a GPU, so the folder "
        "may be carried from one machine to another",
    ),
]

TUNE = [
    Flag(
        names="-t --threads",
        sets="context.n_threads",
        kind=Kind.INT,
        env="LLAMA_ARG_THREADS",
        default="all cores",
        help="threads that measure and quantise",
    ),
    Flag(names="--device", sets="distill.device", kind=Kind.STR, default="cuda if there is one", help="torch's device"),
    Flag(
        names="--dtype",
        sets="distill.dtype",
        kind=Kind.CHOICE,
        choices=("bfloat16", "float32"),
        default="bfloat16 on a GPU",
        help="what the target is computed in",
    ),
    Flag(names="--rows", sets="distill.rows", kind=Kind.INT, default="what fits", help="texts written side by side"),
    Flag(names="--length", sets="distill.length", kind=Kind.INT, help="tokens of each text"),
    Flag(
        names="--text-tokens",
        sets="distill.text_tokens",
        kind=Kind.INT,
        default="by --minutes",
        help="write so many tokens, however long that takes",
    ),
    Flag(
        names="--steps",
        sets="distill.steps",
        kind=Kind.INT,
        default="by --minutes",
        help="train so many steps, however long that takes",
    ),
    Flag(
        names="--batch-tokens",
        sets="distill.batch_tokens",
        kind=Kind.INT,
        default="32768 on a GPU, 4096 on a CPU",
        help="tokens of a step; less needs less memory",
    ),
    Flag(names="--rate", sets="distill.rate", kind=Kind.FLOAT, help="how fast to learn, relative to the usual"),
    Flag(
        names="--save-every",
        sets="distill.save_every",
        kind=Kind.FLOAT,
        metavar="SECONDS",
        help="how often the checkpoint is renewed and the agreement measured",
    ),
    Flag(names="-s --seed", sets="distill.seed", kind=Kind.INT, help="the same seed writes the same text"),
]

ROWS = (*rows("distilling", DISTILL, MAKE), *rows("tuning", DISTILL, TUNE))
