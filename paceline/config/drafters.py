"""Defaults and checks of every drafter's own settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.config.checks import check, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModelParams:
    """`draft-simple`. The window counts tokens of history the draft sees; 0 = as many as it was trained for. A p_min of
    None is 0.75, or what pays under the auto policy. `replace` has texts of the target, and what a draft with another
    vocabulary is to read for each."""

    n_max: int = 16
    n_min: int = 0
    p_min: float | None = None
    window: int = 1024
    n_batch: int = 2048
    n_keep: int = 4
    replace: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        check_range("draft n_max", self.n_max, 0, 1024)
        check_range("draft n_min", self.n_min, 0, 1024)
        check_range("draft p_min", self.p_min or 0.0, 0.0, 1.0)
        check(self.window >= 0, f"the draft's context must be 0 (its own) or more, got {self.window}")
        check(self.window == 0 or self.window >= 64, f"a draft window under 64 tokens is of no use, got {self.window}")
        check_range("draft batch size", self.n_batch, 32, 2**20)
        check_range("tokens kept at the start of the draft's window", self.n_keep, 0, 64)
        check(all(ours for ours, _ in self.replace), "a text to replace for the draft must not be empty")


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
class DrafterSettings:
    """The settings of every drafter, whichever are on."""

    draft_model: DraftModelParams = field(default_factory=DraftModelParams)
    ngram_simple: NgramParams = field(default_factory=NgramParams)
    ngram_map_k: NgramParams = field(default_factory=NgramParams)
    ngram_map_k4v: NgramParams = field(default_factory=NgramParams)
    ngram_mod: NgramModParams = field(default_factory=NgramModParams)
    ngram_cache: NgramCacheParams = field(default_factory=NgramCacheParams)
    suffix: SuffixParams = field(default_factory=SuffixParams)
