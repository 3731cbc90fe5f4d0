"""Flags that say which device or memory holds which part of a model."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import EVERY, Flag, Kind, rows
from paceline.config import SPLIT_MODES

ALL_EXPERTS = ((values.EXPERTS, values.CPU),)

TARGET = [
    Flag(
        names="-dev --device",
        sets="model.devices",
        kind=Kind.LIST,
        convert=values.devices,
        env="LLAMA_ARG_DEVICE",
        default="all",
        help="the devices that may hold the model, as --list-devices names them; none = the processor alone",
    ),
    Flag(
        names="--rpc",
        sets="model.rpc",
        kind=Kind.LIST,
        convert=values.workers,
        env="LLAMA_ARG_RPC",
        metavar="HOST:PORT,...",
        help="machines that hold a part of the model, each with `paceline worker`; named RPC0, RPC1 ... for -dev",
    ),
    Flag(
        names="-sm --split-mode",
        sets="model.split_mode",
        kind=Kind.CHOICE,
        choices=SPLIT_MODES,
        convert=values.split_mode,
        env="LLAMA_ARG_SPLIT_MODE",
        help="how several GPUs share the model",
    ),
    Flag(
        names="-ts --tensor-split",
        sets="model.tensor_split",
        kind=Kind.LIST,
        convert=values.shares,
        env="LLAMA_ARG_TENSOR_SPLIT",
        help="each GPU's share of the model, as in 3,1",
    ),
    Flag(
        names="-mg --main-gpu",
        sets="model.main_gpu",
        kind=Kind.INT,
        env="LLAMA_ARG_MAIN_GPU",
        help="the GPU that holds all of it (-sm none) or what cannot be split",
    ),
    Flag(
        names="--repack",
        off="-nr --no-repack",
        sets="model.use_extra_bufts",
        env="LLAMA_ARG_REPACK",
        help="rearrange weights for the processor while loading, where that computes quicker",
    ),
    Flag(
        names="--no-host",
        sets="model.no_host",
        env="LLAMA_ARG_NO_HOST",
        help="no host memory for what stays beside a GPU, so that it can be rearranged for the processor",
    ),
]


def placed(root: str, names: str, moe: str, n_moe: str, moe_env: str, n_moe_env: str, tensor_env: str) -> list[Flag]:
    """Where single tensors live; the same for target and draft."""
    whose = "the draft's " if root == "draft" else ""
    path = f"{root}.tensors"
    return [
        Flag(
            names=names,
            sets=path,
            kind=Kind.LIST,
            convert=values.tensors,
            grows=True,
            env=tensor_env,
            metavar="PATTERN=MEMORY,...",
            help=f"{whose}tensors whose names match the pattern live in this memory, as in exps=CPU",
        ),
        Flag(
            names=moe,
            sets=path,
            on=ALL_EXPERTS,
            grows=True,
            env=moe_env,
            default="",
            help=f"{whose}experts live on the processor, the rest on the GPU",
        ),
        Flag(
            names=n_moe,
            sets=path,
            kind=Kind.LIST,
            convert=values.experts,
            grows=True,
            env=n_moe_env,
            metavar="N",
            help=f"{whose}experts of the first N layers live on the processor",
        ),
    ]


TENSORS = [
    *placed(
        "model",
        "-ot --override-tensor",
        "-cmoe --cpu-moe",
        "-ncmoe --n-cpu-moe",
        "LLAMA_ARG_CPU_MOE",
        "LLAMA_ARG_N_CPU_MOE",
        "LLAMA_ARG_OVERRIDE_TENSOR",
    ),
    Flag(
        names="-ncffn --n-cpu-ffn",
        sets="model.tensors",
        kind=Kind.LIST,
        convert=values.feed_forward,
        grows=True,
        env="LLAMA_ARG_N_CPU_FFN",
        metavar="N",
        help="the feed-forward parts of the first N layers live on the processor (models without experts)",
    ),
]

DRAFT = [
    Flag(
        names="-devd --spec-draft-device",
        old="--device-draft",
        sets="draft.devices",
        kind=Kind.LIST,
        convert=values.devices,
        default="all",
        help="the devices that may hold the draft model; none = the processor alone",
    ),
    Flag(
        names="--rpc-draft",
        sets="draft.rpc",
        kind=Kind.LIST,
        convert=values.workers,
        metavar="HOST:PORT,...",
        help="machines that hold the draft model; it may be one of --rpc, and is named after those",
    ),
    *placed(
        "draft",
        "-otd --override-tensor-draft --spec-draft-override-tensor",
        "-cmoed --cpu-moe-draft --spec-draft-cpu-moe",
        "-ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe",
        "LLAMA_ARG_SPEC_DRAFT_CPU_MOE",
        "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE",
        "",
    ),
]

ROWS = rows("placement", EVERY, TARGET + TENSORS + DRAFT)
