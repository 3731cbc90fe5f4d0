"""A file by its address: `-mu`. Kept in a folder of its own under a name made of the address, so that the same address
is fetched once; the server's ETag says whether what it has now is still the same."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import get_session, hf_raise_for_status

from paceline.errors import HubError
from paceline.files import write_whole
from paceline.hub.names import Address
from paceline.hub.reasons import refusal, said
from paceline.hub.repository import Hub
from paceline.hub.transfer import Display, Remote, transfer

log = logging.getLogger("paceline")

NO_HEAD = (403, 405, 501)  # servers, and signed addresses, that know no HEAD
N_KEY = 16


def fetch_address(hub: Hub, address: Address, folder: Path, display: Display, target: Path | None = None) -> str:
    """The path of the file to load: the first part of a split model, all of them beside it; at `target` if given."""
    parts = address.parts
    folder = target.parent if target else folder / digest(parts[0].url)
    paths = [folder / part.file for part in parts]
    if target and len(parts) == 1:
        paths = [target]
    for part, path in zip(parts, paths, strict=True):
        fetch_part(hub, part, path, display)
    return str(paths[0])


def fetch_part(hub: Hub, address: Address, path: Path, display: Display) -> None:
    if hub.offline:
        if not path.exists():
            raise HubError(f"{address.url} is not in the cache {path.parent}, and --offline forbids to fetch it")
        return
    headers = headers_for(hub, address)
    try:
        remote = look(address, headers)
        if path.exists() and remote.key in (None, kept_key(path)):
            return
        transfer(remote, path, path.with_name(f"{path.name}.lock"), display, anew=path.exists())
        write_whole(key_file(path), (remote.key or "").encode())
    except httpx.HTTPError as error:
        trouble = f"{address.url}: {answer(error, with_token='authorization' in headers)}"
        if not path.exists():
            raise HubError(trouble) from error
        log.warning("%s; using what the cache has", trouble)


def look(address: Address, headers: Mapping[str, str]) -> Remote:
    """What the server says of the file; nothing, where it does not like to be asked."""
    response = get_session().head(address.url, headers=dict(headers), timeout=constants.HF_HUB_ETAG_TIMEOUT)
    if response.status_code in NO_HEAD:
        return Remote(address.file, address.url, headers=headers)
    hf_raise_for_status(response)
    length = response.headers.get("Content-Length", "")
    mark = response.headers.get("ETag") or response.headers.get("Last-Modified")
    key = digest(f"{address.url} {mark}") if mark else None
    return Remote(address.file, address.url, int(length) if length.isdigit() else None, key, headers=headers)


def headers_for(hub: Hub, address: Address) -> dict[str, str]:
    """The hub's token is for the hub alone."""
    at_home = urlsplit(address.url).netloc == urlsplit(hub.endpoint).netloc
    return {name: value for name, value in hub.headers.items() if at_home or name != "authorization"}


def answer(error: httpx.HTTPError, *, with_token: bool) -> str:
    if isinstance(error, HfHubHTTPError):
        return refusal(error.response.status_code, "the server", with_token=with_token)
    return f"the server cannot be reached ({said(error)}); what came stays: start again to go on"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:N_KEY]


def key_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.key")


def kept_key(path: Path) -> str | None:
    return key_file(path).read_text() if key_file(path).exists() else None
