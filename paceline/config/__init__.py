"""Every default and every check, in frozen dataclasses. Knows nothing else of paceline but its errors."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from paceline.config.checks import check, check_choice, check_range
from paceline.config.drafters import DrafterSettings
from paceline.config.endpoints import check_endpoint
from paceline.config.granted import usable_cores
from paceline.config.sampler_names import SAMPLER_ORDER, SAMPLERS

AUTO_SLOTS = 4
AUTO_CACHE = 8192  # MiB
MIB = 2**20
BLOCK = 256  # tokens: libllama makes contexts of so many
POLICIES = ("auto", "fixed")
POOLINGS = ("none", "mean", "cls", "last", "rank")
MAX_TEXTS = 32  # embedded at once
POSITIONS = (
    "rope_scaling",
    "rope_freq_base",
    "rope_freq_scale",
    "yarn_orig_ctx",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_slow",
    "yarn_beta_fast",
)

SPLIT_MODES = ("none", "layer", "row", "tensor")
LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
LAZY_MODES = ("off", "auto", "on")
NUMA_STRATEGIES = ("distribute", "isolate", "numactl")
ROPE_SCALINGS = ("none", "linear", "yarn")
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
MAX_BREAKERS = 32  # libllama goes through the whole vocabulary for each, up to 0.1 s, while everybody waits
LONGEST_BREAKER = 256  # characters, of which libllama reads 40


def resolve_seed(seed: int) -> int:
    """-1 asks for a seed of the machine's choosing."""
    return secrets.randbits(63) if seed < 0 else seed


