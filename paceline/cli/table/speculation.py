"""Flags that say what drafts and how much, and the draft model's own. Old llama-server names are understood."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import EVERY, WRITING, Flag, Kind, rows
from paceline.drafters.names import NAMES

CHOICE = [
    Flag(
        names="--spec-type",
        sets="engine.spec_types",
        kind=Kind.LIST,
        grows=True,
        env="LLAMA_ARG_SPEC_TYPE",
        metavar="A,B",
        choices=(*NAMES, "none"),
        default="grammar,suffix; what -md gives, too",
        help="the drafters to use: grammar, suffix, ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod, ngram-cache, "
        "draft-simple, and heads that read the model: draft-mtp (Qwen3.5, GLM-4.5 and others have theirs in their own "
        "file), draft-eagle3, draft-dflash, draft-dspark (with -md); none = no speculation at all, not even with -md",
    ),
    Flag(
        names="--spec-default",
        sets="engine.spec_types",
        on=("ngram-mod",),
        grows=True,
        default="",
        help="ngram-mod with its defaults, beside what --spec-type names: good for long sessions and edits",
    ),
    Flag(
        names="--spec-policy",
        sets="engine.spec_policy",
        kind=Kind.CHOICE,
        choices=("auto", "fixed"),
        commands=WRITING,
        help="auto drafts as much as pays on this machine; fixed takes your limits literally",
    ),
    Flag(
        names="--draft-max",
        old="--draft --draft-n",
        sets="speculative.n_max drafters.draft_model.n_max drafters.ngram_mod.n_max",
        kind=Kind.INT,
        env="LLAMA_ARG_DRAFT_MAX",
        default="each drafter's own",
        help="the most tokens any drafter may propose at once; 0 = none",
    ),
    Flag(
        names="--draft-min",
        old="--draft-n-min",
        sets="speculative.n_min drafters.draft_model.n_min drafters.ngram_mod.n_min",
        kind=Kind.INT,
        env="LLAMA_ARG_DRAFT_MIN",
        default="each drafter's own",
        help="drop drafts of any drafter that are shorter than this",
    ),
    Flag(
        names="--spec-synth-len",
        sets="engine.synth_len",
        kind=Kind.FLOAT,
        env="LLAMA_ARG_SPEC_SYNTH_LEN",
        metavar="N",
        default="off",
        help="for benchmarks: accept drafts by chance, so that a step writes this many tokens on average; the text "
        "means nothing",
    ),
    Flag(
        names="--spec-synth-rates",
        sets="engine.synth_rates",
        kind=Kind.STR,
        convert=values.numbers,
        env="LLAMA_ARG_SPEC_SYNTH_RATES",
        metavar="P,P,...",
        default="off",
        help="for benchmarks: accept drafts by chance, the first token of each with the first of these probabilities, "
        "the first two with the second, and so on; as many as --spec-draft-n-max",
    ),
]

DRAFT_MODEL = [
    Flag(
        names="-md --spec-draft-model",
        old="--model-draft",
        sets="draft.path",
        kind=Kind.PATH,
        env="LLAMA_ARG_SPEC_DRAFT_MODEL LLAMA_ARG_MODEL_DRAFT",
        default="none",
        help="what drafts for the large model: a small GGUF model, best with the same tokenizer (others are "
        "translated), or a head that was trained for it (EAGLE-3, MTP, DFlash, DSpark); the file says which, and turns "
        "its drafter on",
    ),
    Flag(
        names="--spec-replace",
        sets="drafters.draft_model.replace",
        kind=Kind.STR,
        convert=values.replacement,
        pair=True,
        grows=True,
        metavar="TARGET DRAFT",
        default="none",
        help="for a draft with another tokenizer: where the target's text has TARGET the draft reads DRAFT, and back; "
        'as two words or one ("TARGET DRAFT"), and as often as needed',
    ),
    Flag(
        names="-hfd --spec-draft-hf",
        old="-hfrd --hf-repo-draft",
        sets="hub.draft",
        kind=Kind.STR,
        env="LLAMA_ARG_SPEC_DRAFT_HF_REPO LLAMA_ARG_HFD_REPO",
        metavar="USER/MODEL",
        help="the draft model by repository; nothing is downloaded, so give its file with -md as well",
    ),
    Flag(
        names="-cd --spec-draft-ctx-size",
        old="--ctx-size-draft",
        sets="drafters.draft_model.window",
        kind=Kind.INT,
        env="LLAMA_ARG_CTX_SIZE_DRAFT",
        help="how many tokens of the past the draft model or head sees, sliding along; more is rarely better; 0 = all "
        "it can",
    ),
    Flag(
        names="--spec-draft-n-max",
        sets="drafters.draft_model.n_max",
        kind=Kind.INT,
        env="LLAMA_ARG_SPEC_DRAFT_N_MAX",
        help="the most tokens the draft model or head proposes at once; a chain of MTP heads or a DFlash block may be "
        "shorter",
    ),
    Flag(
        names="--spec-draft-n-min",
        sets="drafters.draft_model.n_min",
        kind=Kind.INT,
        env="LLAMA_ARG_SPEC_DRAFT_N_MIN",
        help="drop drafts of the draft model or head that are shorter than this",
    ),
    Flag(
        names="--draft-p-min --spec-draft-p-min",
        sets="drafters.draft_model.p_min",
        kind=Kind.FLOAT,
        env="LLAMA_ARG_SPEC_DRAFT_P_MIN LLAMA_ARG_DRAFT_P_MIN",
        help="the draft model or head stops at its first token less likely than this; higher = shorter, surer drafts; "
        "left out: 0.75, or whatever pays under --spec-policy auto",
    ),
    Flag(
        names="-ngld --spec-draft-ngl",
        old="--gpu-layers-draft --n-gpu-layers-draft",
        sets="draft.n_gpu_layers",
        kind=Kind.INT,
        convert=values.layers,
        metavar="N|all",
        env="LLAMA_ARG_N_GPU_LAYERS_DRAFT",
        default="all",
        help="how many of the draft model's layers live on the GPU",
    ),
    Flag(
        names="-td --spec-draft-threads",
        old="--threads-draft",
        sets="draft_context.n_threads",
        kind=Kind.INT,
        default="as -t",
        help="threads of the draft model when it drafts",
    ),
    Flag(
        names="-tbd --spec-draft-threads-batch",
        old="--threads-batch-draft",
        sets="draft_context.n_threads_batch",
        kind=Kind.INT,
        default="as -td, else -tb",
        help="threads of the draft model when it reads",
    ),
    Flag(
        names="-ctkd --spec-draft-type-k",
        old="--cache-type-k-draft",
        sets="draft_context.cache_type_k",
        kind=Kind.STR,
        metavar="TYPE",
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K LLAMA_ARG_CACHE_TYPE_K_DRAFT",
        help="number format of the draft model's cached keys",
    ),
    Flag(
        names="-ctvd --spec-draft-type-v",
        old="--cache-type-v-draft",
        sets="draft_context.cache_type_v",
        kind=Kind.STR,
        metavar="TYPE",
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V LLAMA_ARG_CACHE_TYPE_V_DRAFT",
        help="number format of the draft model's cached values",
    ),
    Flag(
        names="--draft-params",
        old="-draft",
        sets="common.draft_params",
        kind=Kind.STR,
        metavar='"FLAGS"',
        help='flags for the draft model in the target\'s names, as in "-ngl 99 -ctk q8_0" (ik_llama.cpp)',
    ),
]

ROWS = rows("speculation", EVERY, CHOICE) + rows("draft model", EVERY, DRAFT_MODEL)
