"""Flags of llama-server and ik_llama.cpp that we take without acting on them, and those we refuse.

A flag is ignored, with one warning, when the answer stays the same without it. It is refused when ignoring it
would give another answer than the user asked for.
"""

from __future__ import annotations

from paceline.cli.table.flag import EVERY, Flag, Kind, rows


def bare(names: str, help: str, off: str = "", env: str = "") -> Flag:
    return Flag(names=names, off=off, env=env, help=help)


def valued(names: str, help: str, env: str = "") -> Flag:
    return Flag(names=names, kind=Kind.STR, metavar="VALUE", env=env, help=help)


def refused(names: str, help: str, env: str = "") -> Flag:
    return Flag(names=names, kind=Kind.STR, metavar="VALUE", env=env, help=help, refused=True)


PLACEMENT = [
    bare("-cmoe --cpu-moe", "experts on the CPU", env="LLAMA_ARG_CPU_MOE"),
    valued("-ncmoe --n-cpu-moe", "experts of N layers on the CPU", env="LLAMA_ARG_N_CPU_MOE"),
    valued("-ncffn --n-cpu-ffn", "feed-forward parts of N layers on the CPU", env="LLAMA_ARG_N_CPU_FFN"),
    bare("-cmoed --cpu-moe-draft --spec-draft-cpu-moe", "the draft's experts on the CPU"),
    valued(
        "-ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe",
        "the draft's experts of N layers on the CPU",
    ),
    valued("-ot --override-tensor", "where single tensors live", env="LLAMA_ARG_OVERRIDE_TENSOR"),
    valued("-otd --override-tensor-draft --spec-draft-override-tensor", "where the draft's single tensors live"),
    valued("-fit --fit", "fit the model to the GPU's memory", env="LLAMA_ARG_FIT"),
    valued("-fitt --fit-target", "memory to leave free on each GPU", env="LLAMA_ARG_FIT_TARGET"),
    valued("-fitc --fit-ctx", "smallest context to fit", env="LLAMA_ARG_FIT_CTX"),
    valued("-lm --load-mode", "how the file is read; --mmap and --mlock say it here", env="LLAMA_ARG_LOAD_MODE"),
    valued("-lzm --lazy-mode", "rows read from disk on demand", env="LLAMA_ARG_LAZY_MODE"),
    valued("--numa", "NUMA strategy", env="LLAMA_ARG_NUMA"),
    valued("--rpc", "layers on other machines", env="LLAMA_ARG_RPC"),
    bare("--repack", "repacked weights; libllama decides", off="-nr --no-repack", env="LLAMA_ARG_REPACK"),
    bare("--no-host", "no host buffer", env="LLAMA_ARG_NO_HOST"),
    bare("--op-offload", "host operations on the GPU", off="--no-op-offload"),
    bare("--check-tensors", "search the weights for invalid numbers"),
    bare("-khad --k-cache-hadamard", "rotated keys (ik_llama.cpp)"),
    bare("-vhad --v-cache-hadamard", "rotated values (ik_llama.cpp)"),
    bare("-mqkv --merge-qkv", "merged attention weights (ik_llama.cpp)"),
    valued("-amb --attention-max-batch", "attention buffer size (ik_llama.cpp)"),
    valued("-cuda --cuda-params", "CUDA options (ik_llama.cpp)"),
    bare("-rtr --run-time-repack", "repacked weights (ik_llama.cpp)"),
    bare("-fmoe --fused-moe", "fused experts (ik_llama.cpp)"),
    valued("-mla --mla-use", "latent attention variant (ik_llama.cpp)"),
]

THREADS = [
    valued("-C --cpu-mask", "which cores; use taskset"),
    valued("-Cr --cpu-range", "which cores; use taskset"),
    valued("-Cb --cpu-mask-batch", "which cores; use taskset"),
    valued("-Crb --cpu-range-batch", "which cores; use taskset"),
    valued("-Cd --cpu-mask-draft --spec-draft-cpu-mask", "which cores; use taskset"),
    valued("-Crd --cpu-range-draft --spec-draft-cpu-range", "which cores; use taskset"),
    valued("-Cbd --cpu-mask-batch-draft --spec-draft-cpu-mask-batch", "which cores; use taskset"),
    valued("-Crbd --cpu-range-batch-draft --spec-draft-cpu-range-batch", "which cores; use taskset"),
    *(
        valued(f"--{what}{part} {twin}", "thread placement; use taskset and nice")
        for what in ("cpu-strict", "prio", "poll")
        for part, twin in (
            ("", ""),
            ("-batch", ""),
            ("-draft", f"--spec-draft-{what}"),
            ("-batch-draft", f"--spec-draft-{what}-batch"),
        )
    ),
    valued("--threads-http", "HTTP threads; ours needs one", env="LLAMA_ARG_THREADS_HTTP"),
]

