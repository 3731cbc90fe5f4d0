"""Why a hub or a server gave us nothing, in one line that says what to change."""

from __future__ import annotations

import httpx
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from paceline.errors import HubError

TOKEN = "a token with -hft or HF_TOKEN"


def reason(error: Exception, repo: str, endpoint: str, *, with_token: bool) -> HubError:
    """What a hub's refusal means for who asked for this repository."""
    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, GatedRepoError):
        return HubError(f"{repo} is gated: {ask_for_access(repo, endpoint, with_token=with_token)}")
    if isinstance(error, RepositoryNotFoundError):
        hidden = "this token may not see it" if with_token else f"it is private and needs {TOKEN}"
        return HubError(f"there is no repository {repo} at {endpoint}, or {hidden}; check the name")
    if isinstance(error, EntryNotFoundError):
        return HubError(f"{repo} has no such file any more; check its name at {endpoint}/{repo}")
    if isinstance(error, HfHubHTTPError):
        return HubError(f"{repo}: {refusal(error.response.status_code, 'the hub', with_token=with_token)}")
    if isinstance(error, httpx.TransportError):
        return HubError(f"{repo}: {endpoint} cannot be reached ({said(error)})")
    return HubError(f"{repo}: {said(error)}")


def ask_for_access(repo: str, endpoint: str, *, with_token: bool) -> str:
    if with_token:
        return f"the account of this token has no access yet; ask for it at {endpoint}/{repo}"
    return f"ask for access at {endpoint}/{repo}, then give {TOKEN}"


def refusal(status: int, who: str, *, with_token: bool = False) -> str:
    if status == 401:
        return f"{who} does not accept the token; check -hft and HF_TOKEN" if with_token else f"{who} wants {TOKEN}"
    if status == 403:
        return f"{who} forbids it (403)" + (
            "; the token has no right to read this" if with_token else f"; give {TOKEN}"
        )
    if status == 404:
        return f"{who} has no such file (404)"
    if status == 429:
        return f"{who} gets too many requests (429); try later" + ("" if with_token else f", or give {TOKEN}")
    return f"{who} is in trouble (HTTP {status}); try later"


def said(error: Exception) -> str:
    """One line, and something even where an error has no words."""
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    return " ".join(str(error).split()) or type(error).__name__
