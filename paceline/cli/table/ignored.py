"""Flags of llama-server and ik_llama.cpp that we take without acting on them: the answer stays the same without them.

Each says what it is and why nothing comes of it, which is the one line its user reads at the start.
"""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import EVERY, MISSING, SERVE, Flag, Kind, rows


def bare(names: str, help: str, why: str, off: str = "", env: str = "", always: object = MISSING) -> Flag:
    return Flag(names=names, off=off, env=env, help=help, why=why, always=always)


def valued(names: str, help: str, why: str, env: str = "") -> Flag:
    return Flag(names=names, kind=Kind.STR, metavar="VALUE", env=env, help=help, why=why)


IK = "ik_llama.cpp computes so, libllama does not"
NO_FIT = "nothing is fitted by itself; where memory is short, lower -ngl or -c"
NO_IMAGES = "no images, sound or video are read here"
ONE_TEAM = "the same threads read and write, for target and draft; {} holds for all of them"
NO_STATES = "prompts are read again from where a slot's memory can be cut"
ALWAYS = "always so"

PLACEMENT = [
    Flag(
        names="-fit --fit",
        kind=Kind.CHOICE,
        choices=("on", "off"),
        convert=values.switch,
        env="LLAMA_ARG_FIT",
        always=False,
        help="fit the model to the GPU's memory",
        why=NO_FIT,
    ),
    valued("-fitt --fit-target", "memory to leave free on each GPU", NO_FIT, env="LLAMA_ARG_FIT_TARGET"),
    valued("-fitc --fit-ctx", "the smallest context to fit", NO_FIT, env="LLAMA_ARG_FIT_CTX"),
    bare("-khad --k-cache-hadamard", "rotated keys", IK),
    bare("-vhad --v-cache-hadamard", "rotated values", IK),
    bare("-mqkv --merge-qkv", "merged attention weights", IK),
    valued("-amb --attention-max-batch", "size of the attention's buffer", IK),
    valued("-cuda --cuda-params", "CUDA options", IK),
    bare("-rtr --run-time-repack", "rearranged weights", "--repack does that, and is on"),
    bare("-fmoe --fused-moe", "fused experts", IK),
    valued("-mla --mla-use", "variant of latent attention", IK),
]

THREADS = [
    valued(f"--{name}{part} {twin}", "threads of a part of the work", ONE_TEAM.format(f"--{name}"))
    for name in ("prio", "poll")
    for part, twin in (
        ("-batch", ""),
        ("-draft", f"--spec-draft-{name}"),
        ("-batch-draft", f"--spec-draft-{name}-batch"),
    )
]

MEMORY = [
    bare("--swa-full", "full-size cache for sliding-window models", ALWAYS, env="LLAMA_ARG_SWA_FULL", always=True),
    valued(
        "-ctxcp --ctx-checkpoints --swa-checkpoints",
        "states of sliding-window models saved for each slot",
        f"their whole cache is kept (--swa-full); of recurrent models {NO_STATES}",
        env="LLAMA_ARG_CTX_CHECKPOINTS",
    ),
    valued(
        "-cms --checkpoint-min-step",
        "tokens between saved states",
        "see --ctx-checkpoints: no states are saved",
        env="LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT",
    ),
    valued(
        "--cache-reuse",
        "reuse of parts of a prompt that stand elsewhere now",
        "prefixes are reused; what was moved is read again, as it would not be the same to the bit",
        env="LLAMA_ARG_CACHE_REUSE",
    ),
    valued("--prompt-cache", "prompt state in a file", "prefixes are reused in memory; serve has --slot-save-path"),
    bare("--prompt-cache-all", "answers too, with --prompt-cache", "there is no --prompt-cache"),
    bare("--prompt-cache-ro", "read only, with --prompt-cache", "there is no --prompt-cache"),
    valued("-dt --defrag-thold", "cache defragmentation", "libllama has given it up", env="LLAMA_ARG_DEFRAG_THOLD"),
    bare(
        "-cb --cont-batching",
        "requests join while others run",
        ALWAYS,
        off="-nocb --no-cont-batching",
        env="LLAMA_ARG_CONT_BATCHING",
        always=True,
    ),
    valued(
        "--draft-p-split --spec-draft-p-split",
        "where a tree of drafts branches",
        "a draft is one line here, without branches",
        env="LLAMA_ARG_SPEC_DRAFT_P_SPLIT",
    ),
    bare(
        "-bs --backend-sampling",
        "sampling on the GPU",
        "the draw has to be the same with any drafter, and is made on the processor",
        env="LLAMA_ARG_BACKEND_SAMPLING",
    ),
    bare(
        "--spec-draft-backend-sampling",
        "draft sampling on the GPU",
        "a draft adds the target's noise to its logits, on the processor",
        off="--no-spec-draft-backend-sampling",
        env="LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING",
        always=False,
    ),
]

