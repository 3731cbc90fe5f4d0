"""Flags that size the target's context: tokens held, tokens per batch, threads, slots."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import EVERY, Flag, Kind, rows
from paceline.config import ROPE_SCALINGS

CONTEXT = [
    Flag(
        names="-c --ctx-size",
        sets="context.n_ctx",
        kind=Kind.INT,
        env="LLAMA_ARG_CTX_SIZE",
        help="tokens the context holds, all slots together, prompts and answers; each slot has an equal "
        "part. 0 = as many as the model was trained for",
    ),
    Flag(
        names="-np --parallel",
        sets="engine.n_slots",
        kind=Kind.INT,
        env="LLAMA_ARG_N_PARALLEL",
        default="1; the server has 4 that share the whole context, with --exact 1",
        help="slots: how many requests are worked on side by side; -1 = the default",
    ),
    Flag(
        names="-b --batch-size",
        sets="context.n_batch",
        kind=Kind.INT,
        env="LLAMA_ARG_BATCH",
        help="the most tokens in one call to libllama",
    ),
    Flag(
        names="-ub --ubatch-size",
        sets="context.n_ubatch",
        kind=Kind.INT,
        env="LLAMA_ARG_UBATCH",
        help="the most tokens computed at once; more reads prompts quicker and takes more memory",
    ),
    Flag(
        names="-t --threads",
        sets="context.n_threads",
        kind=Kind.INT,
        env="LLAMA_ARG_THREADS",
        default="one per core",
        help="threads that write; more than there are cores is slower",
    ),
    Flag(
        names="-tb --threads-batch",
        sets="context.n_threads_batch",
        kind=Kind.INT,
        default="as -t",
        help="threads that read prompts",
    ),
    Flag(
        names="-fa --flash-attn",
        sets="context.flash_attn",
        kind=Kind.CHOICE,
        choices=("on", "off", "auto"),
        convert=values.on_off_auto,
        bare="on",
        env="LLAMA_ARG_FLASH_ATTN",
        default="auto",
        help="flash attention: less memory for long contexts; --exact and quantised V caches need it",
    ),
    Flag(
        names="-ctk --cache-type-k",
        sets="context.cache_type_k",
        kind=Kind.STR,
        metavar="TYPE",
        env="LLAMA_ARG_CACHE_TYPE_K",
        help="number format of the cached keys; q8_0 halves their memory",
    ),
    Flag(
        names="-ctv --cache-type-v",
        sets="context.cache_type_v",
        kind=Kind.STR,
        metavar="TYPE",
        env="LLAMA_ARG_CACHE_TYPE_V",
        help="number format of the cached values; anything but f16 needs flash attention",
    ),
    Flag(
        names="-kvo --kv-offload",
        off="-nkvo --no-kv-offload",
        sets="context.offload_kqv",
        env="LLAMA_ARG_KV_OFFLOAD",
        help="keep the cache on the GPU; off saves its memory and costs speed",
    ),
    Flag(
        names="-kvu --kv-unified",
        off="-no-kvu --no-kv-unified",
        sets="context.kv_unified",
        env="LLAMA_ARG_KV_UNIFIED",
        default="when the number of slots is left open",
        help="a slot may fill the whole context instead of its part; off keeps the parts' memory apart too, as --exact "
        "does",
    ),
    Flag(
        names="--kv-unified-per-slot",
        sets="context.n_ctx_slot",
        kind=Kind.INT,
        env="LLAMA_ARG_KV_UNIFIED_PER_SLOT",
        default="no limit",
        help="the most tokens one slot may hold; without -c the context is large enough for all slots to do so",
    ),
    Flag(
        names="--context-shift",
        off="--no-context-shift",
        sets="engine.context_shift",
        env="LLAMA_ARG_CONTEXT_SHIFT",
        help="a text that fills its slot goes on without the older half of it, instead of ending there",
    ),
    Flag(
        names="--keep",
        sets="engine.n_keep",
        kind=Kind.INT,
        help="tokens of the prompt's beginning that --context-shift never drops; -1 = the whole prompt",
    ),
    Flag(
        names="--op-offload",
        off="--no-op-offload",
        sets="context.op_offload",
        help="let the GPU compute what lies in the computer's own memory, where that is quicker",
    ),
    Flag(
        names="--warmup",
        off="--no-warmup",
        sets="engine.warmup",
        help="measure this machine at every start; off: only what was never measured before",
    ),
    Flag(
        names="--exact",
        sets="engine.exact",
        help="the same text to the last byte with any drafter or none, alone or beside others; slower, and refused "
        "where a trial at the first start finds no way on this model and device",
    ),
]


def stretch(name: str, help: str, kind: Kind = Kind.FLOAT) -> Flag:
    env = f"LLAMA_ARG_{name.replace('-', '_').upper()}"
    return Flag(names=f"--{name}", sets=f"context.{name.replace('-', '_')}", kind=kind, env=env, help=help)


POSITIONS = [
    Flag(
        names="--rope-scaling",
        sets="context.rope_scaling",
        kind=Kind.CHOICE,
        choices=ROPE_SCALINGS,
        env="LLAMA_ARG_ROPE_SCALING_TYPE",
        default="the model's own",
        help="how positions are stretched, so that a model reads further than it was trained for",
    ),
    Flag(
        names="--rope-scale",
        sets="context.rope_freq_scale",
        kind=Kind.FLOAT,
        convert=values.inverse,
        env="LLAMA_ARG_ROPE_SCALE",
        help="stretch positions by this factor: 2 reads twice as far",
    ),
    stretch("rope-freq-base", "the base frequency of positions; higher reads further"),
    stretch("rope-freq-scale", "1 / --rope-scale"),
    stretch("yarn-orig-ctx", "YaRN: tokens the model was trained for", Kind.INT),
    stretch("yarn-ext-factor", "YaRN: how much is extrapolated; 0 = everything is stretched"),
    stretch("yarn-attn-factor", "YaRN: scale of the attention's magnitude"),
    stretch("yarn-beta-slow", "YaRN: where stretching begins"),
    stretch("yarn-beta-fast", "YaRN: where stretching is complete"),
]

ROWS = rows("context", EVERY, CONTEXT) + rows("positions", EVERY, POSITIONS)
