"""Defaults and checks of the look-up drafters that keep shared memory. To be merged into config.py."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.config import check, check_range


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
