"""A repository's files, from the hub or from the cache that huggingface_hub's users share.

The listing says each file's size and digest, so that a file which is there already is found without asking again.
huggingface_hub throws away what came of an interrupted file; `transfer` keeps it, puts the whole file where the cache
wants it, and huggingface_hub links it to its name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from huggingface_hub import HfApi, constants, get_token, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import build_hf_headers

from paceline import __version__
from paceline.errors import HubError
from paceline.hub.names import Repository, choose, choose_head
from paceline.hub.reasons import reason
from paceline.hub.transfer import Display, Remote, check_room, disk_error, transfer

log = logging.getLogger("paceline")

BRANCH = constants.DEFAULT_REVISION
US = "paceline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """Where repositories are, who asks, and where their files are kept."""

    endpoint: str = field(default_factory=lambda: constants.ENDPOINT)
    token: str | None = None
    offline: bool = False
    folder: Path = field(default_factory=lambda: Path(constants.HF_HUB_CACHE))

    @property
    def secret(self) -> str | None:
        """The token given, or that of `hf auth login`."""
        return self.token or get_token()

    @property
    def headers(self) -> dict[str, str]:
        """With its token, for itself."""
        return build_hf_headers(token=self.secret or False, library_name=US, library_version=__version__)

    def storage(self, repo: str) -> Path:
        return self.folder / repo_folder_name(repo_id=repo, repo_type="model")


@dataclass(frozen=True, slots=True)
class Listing:
    """What a repository holds at one commit."""

    commit: str
    files: dict[str, Remote]


Choice = Callable[[Sequence[str]], list[str]]
"""Which of a repository's files are wanted, the one to load first; none = nothing to load."""


def fetch_model(hub: Hub, wanted: Repository, display: Display, heads: Sequence[str] = ()) -> str:
    """The path of the file to load. A drafter's file of one of these kinds goes before a model."""

    def choice(files: Sequence[str]) -> list[str]:
        found = [] if wanted.file else choose_head(files, heads, "", wanted.quant)
        return found or choose(files, wanted)

    return paths_of(hub, wanted, choice, display)[0]


def fetch_head(hub: Hub, wanted: Repository, display: Display, heads: Sequence[str]) -> str | None:
    """The drafter's file that goes with this very model, where its repository has one."""

    def choice(files: Sequence[str]) -> list[str]:
        return choose_head(files, heads, choose(files, wanted)[0], wanted.quant)

    return next(iter(paths_of(hub, wanted, choice, display)), None)


def paths_of(hub: Hub, wanted: Repository, choice: Choice, display: Display) -> list[str]:
    """From the hub; where it does not answer, or will not, from the cache."""
    if hub.offline:
        found = in_cache(hub, wanted.id, choice)
        if found is None:
            raise HubError(f"{wanted.name} is not in the cache {hub.folder}, and --offline forbids to fetch it")
        return found
    try:
        listing = list_files(hub, wanted.id)
    except (httpx.TransportError, HfHubHTTPError) as error:
        trouble = reason(error, wanted.id, hub.endpoint, with_token=bool(hub.secret))
        found = in_cache(hub, wanted.id, choice)
        if found is None:
            raise HubError(f"{trouble}, and {hub.folder} does not have it") if lost(error) else trouble from error
        log.warning("%s; using what the cache has", trouble)
        return found
    return fetch_files(hub, wanted.id, listing, choice(list(listing.files)), display)


def lost(error: Exception) -> bool:
    """Whether it was the network, not an answer."""
    return isinstance(error, httpx.TransportError)


