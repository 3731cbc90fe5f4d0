"""Which names a server without a key answers to, and which web pages may use it.

A browser on this machine reaches what listens on 127.0.0.1, for any page it shows. A page from elsewhere gives itself
away by its Origin; one that had its own name point to 127.0.0.1 (DNS rebinding) by the Host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from paceline.server.errors import ApiError


class KnownNames:
    """Refuses requests that name another host than this machine, or come from a page that may not ask."""

    def __init__(self, app: ASGIApp, names: Sequence[str], may_ask: Callable[[str], bool]) -> None:
        self.app = app
        self._names = {name.lower() for name in names}
        self._may_ask = may_ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stranger = self._stranger(scope) if scope["type"] == "http" else None
        if stranger is not None:
            await refusal(stranger).reply()(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _stranger(self, scope: Scope) -> str | None:
        """The first name in the headers that is not ours."""
        for header, value in scope["headers"]:
            text = value.decode("latin-1").strip()
            if header == b"host" and text and not self._knows(host_name(text)):
                return host_name(text)
            if header == b"origin" and not (self._knows(origin_name(text)) or self._may_ask(text)):
                return origin_name(text)
        return None

    def _knows(self, name: str) -> bool:
        return is_this_machine(name) or name in self._names


def host_name(host: str) -> str:
    """Without the port, and without the brackets of IPv6."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def origin_name(origin: str) -> str:
    """`null` is what pages from files call themselves."""
    try:
        return (urlsplit(origin).hostname or origin).lower().removesuffix(".")
    except ValueError:
        return origin.lower()


def only_this_machine(hosts: Sequence[str]) -> bool:
    """Whether nobody else gets to these addresses; those that end in .sock are files."""
    return all(host.endswith(".sock") or is_this_machine(host) for host in hosts)


def is_this_machine(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def refusal(name: str) -> ApiError:
    message = (
        f"this server has no key and answers only this machine's own names and pages, not {name!r}; "
        f"start it with --api-key, with --allow-host {name}, or for web pages with --cors-origins"
    )
    return ApiError(403, message, "permission_error")
