"""Cores for parts of the work: where the target's and the draft's threads run, writing and reading."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from paceline.config import ContextParams, Settings
from paceline.errors import ConfigError

Cores = tuple[int, ...]

FIELDS = ("cores", "cores_batch", "strict", "strict_batch")
log = logging.getLogger("paceline")


def share_cores(settings: Settings) -> Settings:
    """Where one part has cores of its own, all parts have, in turn those of the part they are like: threads that
    serve several parts would stay on the cores of the one before."""
    target, draft = settings.context, settings.draft_context
    if not (target.binds or draft.binds):
        return settings
    if not hasattr(os, "sched_setaffinity"):
        log.warning("this system does not let threads choose their cores: -Cb, -Cd and the like cannot act here")
        return replace(settings, context=unbound(target), draft_context=unbound(draft))
    target = bound(target, tuple(sorted(os.sched_getaffinity(0))), (), strict=False, strict_batch=None)
    like = () if draft.cores else target.cores_batch
    like_strict = None if draft.strict is not None else target.strict_batch
    draft = bound(draft, target.cores, like, strict=bool(target.strict), strict_batch=like_strict)
    return replace(settings, context=target, draft_context=draft)


def bound(
    params: ContextParams, cores: Cores, cores_batch: Cores, *, strict: bool, strict_batch: bool | None
) -> ContextParams:
    """With what is not said filled in; reading is like writing where nothing says otherwise."""
    cores = usable(params.cores or cores)
    strict = strict if params.strict is None else params.strict
    strict_batch = strict_batch if params.strict_batch is None else params.strict_batch
    return replace(
        params,
        cores=cores,
        cores_batch=usable(params.cores_batch or cores_batch or cores),
        strict=strict,
        strict_batch=strict if strict_batch is None else strict_batch,
    )


def unbound(params: ContextParams) -> ContextParams:
    nothing = ContextParams()
    return replace(params, **{name: getattr(nothing, name) for name in FIELDS})


def usable(cores: Sequence[int]) -> Cores:
    """Those the system grants; tried by a thread that is thrown away."""

    def keep() -> Cores:
        os.sched_setaffinity(0, cores)
        return tuple(sorted(os.sched_getaffinity(0)))

    with ThreadPoolExecutor(1) as one:
        try:
            return one.submit(keep).result()
        except (OSError, ValueError, OverflowError):
            there = os.cpu_count() or 1
            named = f"{min(cores)} to {max(cores)}"
            raise ConfigError(f"of the cores {named} there is none to run on; there are {there}, from 0") from None
