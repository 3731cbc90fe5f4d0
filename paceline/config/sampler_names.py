"""The filters of a sampler by all their names. Known everywhere, knows nothing."""

from __future__ import annotations

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
SAMPLERS = (*SAMPLER_ORDER, "infill", "adaptive_p")
SAMPLER_LETTERS = dict(zip("edskypmxtia", SAMPLERS, strict=True))
SAMPLER_ALIASES = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p", "typical": "typ_p", "typicalp": "typ_p"}
PLAIN_NAMES = {name.replace("_", ""): name for name in SAMPLERS}


def sampler_name(given: str) -> str:
    """A filter by any of its names: top-k, topk, TOP_K are one. What is none is given back."""
    plain = given.strip().lower().replace("-", "").replace("_", "")
    return SAMPLER_ALIASES.get(plain) or PLAIN_NAMES.get(plain, given)