def part(n_ctx: int, n_slots: int) -> int:
    """A slot's share of a context, in whole blocks."""
    return -(-(n_ctx // n_slots) // BLOCK) * BLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one token is drawn. Names and defaults are llama-server's."""

    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    min_keep: int = 0
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    samplers: tuple[str, ...] = SAMPLER_ORDER
    seed: int = -1

    def __post_init__(self) -> None:
        check(math.isfinite(self.temperature), f"temperature must be a number, got {self.temperature}")
        check_range("temperature", self.temperature, -1e6, 1e6)
        check_range("dynatemp_range", self.dynatemp_range, 0.0, 1e6)
        check_range("dynatemp_exponent", self.dynatemp_exponent, 0.0, 1e6)
        check_range("top_k", self.top_k, -(2**31), 2**31 - 1)
        for name in ("top_p", "min_p", "typical_p", "xtc_probability", "xtc_threshold"):
            check_range(name, getattr(self, name), 0.0, 1.0)
        check_range("top_n_sigma", self.top_n_sigma, -1e6, 1e6)
        check_range("repeat_penalty", self.repeat_penalty, 1e-3, 1e3)
        check_range("repeat_last_n", self.repeat_last_n, -1, 2**31 - 1)
        check_range("presence_penalty", self.presence_penalty, -1e3, 1e3)
        check_range("frequency_penalty", self.frequency_penalty, -1e3, 1e3)
        check_range("dry_multiplier", self.dry_multiplier, 0.0, 1e6)
        check_range("dry_base", self.dry_base, 0.0, 1e6)
        check_range("dry_allowed_length", self.dry_allowed_length, 0, 2**31 - 1)
        check_range("dry_penalty_last_n", self.dry_penalty_last_n, -1, 2**31 - 1)
        n, longest = len(self.dry_sequence_breakers), max(map(len, self.dry_sequence_breakers), default=0)
        check(n <= MAX_BREAKERS, f"dry_sequence_breakers has {n} entries, {MAX_BREAKERS} are allowed")
        check(
            longest <= LONGEST_BREAKER,
            f"a dry_sequence_breaker has {longest} characters, {LONGEST_BREAKER} are allowed",
        )
        check(self.mirostat in (0, 1, 2), f"mirostat must be 0, 1 or 2, got {self.mirostat}")
        check_range("mirostat_tau", self.mirostat_tau, 0.0, 1e6)
        check_range("mirostat_eta", self.mirostat_eta, 0.0, 1e6)
        check_range("adaptive_target", self.adaptive_target, -1e6, 1.0)
        check_range("adaptive_decay", self.adaptive_decay, 0.0, 0.99)
        check_range("min_keep", self.min_keep, 0, 2**31 - 1)
        check_range("seed", self.seed, -1, 2**64 - 1)
        for token, bias in self.logit_bias.items():
            check(token >= 0, f"logit_bias has a negative token id: {token}")
            check(not math.isnan(bias), f"logit_bias of token {token} is not a number")
        for name in self.samplers:
            check(name in SAMPLERS, f"unknown sampler {name!r}; choose from {', '.join(SAMPLERS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeParams:
    """One request's wishes; None leaves the choice to each drafter's own default."""

    types: tuple[str, ...] | None = None
    n_max: int | None = None
    n_min: int | None = None
    p_min: float | None = None

    def __post_init__(self) -> None:
        if self.n_max is not None:
            check_range("speculative n_max", self.n_max, 0, 1024)
        if self.n_min is not None:
            check_range("speculative n_min", self.n_min, 0, 1024)
        if self.p_min is not None:
            check_range("speculative p_min", self.p_min, 0.0, 1.0)
        if self.n_max is not None and self.n_min is not None:
            check(self.n_min <= self.n_max, f"draft minimum {self.n_min} is above the maximum {self.n_max}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParams:
    """How a GGUF file becomes a model in memory, and where its parts live.

    A `load_mode` says all of `use_mmap` and `use_mlock`. `tensors` are pairs of a pattern and the memory for tensors of
    such names; `rpc` are workers on other machines that may hold some, HOST:PORT. `metadata` are entries of the file's
    that are read otherwise, KEY=TYPE:VALUE. `adapters` are LoRA files and how much each counts. A `head` reads another
    model's states and writes nothing alone; `mtp` loads the heads that a model has in its own file.
    """

    path: str
    n_gpu_layers: int = -1
    use_mmap: bool = True
    use_mlock: bool = False
    use_extra_bufts: bool = True
    vocab_only: bool = False
    load_mode: str | None = None
    lazy_mode: str | None = None
    check_tensors: bool = False
    no_host: bool = False
    numa: str | None = None
    devices: tuple[str, ...] | None = None
    rpc: tuple[str, ...] = ()
    split_mode: str = "layer"
    tensor_split: tuple[float, ...] = ()
    main_gpu: int = 0
    tensors: tuple[tuple[str, str], ...] = ()
    metadata: tuple[str, ...] = ()
    adapters: tuple[tuple[str, float], ...] = ()
    head: bool = False
    mtp: bool = False

    def __post_init__(self) -> None:
        check(bool(self.path), "no model file given")
        check_choice("load mode", self.load_mode, (None, *LOAD_MODES))
        check_choice("lazy mode", self.lazy_mode, (None, *LAZY_MODES))
        check_choice("NUMA strategy", self.numa, (None, *NUMA_STRATEGIES))
        check_choice("split mode", self.split_mode, SPLIT_MODES)
        check_range("the main GPU", self.main_gpu, 0, 2**16)
        for path, scale in self.adapters:
            check(math.isfinite(scale), f"the scale of the adapter {path} must be a number, got {scale}")
        for share in self.tensor_split:
            check_range("a GPU's share", share, 0.0, 1e9)
        for endpoint in self.rpc:
            check_endpoint(endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParams:
    """How much a context holds and computes at once. Two contexts may share a model.

    `n_ctx` is the total, of which each of `n_seqs` may fill an equal part. They are in one pool, to be computed in one
    call; with `kv_unified` any of them may fill it, and where that is False each has cells of its own. `n_ctx_slot`
    bounds what one holds. What of `rope_` and `yarn_`, the stretching of positions, is None is the model's own. Of
    `n_snapshots` a recurrent memory keeps so many for each sequence, where the architecture can. Threads run on
    `cores`, `strict`: each on one; those of `_batch` when more than one token is computed.
    """

    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    n_seqs: int = 1
    n_snapshots: int = 0
    n_threads: int = 0
    n_threads_batch: int = 0
    cores: tuple[int, ...] = ()
    cores_batch: tuple[int, ...] = ()
    strict: bool | None = None
    strict_batch: bool | None = None
    flash_attn: bool | None = None
    kv_unified: bool | None = None
    n_ctx_slot: int = 0
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    offload_kqv: bool = True
    pooling: str | None = None
    op_offload: bool = True
    rope_scaling: str | None = None
    rope_freq_base: float | None = None
    rope_freq_scale: float | None = None
    yarn_orig_ctx: int | None = None
    yarn_ext_factor: float | None = None
    yarn_attn_factor: float | None = None
    yarn_beta_slow: float | None = None
    yarn_beta_fast: float | None = None

    def __post_init__(self) -> None:
        check_choice("RoPE scaling", self.rope_scaling, (None, *ROPE_SCALINGS))
        for name, value in self.positions.items():
            if not isinstance(value, str):
                check(math.isfinite(value), f"{name} must be a number, got {value}")
        check_range("yarn_orig_ctx", self.yarn_orig_ctx or 0, 0, 2**31 - 1)
        names = ", ".join(POOLINGS)
        check(self.pooling in (None, *POOLINGS), f"unknown pooling {self.pooling!r}; choose from {names}")
        check(self.n_ctx >= 0, f"context size must be 0 (the model's own) or more, got {self.n_ctx}")
        check(self.n_ctx == 0 or self.n_ctx >= 32, f"a context of {self.n_ctx} tokens holds no text; give at least 32")
        check(self.n_ctx < 2**31, f"context size {self.n_ctx} is absurd")
        check_range("a slot's context size", self.n_ctx_slot, 0, 2**31 - 1)
        check(self.n_batch >= 2, f"batch size must be at least 2, got {self.n_batch}")
        check(self.n_ubatch >= 2, f"micro-batch size must be at least 2, got {self.n_ubatch}")
        check(1 <= self.n_seqs <= 256, f"slots must be between 1 and 256, got {self.n_seqs}")
        check_range("threads", self.n_threads, -1, 512)
        check_range("batch threads", self.n_threads_batch, -1, 512)
        for kind in (self.cache_type_k, self.cache_type_v):
            check(kind in CACHE_TYPES, f"unknown cache type {kind!r}; choose from {', '.join(CACHE_TYPES)}")

    @property
    def total(self) -> int:
        """Tokens to open the context with: equal parts are whole blocks. 0 = as many as the model was trained for."""
        n = self.n_ctx or self.n_ctx_slot * self.n_seqs
        return n if self.kv_unified else part(n, self.n_seqs) * self.n_seqs

    @property
    def positions(self) -> dict[str, str | float]:
        """What is asked for beside the model's own way of counting positions."""
        values = ((name, getattr(self, name)) for name in POSITIONS)
        return {name: value for name, value in values if value is not None}

    @property
    def threads(self) -> int:
        return self.n_threads if self.n_threads > 0 else len(self.cores) or usable_cores()

    @property
    def threads_batch(self) -> int:
        if self.n_threads_batch > 0:
            return self.n_threads_batch
        return self.threads if self.n_threads > 0 else len(self.cores_batch) or self.threads

    @property
    def binds(self) -> bool:
        """Whether anything is said of where its threads run."""
        return bool(self.cores or self.cores_batch or self.strict or self.strict_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParams:
    """The engine's own choices: slots, exactness, what drafts by default, what is remembered of a long text.

    `cache_ram` is how many MiB may hold prompts that no slot has room for; -1 = no limit. With `context_shift` a text
    that fills its slot goes on without the older half of it, but for the prompt's first `n_keep` tokens (-1 = all).
    Without `warmup` nothing is measured at the start that was measured before. After `sleep_idle_s` seconds without
    requests its process ends, and is started again with the next one. From a process of its own more of a text comes
    up to `hold_ms` later, with what was written meanwhile; None = where computing takes every core. `synth_len` or
    `synth_rates` accept drafts by chance, for benchmarks: so many tokens a step on average, or the first n of a draft
    with the nth of these probabilities.
    """

    n_slots: int = 1
    exact: bool = False
    n_queue: int = 1024
    slot_similarity: float = 0.1
    context_shift: bool = False
    n_keep: int = 0
    cache_ram: int = 0
    cache_idle_slots: bool = True
    spec_types: tuple[str, ...] = ()
    spec_policy: str = "auto"
    warmup: bool = True
    sleep_idle_s: int | None = None
    hold_ms: int | None = None
    synth_len: float | None = None
    synth_rates: tuple[float, ...] = ()
    speculative: SpeculativeParams = field(default_factory=SpeculativeParams)
    drafters: DrafterSettings = field(default_factory=DrafterSettings)

    def __post_init__(self) -> None:
        check(1 <= self.n_slots <= 256, f"slots must be between 1 and 256, got {self.n_slots}")
        check(
            self.spec_policy in POLICIES, f"spec_policy must be one of {', '.join(POLICIES)}, got {self.spec_policy!r}"
        )
        check_range("the similarity of prompts", self.slot_similarity, 0.0, 1.0)
        check_range("the tokens to keep of a prompt", self.n_keep, -1, 2**31 - 1)
        check_range("the MiB for prompts of idle slots", self.cache_ram, -1, 2**31 - 1)
        idle = self.sleep_idle_s
        check(
            idle is None or idle > 0,
            f"the seconds of idleness before sleep must be 1 or more, or -1 = never; got {idle}",
        )
        check_range("the milliseconds that more of a text may be held back", self.hold_ms or 0, 0, 10_000)
        check(self.n_queue >= 1, f"the queue must hold at least one request, got {self.n_queue}")
        self._check_synthetic()

    @property
    def n_draft_max(self) -> int:
        """The longest draft of the draft model."""
        n_max = self.drafters.draft_model.n_max
        return n_max if self.speculative.n_max is None else min(n_max, self.speculative.n_max)

    @property
    def is_synthetic(self) -> bool:
        return self.synth_len is not None or bool(self.synth_rates)

    def _check_synthetic(self) -> None:
        n, rates = self.n_draft_max, self.synth_rates
        if self.synth_len is not None:
            check(not rates, "--spec-synth-len and --spec-synth-rates exclude each other: give one of them")
            check_range("--spec-synth-len", self.synth_len, 1.0, n + 1.0)
        elif rates:
            wanted = f"--spec-draft-n-max allows {n} tokens"
            check(len(rates) == n, f"--spec-synth-rates needs {n} numbers, for {wanted}; got {len(rates)}")
            check(rates[0] <= 1 and rates[-1] >= 0, "--spec-synth-rates must lie between 0 and 1")
            falling = all(one >= two for one, two in pairwise(rates))
            check(falling, "--spec-synth-rates must not rise: two tokens are accepted no more often than one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All it takes to open an engine: what the command line and the library build."""

    model: ModelParams
    draft: ModelParams | None = None
    context: ContextParams = field(default_factory=ContextParams)
    draft_context: ContextParams = field(default_factory=ContextParams)
    engine: EngineParams = field(default_factory=EngineParams)

    def __post_init__(self) -> None:
        """libllama aborts where a batch cannot hold one token of each slot."""
        n_slots, n_batch, n_ctx = self.engine.n_slots, self.context.n_batch, self.context.n_ctx
        check(n_slots <= n_batch, f"{n_slots} slots need a batch of as many tokens: raise -b ({n_batch}) or lower -np")
        check(n_slots <= (n_ctx or n_slots), f"{n_slots} slots do not fit {n_ctx} tokens: raise -c or lower -np")
        n_draft = self.engine.drafters.draft_model.n_batch
        check(n_slots <= n_draft, f"{n_slots} slots need a draft batch of as many tokens, got {n_draft}")

    @property
    def workers(self) -> tuple[str, ...]:
        """All machines that hold a part of it, in the order in which their devices are named."""
        return self.model.rpc + (self.draft.rpc if self.draft else ())
