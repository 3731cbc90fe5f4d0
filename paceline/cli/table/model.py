"""Flags that say which model to load, and how."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import EVERY, SERVE, Flag, Kind, rows
from paceline.config import LAZY_MODES, LOAD_MODES

PRESETS = (
    "--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec "
    "--fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default "
    "--vision-gemma-4b-default --vision-gemma-12b-default"
)

MODEL = [
    Flag(
        names="-m --model",
        sets="model.path",
        kind=Kind.PATH,
        env="LLAMA_ARG_MODEL",
        default="the demo model",
        help="the GGUF file to run; of a split model, the first part",
    ),
    Flag(
        names="-ngl --gpu-layers",
        old="--n-gpu-layers",
        sets="model.n_gpu_layers",
        kind=Kind.INT,
        convert=values.layers,
        env="LLAMA_ARG_N_GPU_LAYERS",
        metavar="N|all",
        default="all",
        help="how many layers live on the GPU, if there is one; fewer when its memory is short",
    ),
    Flag(
        names="--mmap",
        off="--no-mmap",
        sets="model.use_mmap",
        env="LLAMA_ARG_MMAP",
        help="map the file into memory: quick starts, and shared between processes",
    ),
    Flag(
        names="--mlock",
        sets="model.use_mlock",
        env="LLAMA_ARG_MLOCK",
        help="pin the model in memory, so that the system never swaps it out",
    ),
    Flag(
        names="-lm --load-mode",
        sets="model.load_mode",
        kind=Kind.CHOICE,
        choices=LOAD_MODES,
        env="LLAMA_ARG_LOAD_MODE",
        default="mmap",
        help="how the file is read; wins over --mmap and --mlock; dio reads past the system's cache",
    ),
    Flag(
        names="-lzm --lazy-mode",
        sets="model.lazy_mode",
        kind=Kind.CHOICE,
        choices=LAZY_MODES,
        env="LLAMA_ARG_LAZY_MODE",
        default="auto",
        help="leave rows of tensors that are rarely read in the file until they are; auto: of those above 4 GiB",
    ),
    Flag(
        names="--check-tensors",
        sets="model.check_tensors",
        help="look for invalid numbers in the weights while loading, and refuse a file that has some",
    ),
    Flag(
        names="--override-kv",
        sets="model.metadata",
        kind=Kind.LIST,
        convert=values.metadata,
        grows=True,
        metavar="KEY=TYPE:VALUE",
        help="read an entry of the file's metadata otherwise, as in tokenizer.ggml.add_bos_token=bool:false; several "
        "with commas or by giving it again",
    ),
    Flag(
        names="--lora",
        sets="model.adapters",
        kind=Kind.LIST,
        convert=values.adapters,
        grows=True,
        metavar="FILE",
        help="a LoRA adapter (GGUF) on the weights, unless a request says otherwise; several with commas or by giving "
        "it again",
    ),
    Flag(
        names="--lora-scaled",
        sets="model.adapters",
        kind=Kind.LIST,
        convert=values.scaled_adapters,
        grows=True,
        metavar="FILE:SCALE",
        help="--lora that counts as much as its scale says",
    ),
    Flag(
        names="-hf --hf-repo",
        old="-hfr",
        sets="hub.model",
        kind=Kind.STR,
        env="LLAMA_ARG_HF_REPO",
        metavar="USER/MODEL",
        help="a model by repository; nothing is downloaded, so give its file with -m as well",
    ),
    Flag(
        names="-hff --hf-file",
        sets="hub.file",
        kind=Kind.STR,
        env="LLAMA_ARG_HF_FILE",
        metavar="NAME",
        help="the file within the -hf repository",
    ),
    Flag(
        names="-hft --hf-token",
        sets="hub.token",
        kind=Kind.STR,
        env="HF_TOKEN",
        metavar="TOKEN",
        help="the token for private -hf repositories",
    ),
    Flag(
        names="-mu --model-url",
        old="-dr --docker-repo",
        sets="hub.model",
        kind=Kind.STR,
        env="LLAMA_ARG_MODEL_URL LLAMA_ARG_DOCKER_REPO",
        metavar="URL",
        help="a model by address; nothing is downloaded, so give its file with -m as well",
    ),
    Flag(
        names=PRESETS,
        sets="hub.model",
        on="a preset of models to download",
        commands=SERVE,
        help="llama-server's presets; nothing is downloaded, so give the files with -m and -md as well",
    ),
]

ROWS = rows("model", EVERY, MODEL)