def list_files(hub: Hub, repo: str) -> Listing:
    api = HfApi(endpoint=hub.endpoint, token=hub.secret or False, library_name=US, library_version=__version__)
    info = api.model_info(repo, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    headers = hub.headers
    files = {}
    for file in info.siblings or ():
        sha256 = file.lfs.sha256 if file.lfs else None
        key = sha256 or file.blob_id
        url = hf_hub_url(repo, file.rfilename, revision=info.sha, endpoint=hub.endpoint)
        files[file.rfilename] = Remote(file.rfilename, url, file.size, key if is_digest(key) else None, sha256, headers)
    return Listing(info.sha or BRANCH, files)


def is_digest(key: str | None) -> bool:
    """It will be a file's name: a hub that is not well-meaning gets none of its choice."""
    return bool(key and re.fullmatch("[0-9a-f]{40,64}", key))


def fetch_files(hub: Hub, repo: str, listing: Listing, names: Sequence[str], display: Display) -> list[str]:
    there = {name: in_snapshot(hub, repo, listing, name) for name in names}
    missing = [listing.files[name] for name, path in there.items() if path is None]
    check_room(hub.folder, sum(to_come(hub, repo, remote) for remote in missing), repo)
    try:
        fetched = {remote.name: fetch_file(hub, repo, remote, display) for remote in missing}
    except (httpx.HTTPError, LocalEntryNotFoundError) as error:
        trouble = reason(error, repo, hub.endpoint, with_token=bool(hub.secret))
        raise HubError(f"{trouble}; what came stays: start again to go on") if lost(error) else trouble from error
    return [there[name] or fetched[name] for name in names]


def in_snapshot(hub: Hub, repo: str, listing: Listing, name: str) -> str | None:
    """A file that is there already. One of another size is none: it is fetched again."""
    found = try_to_load_from_cache(repo, name, cache_dir=hub.folder, revision=listing.commit)
    if not isinstance(found, str):
        return None
    size, path = listing.files[name].size, Path(found)
    if size in (None, path.stat().st_size):
        return found
    log.warning("%s in the cache has %d bytes instead of %s; it is fetched again", name, path.stat().st_size, size)
    path.resolve().unlink()
    path.unlink(missing_ok=True)
    return None


def to_come(hub: Hub, repo: str, remote: Remote) -> int:
    """Bytes that are not on the disk yet."""
    blobs = hub.storage(repo) / "blobs"
    paths = (blobs / f"{remote.key}", blobs / f"{remote.key}.incomplete")
    return max((remote.size or 0) - sum(path.stat().st_size for path in paths if path.exists()), 0)


def fetch_file(hub: Hub, repo: str, remote: Remote, display: Display) -> str:
    """Files that are too large for one answer, or have no digest, are huggingface_hub's from the beginning."""
    if remote.key and remote.size is not None and remote.size <= constants.MAX_HTTP_DOWNLOAD_SIZE:
        storage = hub.storage(repo)
        lock = hub.folder / ".locks" / storage.name / f"{remote.key}.lock"
        transfer(remote, storage / "blobs" / remote.key, lock, display)
    try:
        path = hf_hub_download(
            repo, remote.name, cache_dir=hub.folder, endpoint=hub.endpoint, token=hub.secret or False
        )
    except OSError as error:
        if isinstance(error, httpx.HTTPError | LocalEntryNotFoundError):
            raise
        raise disk_error(error, remote.name, hub.folder) from error
    return path


def in_cache(hub: Hub, repo: str, choice: Choice) -> list[str] | None:
    """What an earlier run has fetched: of the commit that was the latest then, else of any other."""
    for snapshot in snapshots(hub.storage(repo)):
        files = sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf") if path.exists())
        try:
            return [str(snapshot / name) for name in choice(files)]
        except HubError:
            continue
    return None


def snapshots(storage: Path) -> list[Path]:
    """Newest first, the one its branch points to before all others."""
    folders = [path for path in storage.glob("snapshots/*") if path.is_dir()]
    branch = storage / "refs" / BRANCH
    current = branch.read_text().strip() if branch.is_file() else ""
    return sorted(folders, key=lambda path: (path.name == current, path.stat().st_mtime), reverse=True)
