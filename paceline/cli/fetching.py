"""Models named by repository or address become files before an engine starts. Knows the flags; `hub` knows the rest."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli import build
from paceline.cli.flags import Parsed
from paceline.cli.progress import download_bar
from paceline.config import Settings

if TYPE_CHECKING:
    from paceline.hub.repository import Hub

ADDRESSES = "addresses"
"""Where files of -mu are, in our cache folder."""


def with_files(settings: Settings, parsed: Parsed) -> Settings:
    """The same settings with the files' paths. A file that is given and there goes before a name."""
    name_endpoint()
    options = build.hub(parsed)
    if is_to_fetch(parsed, "hub.model", "model.path"):
        target = parsed.values.get("model.path")
        path = fetch(parsed, str(options.model), options.file, target=target)
        settings = replace(settings, model=replace(settings.model, path=path))
    if settings.draft is not None and is_to_fetch(parsed, "hub.draft", "draft.path"):
        path = fetch(parsed, str(options.draft), parsed.values.get("draft.path"), heads_for_draft(parsed))
        return replace(settings, draft=replace(settings.draft, path=path))
    if settings.draft is None and is_to_fetch(parsed, "hub.model", "model.path"):
        return with_head(settings, parsed)
    return settings


def is_to_fetch(parsed: Parsed, name: str, path: str) -> bool:
    return name in parsed.values and not Path(parsed.values.get(path, "")).is_file()


def fetch(
    parsed: Parsed, name: str, file: str | None = None, heads: tuple[str, ...] = (), target: str | None = None
) -> str:
    from paceline.hub.address import fetch_address
    from paceline.hub.names import Address, parse
    from paceline.hub.repository import fetch_model
    from paceline.models import cache_folder

    wanted = parse(name, file)
    if isinstance(wanted, Address):
        folder = cache_folder() / ADDRESSES
        return fetch_address(hub_of(parsed), wanted, folder, download_bar, Path(target) if target else None)
    return fetch_model(hub_of(parsed), wanted, download_bar, heads)


def with_head(settings: Settings, parsed: Parsed) -> Settings:
    """Drafters that were asked for and have a file of their own beside the model's."""
    from paceline.hub.names import Address, parse
    from paceline.hub.repository import fetch_head

    options, heads = build.hub(parsed), named_heads(parsed)
    wanted = parse(str(options.model), options.file)
    if not heads or isinstance(wanted, Address):
        return settings
    path = fetch_head(hub_of(parsed), wanted, download_bar, heads)
    if path is None:
        return settings
    parsed.values["draft.path"] = path
    return replace(settings, draft=build.draft_model(parsed))


def named_heads(parsed: Parsed) -> tuple[str, ...]:
    from paceline.hub.names import HEADS

    types = parsed.values.get("engine.spec_types", ())
    return tuple(head for head in HEADS if f"draft-{head}" in types)


def heads_for_draft(parsed: Parsed) -> tuple[str, ...]:
    """Where no drafter is named, whatever the repository has."""
    from paceline.hub.names import HEADS

    return named_heads(parsed) if parsed.values.get("engine.spec_types") else HEADS


def hub_of(parsed: Parsed) -> Hub:
    from paceline.hub.repository import Hub

    options = build.hub(parsed)
    take_over_log()
    return Hub(token=options.token, offline=options.offline)


def name_endpoint() -> None:
    """llama.cpp's name for HF_ENDPOINT wins, as it does there; huggingface_hub reads its own when it is imported."""
    if os.environ.get("MODEL_ENDPOINT"):
        os.environ["HF_ENDPOINT"] = os.environ["MODEL_ENDPOINT"]


def take_over_log() -> None:
    """huggingface_hub prints its warnings by itself; they belong among ours."""
    logger = logging.getLogger("huggingface_hub")
    logger.handlers.clear()
    logger.propagate = True


def hub_cache() -> Path:
    from paceline.hub.repository import Hub

    return Hub().folder


def name_of(parsed: Parsed) -> str | None:
    """What a server calls a model that it has from a hub."""
    from paceline.hub.names import Repository, parse

    if not is_to_fetch(parsed, "hub.model", "model.path"):
        return None
    wanted = parse(str(parsed.values["hub.model"]))
    return wanted.name if isinstance(wanted, Repository) else None
