"""Flags that name a model by repository or address, and llama-server's presets of them."""

from __future__ import annotations

from paceline.cli.table.flag import EVERY, SERVE, WRITING, Flag, Kind, rows

NAMES = [
    Flag(
        names="-hf --hf-repo",
        old="-hfr",
        sets="hub.model",
        kind=Kind.STR,
        env="LLAMA_ARG_HF_REPO",
        metavar="USER/MODEL[:QUANT]",
        help="a model of Hugging Face, fetched once and kept in the cache that its other programs use; QUANT is "
        "Q4_K_M, else Q8_0, else the first there is; also USER/MODEL/FILE.gguf",
    ),
    Flag(
        names="-hff --hf-file",
        sets="hub.file",
        kind=Kind.STR,
        env="LLAMA_ARG_HF_FILE",
        metavar="NAME",
        help="the file of the -hf repository, instead of a QUANT",
    ),
    Flag(
        names="-hft --hf-token",
        sets="hub.token",
        kind=Kind.STR,
        env="HF_TOKEN",
        metavar="TOKEN",
        default="that of `hf auth login`",
        help="who you are, for repositories that are private or gated",
    ),
    Flag(
        names="-mu --model-url",
        sets="hub.model",
        kind=Kind.STR,
        env="LLAMA_ARG_MODEL_URL",
        metavar="URL",
        help="a model by address, fetched once into our cache folder; with -m FILE, into that file",
    ),
    Flag(
        names="--offline",
        sets="hub.offline",
        env="LLAMA_ARG_OFFLINE HF_HUB_OFFLINE",
        help="fetch nothing: -hf, -hfd and -mu take what was fetched before",
    ),
]

QWEN_CODER = "ggml-org/Qwen2.5-Coder-{0}B-Q8_0-GGUF/qwen2.5-coder-{1}b-q8_0.gguf"
FILLING = (("--port", "8012"), ("-b", "1024"), ("-ub", "1024"), ("-c", "0"))
OPEN_WEIGHTS = (
    *(("--port", "8013"), ("-b", "32768"), ("-ub", "2048"), ("-np", "2"), ("-c", "262144")),
    *(("--temp", "1.0"), ("--top-p", "1.0"), ("--top-k", "0"), ("--min-p", "0.01")),
)
SEEING = (("--port", "8014"), ("-c", "0"))


def preset(name: str, help: str, *flags: tuple[str, str], commands: tuple[str, ...] = SERVE) -> Flag:
    words = (flag if value == "on" else f"{flag} {value}" for flag, value in flags)
    return Flag(names=name, stands_for=flags, commands=commands, help=f"{help}: {' '.join(words)}")


def coder(size: str) -> tuple[str, str]:
    return "-hf", QWEN_CODER.format(size, size)


DRAFT = ("-hfd", coder("0.5")[1])

PRESETS = [
    preset(
        "--embd-gemma-default",
        "EmbeddingGemma 300M, for embeddings",
        ("-hf", "ggml-org/embeddinggemma-300M-qat-q4_0-GGUF/embeddinggemma-300M-qat-Q4_0.gguf"),
        *(("--port", "8011"), ("-b", "2048"), ("-ub", "2048"), ("-np", "32"), ("-c", "65536"), ("--embedding", "on")),
    ),
    *(
        preset(f"--fim-qwen-{size}b-default", f"Qwen 2.5 Coder {size}B, to fill in code", coder(size), *FILLING)
        for size in ("1.5", "3", "7")
    ),
    *(
        preset(
            f"--fim-qwen-{size}b-spec",
            f"Qwen 2.5 Coder {size}B, to fill in code, drafted for by 0.5B",
            *(coder(size), DRAFT, *FILLING),
        )
        for size in ("7", "14")
    ),
    preset(
        "--fim-qwen-30b-default",
        "Qwen 3 Coder 30B A3B Instruct, to fill in code",
        ("-hf", "ggml-org/Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF/qwen3-coder-30b-a3b-instruct-q8_0.gguf"),
        *FILLING,
    ),
    preset(
        "--gpt-oss-20b-default",
        "gpt-oss-20b",
        ("-hf", "ggml-org/gpt-oss-20b-GGUF/gpt-oss-20b-mxfp4.gguf"),
        *OPEN_WEIGHTS,
        commands=WRITING,
    ),
    preset(
        "--gpt-oss-120b-default",
        "gpt-oss-120b",
        ("-hf", "ggml-org/gpt-oss-120b-GGUF"),
        *OPEN_WEIGHTS,
        commands=WRITING,
    ),
    *(
        preset(
            f"--vision-gemma-{size}b-default",
            f"Gemma 3 {size}B, which reads text only here",
            ("-hf", f"ggml-org/gemma-3-{size}b-it-qat-GGUF"),
            *SEEING,
            commands=WRITING,
        )
        for size in ("4", "12")
    ),
]

ROWS = rows("hub", EVERY, NAMES) + rows("presets", SERVE, PRESETS)
