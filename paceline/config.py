"""Every default and every check, in frozen dataclasses. Knows nothing else of paceline but its errors."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from paceline.errors import ConfigError

SAMPLER_ORDER = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)

POLICIES = ("auto", "fixed")
POOLINGS = ("mean", "cls", "last")
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
MAX_BREAKERS = 32  # libllama goes through the whole vocabulary for each, up to 0.1 s, while everybody waits
LONGEST_BREAKER = 256  # characters, of which libllama reads 40


def check(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Refuses NaN too: every comparison with it is false."""
    check(low <= value <= high, f"{name} must be between {low:g} and {high:g}, got {value}")


def resolve_seed(seed: int) -> int:
    """-1 asks for a seed of the machine's choosing."""
    return secrets.randbits(63) if seed < 0 else seed


def usable_cores(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Cores this process may keep busy: those it may run on, no more than its control group is granted."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        name = next(line[3:].strip("/") for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return n
    for folder in (groups / name, *(groups / parent for parent in Path(name).parents)):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
            n = min(n, max(1, int(quota) // int(period)))
        except (OSError, ValueError):  # no limit here, or none that can be read
            continue
    return n


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
        check_range("min_keep", self.min_keep, 0, 2**31 - 1)
        check_range("seed", self.seed, -1, 2**64 - 1)
        for token, bias in self.logit_bias.items():
            check(token >= 0, f"logit_bias has a negative token id: {token}")
            check(not math.isnan(bias), f"logit_bias of token {token} is not a number")
        for name in self.samplers:
            check(name in SAMPLER_ORDER, f"unknown sampler {name!r}; choose from {', '.join(SAMPLER_ORDER)}")


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
class DraftModelParams:
    """`draft-simple`. The window counts tokens of history the draft sees; 0 = as many as it was trained for. A p_min of
    None is 0.75, or what pays under the auto policy."""

    n_max: int = 16
    n_min: int = 0
    p_min: float | None = None
    window: int = 1024
    n_batch: int = 2048
    n_keep: int = 4

    def __post_init__(self) -> None:
        check_range("draft n_max", self.n_max, 0, 1024)
        check_range("draft n_min", self.n_min, 0, 1024)
        check_range("draft p_min", self.p_min or 0.0, 0.0, 1.0)
        check(self.window >= 0, f"the draft's context must be 0 (its own) or more, got {self.window}")
        check(self.window == 0 or self.window >= 64, f"a draft window under 64 tokens is of no use, got {self.window}")
        check_range("draft batch size", self.n_batch, 32, 2**20)
        check_range("tokens kept at the start of the draft's window", self.n_keep, 0, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramParams:
    """`ngram-simple`, `ngram-map-k` and `ngram-map-k4v`: look-up of n tokens, drafts of m."""

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1

    def __post_init__(self) -> None:
        check_range("n-gram size n", self.size_n, 1, 1024)
        check_range("n-gram size m", self.size_m, 1, 1024)
        check_range("n-gram min hits", self.min_hits, 1, 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramModParams:
    """`ngram-mod`: look-up of n_match tokens in one pool of n_cells for everybody; drafts of n_min to n_max tokens."""

    n_match: int = 24
    n_min: int = 48
    n_max: int = 64
    n_cells: int = 4 * 2**20

    def __post_init__(self) -> None:
        check_range("ngram-mod n_match", self.n_match, 1, 1024)
        check_range("ngram-mod n_min", self.n_min, 0, 1024)
        check_range("ngram-mod n_max", self.n_max, 0, 1024)
        check(self.n_min <= self.n_max, f"ngram-mod n_min {self.n_min} is above its n_max {self.n_max}")
        check_range("ngram-mod pool cells", self.n_cells, 16, 2**28)


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramCacheParams:
    """`ngram-cache`: paths are None where there is no such file; n_ngrams bounds the dynamic cache."""

    n_max: int = 8
    static_path: str | None = None
    dynamic_path: str | None = None
    n_ngrams: int = 65536

    def __post_init__(self) -> None:
        check_range("ngram-cache n_max", self.n_max, 0, 1024)
        check_range("ngram-cache n-grams", self.n_ngrams, 4, 2**24)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixParams:
    """`suffix`: a draft ends where its chance as a whole falls under p_min; n_shared tokens of old outputs are kept."""

    n_max: int = 64
    p_min: float = 0.1
    n_shared: int = 131072

    def __post_init__(self) -> None:
        check_range("suffix n_max", self.n_max, 0, 1024)
        check_range("suffix p_min", self.p_min, 0.0, 1.0)
        check_range("suffix shared tokens", self.n_shared, 0, 2**22)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParams:
    """How a GGUF file becomes a model in memory."""

    path: str
    n_gpu_layers: int = -1
    use_mmap: bool = True
    use_mlock: bool = False
    use_extra_bufts: bool = True
    vocab_only: bool = False

    def __post_init__(self) -> None:
        check(bool(self.path), "no model file given")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParams:
    """How much a context holds and computes at once. Two contexts may share a model."""

    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    n_seqs: int = 1
    n_threads: int = 0
    n_threads_batch: int = 0
    flash_attn: bool | None = None
    kv_unified: bool = True
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    offload_kqv: bool = True
    pooling: str | None = None

    def __post_init__(self) -> None:
        names = ", ".join(POOLINGS)
        check(self.pooling in (None, *POOLINGS), f"unknown pooling {self.pooling!r}; choose from {names}")
        check(self.n_ctx >= 0, f"context size must be 0 (the model's own) or more, got {self.n_ctx}")
        check(self.n_ctx == 0 or self.n_ctx >= 32, f"a context of {self.n_ctx} tokens holds no text; give at least 32")
        check(self.n_ctx < 2**31, f"context size {self.n_ctx} is absurd")
        check(self.n_batch >= 2, f"batch size must be at least 2, got {self.n_batch}")
        check(self.n_ubatch >= 2, f"micro-batch size must be at least 2, got {self.n_ubatch}")
        check(1 <= self.n_seqs <= 256, f"slots must be between 1 and 256, got {self.n_seqs}")
        check_range("threads", self.n_threads, -1, 512)
        check_range("batch threads", self.n_threads_batch, -1, 512)
        for kind in (self.cache_type_k, self.cache_type_v):
            check(kind in CACHE_TYPES, f"unknown cache type {kind!r}; choose from {', '.join(CACHE_TYPES)}")

    @property
    def threads(self) -> int:
        return self.n_threads if self.n_threads > 0 else usable_cores()

    @property
    def threads_batch(self) -> int:
        return self.n_threads_batch if self.n_threads_batch > 0 else self.threads


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterSettings:
    """The settings of every drafter, whichever are on."""

    draft_model: DraftModelParams = field(default_factory=DraftModelParams)
    ngram_simple: NgramParams = field(default_factory=NgramParams)
    ngram_map_k: NgramParams = field(default_factory=NgramParams)
    ngram_map_k4v: NgramParams = field(default_factory=NgramParams)
    ngram_mod: NgramModParams = field(default_factory=NgramModParams)
    ngram_cache: NgramCacheParams = field(default_factory=NgramCacheParams)
    suffix: SuffixParams = field(default_factory=SuffixParams)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParams:
    """The engine's own choices: slots, exactness, what drafts by default. After `sleep_idle_s` seconds without requests
    its process ends, and is started again with the next one. `synth_len` or `synth_rates` accept drafts by chance, for
    benchmarks: so many tokens a step on average, or the first n of a draft with the nth of these probabilities."""

    n_slots: int = 1
    exact: bool = False
    n_queue: int = 1024
    slot_similarity: float = 0.1
    spec_types: tuple[str, ...] = ()
    spec_policy: str = "auto"
    sleep_idle_s: int | None = None
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
        idle = self.sleep_idle_s
        check(
            idle is None or idle > 0,
            f"the seconds of idleness before sleep must be 1 or more, or -1 = never; got {idle}",
        )
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
