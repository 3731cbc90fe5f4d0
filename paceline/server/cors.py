"""Which web pages may read our answers (CORS), in llama-server's way: by `--cors-origins` and its like."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline.server.origin import is_this_machine, origin_name

ANY, LOCAL = "*", "localhost"


@dataclass(frozen=True, slots=True)
class Origins:
    """`given` is `*` for pages from everywhere, `localhost` for those of this machine, else a list of origins with
    commas between. `named` adds hosts by name."""

    given: str
    named: frozenset[str] = frozenset()

    def allow(self, origin: str) -> bool:
        names = {name.strip().rstrip("/").lower() for name in self.given.split(",")} - {""}
        if ANY in names or origin.lower() in names or origin_name(origin) in self.named:
            return True
        return LOCAL in names and is_this_machine(origin_name(origin))


class Cors:
    """Answers every preflight, and says in each reply whether the page that asked may read it."""

    def __init__(self, app: ASGIApp, origins: Origins, methods: str, headers: str, *, credentials: bool) -> None:
        self.app = app
        self._origins = origins
        self._credentials = credentials
        self._preflight = {
            "Access-Control-Allow-Credentials": "true" if credentials else "false",
            "Access-Control-Allow-Methods": methods,
            "Access-Control-Allow-Headers": headers,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        allowed = self._allowed(Headers(scope=scope).get("origin"))
        if scope["method"] == "OPTIONS":
            reply = Response(media_type="text/html", headers={**self._preflight, **allowed})
            await reply(scope, receive, send)
            return
        await self.app(scope, receive, added(send, allowed) if allowed else send)

    def _allowed(self, origin: str | None) -> dict[str, str]:
        """With credentials a browser wants to be named; else `*` will do, and is the same for everybody."""
        anybody = self._origins.given == ANY
        if anybody and (origin is None or not self._credentials):
            return {"Access-Control-Allow-Origin": ANY}
        if origin is None or not self._origins.allow(origin):
            return {} if anybody else {"Vary": "Origin"}
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


def added(send: Send, headers: dict[str, str]) -> Send:
    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return send_with
