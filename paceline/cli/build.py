"""From parsed flags to the dataclasses of `config`: what was given is set, the rest keeps its default."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from paceline.cli.flags import Parsed
from paceline.cli.options import HubOptions, RequestOptions, RunOptions
from paceline.cli.values import unescape
from paceline.config import (
    AUTO_CACHE,
    AUTO_SLOTS,
    MIB,
    ContextParams,
    EngineParams,
    ModelParams,
    SamplingParams,
    Settings,
    SpeculativeParams,
)
from paceline.config.drafters import DrafterSettings
from paceline.config.granted import usable_memory
from paceline.errors import ConfigError

FROM_THE_TARGET = ("n_ubatch", "n_threads", "n_threads_batch", "flash_attn", "offload_kqv", "op_offload")
"""Context settings a draft model takes over when it has none of its own."""
LOADED_ALIKE = ("use_mmap", "use_mlock", "load_mode", "lazy_mode", "check_tensors", "use_extra_bufts", "no_host")
PLACED_ALIKE = ("devices", "split_mode", "tensor_split", "main_gpu")
"""Settings of the target's that hold for a draft model too; of devices, as long as it has none of its own."""


def settings(parsed: Parsed) -> Settings:
    draft = draft_model(parsed)
    return Settings(
        model=model(parsed),
        draft=draft,
        context=context(parsed),
        draft_context=draft_context(parsed),
        engine=engine(parsed, has_draft=draft is not None),
    )


def context(parsed: Parsed) -> ContextParams:
    """Slots of the server's choosing share one pool."""
    values = parsed.under("context")
    if automatic(parsed):
        values.setdefault("kv_unified", True)
    return ContextParams(**values)


def automatic(parsed: Parsed) -> bool:
    """Whether a server chooses how many slots it has. Exact ones have cells of their own: one slot has them all."""
    chosen = parsed.values.get("engine.n_slots", -1) != -1
    return parsed.command == "serve" and not chosen and not parsed.values.get("engine.exact")


def sampling(parsed: Parsed) -> SamplingParams:
    values = parsed.under("sampling")
    if "logit_bias" in values:
        values["logit_bias"] = dict(values["logit_bias"])
    if "dry_sequence_breakers" in values:
        values["dry_sequence_breakers"] = plain(parsed, values["dry_sequence_breakers"])
    return SamplingParams(**values)


def speculative(parsed: Parsed) -> SpeculativeParams:
    return SpeculativeParams(**parsed.under("speculative"))


def request(parsed: Parsed) -> RequestOptions:
    values = parsed.under("request")
    if "stop" in values:
        values["stop"] = plain(parsed, values["stop"])
    return RequestOptions(**values)


def run_options(parsed: Parsed) -> RunOptions:
    return RunOptions(**parsed.under("run"))


def plain(parsed: Parsed, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Backslash sequences as the characters they stand for, unless `--no-escape`."""
    return tuple(map(unescape, texts)) if parsed.values.get("request.escape", True) else texts


def hub(parsed: Parsed) -> HubOptions:
    return HubOptions(**parsed.under("hub"))


def model(parsed: Parsed) -> ModelParams:
    """Where a model is named by repository or address, the name stands for its path until it is fetched."""
    values = parsed.under("model")
    if "hub.model" in parsed.values:
        values.setdefault("path", parsed.values["hub.model"])
    if "path" not in values:
        from paceline.models import default_model

        values["path"] = default_model()
    return ModelParams(**values)


def draft_model(parsed: Parsed) -> ModelParams | None:
    """The draft is loaded as the target is, except where its own flags say otherwise."""
    values = parsed.under("draft")
    if "hub.draft" in parsed.values:
        values.setdefault("path", parsed.values["hub.draft"])
    if "path" not in values or speculation_off(parsed):
        return None
    alike = LOADED_ALIKE if "devices" in values else LOADED_ALIKE + PLACED_ALIKE
    shared = {name: value for name, value in parsed.under("model").items() if name in alike}
    return ModelParams(**{**shared, **values})


def draft_context(parsed: Parsed) -> ContextParams:
    target = parsed.under("context")
    own = parsed.under("draft_context")
    if "n_threads" in own:
        target.pop("n_threads_batch", None)
    return ContextParams(**{**{name: target[name] for name in FROM_THE_TARGET if name in target}, **own})


def engine(parsed: Parsed, has_draft: bool) -> EngineParams:
    values = parsed.under("engine")
    if values.get("n_slots", -1) == -1:
        n_batch = parsed.values.get("context.n_batch", AUTO_SLOTS)
        values["n_slots"] = min(AUTO_SLOTS, n_batch) if automatic(parsed) else EngineParams().n_slots
    if parsed.command == "serve":
        values.setdefault("cache_ram", auto_cache(n_engines(parsed)))
    values["spec_types"] = spec_types(values.get("spec_types", ()), has_draft)
    return EngineParams(speculative=speculative(parsed), drafters=drafters(parsed), **values)


def n_engines(parsed: Parsed) -> int:
    """How many share this machine."""
    server = parsed.under("server")
    return 1 if "ray_address" in server else server.get("replicas") or 1


def auto_cache(n_engines: int = 1) -> int:
    """MiB for prompts of idle slots: llama-server's, or a quarter of what there is for all engines."""
    n_bytes = usable_memory()
    return AUTO_CACHE if n_bytes is None else min(AUTO_CACHE, n_bytes // 4 // n_engines // MIB)


def speculation_off(parsed: Parsed) -> bool:
    return set(parsed.values.get("engine.spec_types", ())) == {"none"}


def spec_types(names: tuple[str, ...], has_draft: bool) -> tuple[str, ...]:
    """Each drafter once; a draft model drafts without being asked to. Nobody chose: the library's choice."""
    if not names:
        from paceline.library import default_types

        return default_types(has_draft)
    wanted = dict.fromkeys(name for name in names if name != "none")
    if has_draft and not any(name.startswith("draft") for name in wanted):
        wanted["draft-simple"] = None
    if "draft-simple" in wanted and not has_draft:
        raise ConfigError("draft-simple needs a draft model: give one with -md FILE")
    return tuple(wanted)


def drafters(parsed: Parsed) -> DrafterSettings:
    given = parsed.under("drafters")
    settings = DrafterSettings()
    for drafter in fields(settings):
        prefix = f"{drafter.name}."
        own = {path.removeprefix(prefix): value for path, value in given.items() if path.startswith(prefix)}
        default = getattr(settings, drafter.name)
        settings = replace(settings, **{drafter.name: replace(default, **matched(own, default))})
    return settings


def matched(own: dict[str, Any], default: object) -> dict[str, Any]:
    """Of a drafter's shortest and longest draft, the one the user did not name gives way to the one they did."""
    if "n_max" in own and "n_min" not in own and hasattr(default, "n_min"):
        return {**own, "n_min": min(default.n_min, own["n_max"])}
    if "n_min" in own and "n_max" not in own and hasattr(default, "n_max"):
        return {**own, "n_max": max(default.n_max, own["n_min"])}
    return own
