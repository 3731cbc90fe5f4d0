"""Flags that say which model to load, and how."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import EVERY, SERVE, Flag, Kind, rows

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
        names="-dev --device",
        sets="model.devices",
        kind=Kind.LIST,
        env="LLAMA_ARG_DEVICE",
        help="the devices that may hold the model",
    ),
    Flag(
        names="-sm --split-mode",
        sets="model.split_mode",
        kind=Kind.STR,
        env="LLAMA_ARG_SPLIT_MODE",
        metavar="MODE",
        help="how several GPUs share the model: none, layer or row",
    ),
    Flag(
        names="-ts --tensor-split",
        sets="model.tensor_split",
        kind=Kind.LIST,
        env="LLAMA_ARG_TENSOR_SPLIT",
        help="each GPU's share of the model, as in 3,1",
    ),
    Flag(
        names="-mg --main-gpu",
        sets="model.main_gpu",
        kind=Kind.INT,
        env="LLAMA_ARG_MAIN_GPU",
        help="the GPU that holds what cannot be split",
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