REPORTING = [
    bare("--verbose-prompt", "print the prompt's tokens first", "POST /tokenize or the library's tokenize() show them"),
    bare("--log-enable", "log (older llama.cpp)", ALWAYS, always=True),
    valued("--logdir", "log to a folder", "--log-file logs to a file"),
    bare(
        "--perf",
        "libllama's own timings",
        "replies and --show-timings have our own, which cost nothing",
        off="--no-perf",
        env="LLAMA_ARG_PERF",
        always=False,
    ),
    bare("-sp --special", "show special tokens as text", "they steer the model and are no part of its answer"),
    bare("--simple-io", "plain terminal input", "input is plain where it is no terminal"),
    bare("-i --interactive", "take turns", "-cnv does that here"),
    bare("-if --interactive-first", "take turns", "-cnv does that here"),
    bare("-mli --multiline-input", "input of several lines", "a question is one line; -f reads longer ones"),
]

MEDIA = [
    bare(
        "--mmproj-auto",
        "an image encoder found by itself",
        NO_IMAGES,
        off="--no-mmproj --no-mmproj-auto",
        env="LLAMA_ARG_MMPROJ_AUTO",
        always=False,
    ),
    bare(
        "--mmproj-offload",
        "the image encoder on the GPU",
        NO_IMAGES,
        off="--no-mmproj-offload",
        env="LLAMA_ARG_MMPROJ_OFFLOAD",
    ),
    valued("-mmdev --mmproj-device", "the image encoder's device", NO_IMAGES, env="MTMD_BACKEND_DEVICE"),
    valued("--image-min-tokens", "the least tokens of an image", NO_IMAGES, env="LLAMA_ARG_IMAGE_MIN_TOKENS"),
    valued("--image-max-tokens", "the most tokens of an image", NO_IMAGES, env="LLAMA_ARG_IMAGE_MAX_TOKENS"),
    valued("--mtmd-batch-max-tokens", "tokens of images at once", NO_IMAGES, env="LLAMA_ARG_MTMD_BATCH_MAX_TOKENS"),
    valued("--video-fps", "pictures of a video each second", NO_IMAGES, env="LLAMA_ARG_VIDEO_FPS"),
    valued("--video-timestamp-interval", "seconds between times", NO_IMAGES, env="LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL"),
    valued("--video-ffmpeg-dir", "where ffmpeg is", NO_IMAGES, env="LLAMA_ARG_VIDEO_FFMPEG_DIR"),
    valued("--media-path", "a folder of images that requests may name", NO_IMAGES),
]

ROUTER = [
    valued("--models-max", "models in memory at once", "one server serves one model", env="LLAMA_ARG_MODELS_MAX"),
    bare(
        "--models-autoload",
        "load a model when it is asked for",
        "one server serves one model, loaded at the start",
        off="--no-models-autoload",
        env="LLAMA_ARG_MODELS_AUTOLOAD",
        always=False,
    ),
]

JINJA = bare("--jinja", "jinja templates", ALWAYS, off="--no-jinja", env="LLAMA_ARG_JINJA", always=True)

ROWS = rows("without effect", EVERY, PLACEMENT + THREADS + MEMORY + REPORTING + MEDIA)
ROWS += rows("without effect", SERVE, ROUTER)
ROWS += rows("without effect", ("run", "bench"), [JINJA])