MEMORY = [
    valued("--keep", "tokens kept when the context shifts; an answer here ends at the context's end instead"),
    bare("--context-shift", "see --keep", off="--no-context-shift", env="LLAMA_ARG_CONTEXT_SHIFT"),
    bare("--swa-full", "full-size cache for sliding-window models", env="LLAMA_ARG_SWA_FULL"),
    valued("-ctxcp --ctx-checkpoints --swa-checkpoints", "saved states per slot", env="LLAMA_ARG_CTX_CHECKPOINTS"),
    valued("-cms --checkpoint-min-step", "tokens between saved states"),
    valued("-cram --cache-ram", "memory for prompts of idle slots", env="LLAMA_ARG_CACHE_RAM"),
    valued("--kv-unified-per-slot", "context limit per slot", env="LLAMA_ARG_KV_UNIFIED_PER_SLOT"),
    bare("--cache-idle-slots", "save idle slots", off="--no-cache-idle-slots", env="LLAMA_ARG_CACHE_IDLE_SLOTS"),
    valued("--cache-reuse", "reuse of shifted chunks", env="LLAMA_ARG_CACHE_REUSE"),
    valued("--prompt-cache", "prompt state in a file; prefixes are reused in memory here"),
    bare("--prompt-cache-all", "see --prompt-cache"),
    bare("--prompt-cache-ro", "see --prompt-cache"),
    valued("-dt --defrag-thold", "cache defragmentation", env="LLAMA_ARG_DEFRAG_THOLD"),
    bare("-cb --cont-batching", "continuous batching; always on here", off="-nocb --no-cont-batching"),
    valued("--draft-p-split --spec-draft-p-split", "threshold of tree drafting"),
    bare("-bs --backend-sampling", "sampling on the GPU", env="LLAMA_ARG_BACKEND_SAMPLING"),
    bare("--spec-draft-backend-sampling", "draft sampling on the GPU", off="--no-spec-draft-backend-sampling"),
]

REPORTING = [
    bare("--verbose-prompt", "print the prompt's tokens first"),
    bare("--log-enable", "log (older llama.cpp)"),
    valued("--logdir", "log to a folder; --log-file logs to a file"),
    valued("--log-prompts-dir", "save prompts to a folder"),
    bare("--log-jsonl", "log as JSON lines", off="--no-log-jsonl", env="LLAMA_ARG_LOG_JSONL"),
    bare("--perf", "libllama's own timings", off="--no-perf", env="LLAMA_ARG_PERF"),
    bare("--warmup", "an empty run at the start", off="--no-warmup"),
    bare("-sp --special", "print special tokens as text"),
    bare("--jinja", "jinja templates; always on here", off="--no-jinja", env="LLAMA_ARG_JINJA"),
    bare("--simple-io", "plain terminal input"),
    bare("-i --interactive", "take turns; -cnv does that here"),
    bare("-if --interactive-first", "take turns; -cnv does that here"),
    bare("-mli --multiline-input", "input of several lines"),
    bare("--offline", "no network; never used here", env="LLAMA_ARG_OFFLINE"),
    bare("--reuse-port", "share the port", env="LLAMA_ARG_REUSE_PORT"),
    valued("--sse-ping-interval", "pings in quiet streams", env="LLAMA_ARG_SSE_PING_INTERVAL"),
    valued("--tags", "labels of the model", env="LLAMA_ARG_TAGS"),
    bare("--mmproj-auto", "image encoder found by itself", off="--no-mmproj --no-mmproj-auto"),
]

CHANGES_THE_ANSWER = [
    refused("--lora", "an adapter on the weights"),
    refused("--lora-scaled", "an adapter on the weights"),
    refused("--control-vector", "steering vectors"),
    refused("--control-vector-scaled", "steering vectors"),
    refused("--override-kv", "changed model metadata"),
    refused("-mm --mmproj", "images as input", env="LLAMA_ARG_MMPROJ"),
    refused("--image --audio --video", "media as input"),
    refused("--adaptive-target", "adaptive-p sampling"),
    refused("--adaptive-decay", "adaptive-p sampling"),
    refused("--rope-scaling", "stretched positions", env="LLAMA_ARG_ROPE_SCALING_TYPE"),
    refused("--rope-scale", "stretched positions", env="LLAMA_ARG_ROPE_SCALE"),
    refused("--rope-freq-base", "stretched positions", env="LLAMA_ARG_ROPE_FREQ_BASE"),
    refused("--rope-freq-scale", "stretched positions", env="LLAMA_ARG_ROPE_FREQ_SCALE"),
    refused("--yarn-orig-ctx", "stretched positions", env="LLAMA_ARG_YARN_ORIG_CTX"),
    refused("--yarn-ext-factor", "stretched positions", env="LLAMA_ARG_YARN_EXT_FACTOR"),
    refused("--yarn-attn-factor", "stretched positions", env="LLAMA_ARG_YARN_ATTN_FACTOR"),
    refused("--yarn-beta-slow", "stretched positions", env="LLAMA_ARG_YARN_BETA_SLOW"),
    refused("--yarn-beta-fast", "stretched positions", env="LLAMA_ARG_YARN_BETA_FAST"),
]

NOT_FOR_RUN = [
    refused("--chat-template", "another chat template; `paceline serve` takes one"),
    refused("--chat-template-file", "another chat template; `paceline serve` takes one"),
    refused("--chat-template-kwargs", "values for the chat template; `paceline serve` takes them"),
]

ROWS = rows("without effect", EVERY, PLACEMENT + THREADS + MEMORY + REPORTING) + rows(
    "not supported", EVERY, CHANGES_THE_ANSWER
)
ROWS += rows("not supported", ("run", "bench"), NOT_FOR_RUN)
