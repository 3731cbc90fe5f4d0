"""Flags that say which model to load, and how."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import EVERY, Flag, Kind, rows
from paceline.config import LAZY_MODES, LOAD_MODES

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
]

ROWS = rows("model", EVERY, MODEL)
