"""What stands before every route: the key, the size of a body, its kind. Plain ASGI, so that streams stay streams."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline.server.errors import ApiError, unavailable
from paceline.server.sse import ClientGone

OWNER = "paceline.owner"
MANY = 32
"""How many of the largest requests may be held at once."""
REFUSAL = ApiError(401, "Invalid API Key: send Authorization: Bearer KEY", "authentication_error")


class ApiKey:
    """Lets those in who show a key, and everyone to what is public. Compares in constant time, all keys each time."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], is_public: Callable[[str], bool]) -> None:
        self.app = app
        self._digests = [digest(key.encode()) for key in keys]
        self._is_public = is_public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._digests:
            if not self._may_pass(scope):
                await REFUSAL.reply()(scope, receive, send)
                return
            scope = {**scope, OWNER: digest(shown_key(scope))}
        await self.app(scope, receive, send)

    def _may_pass(self, scope: Scope) -> bool:
        if scope["method"] == "OPTIONS" or self._is_public(scope["path"]):
            return True
        shown = digest(shown_key(scope))
        return sum(hmac.compare_digest(shown, known) for known in self._digests) > 0


def owner_of(scope: Scope) -> bytes:
    """Whose request it is: a digest of the key it showed. Without keys everybody is the same."""
    return bytes(scope.get(OWNER, b""))


def shown_key(scope: Scope) -> bytes:
    """`Authorization: Bearer KEY`, Anthropic's `X-Api-Key: KEY`, or the key alone in `Authorization`."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    shown = headers.get(b"authorization", b"").strip()
    scheme, _, key = shown.partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", shown).strip()


def digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class BodyLimit:
    """Refuses bodies over a size, whether announced or not, and new ones while those being answered add up to too much.
    Takes every body for JSON, as llama-server does."""

    def __init__(self, app: ASGIApp, n_max: int) -> None:
        self.app = app
        self.n_max = n_max
        self.n_held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        announced = dict(headers).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self.n_max:
            await self.refusal().reply()(scope, receive, send)
            return
        held = Held(self)
        try:
            body = replayed(await self._whole(receive, held), receive)
        except ApiError as error:
            held.release()
            await error.reply()(scope, receive, send)
            return
        except ClientGone:
            held.release()
            return
        try:
            await self.app({**scope, "headers": [*headers, (b"content-type", b"application/json")]}, body, send)
        finally:
            held.release()

    async def _whole(self, receive: Receive, held: Held) -> bytes:
        parts = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            held.add(len(parts[-1]))
            if not message.get("more_body", False):
                return b"".join(parts)

    def refusal(self) -> ApiError:
        return ApiError(413, f"the request is larger than {self.n_max} bytes; send less, or raise --max-body")


class Held:
    """The bytes of one request, counted until it has been answered."""

    def __init__(self, limit: BodyLimit) -> None:
        self._limit = limit
        self._n = 0

    def add(self, n: int) -> None:
        self._n += n
        self._limit.n_held += n
        if self._n > self._limit.n_max:
            raise self._limit.refusal()
        if self._limit.n_held > MANY * self._limit.n_max:
            raise unavailable("the requests being answered are too large together; try again later")

    def release(self) -> None:
        self._limit.n_held -= self._n
        self._n = 0


def replayed(body: bytes, receive: Receive) -> Receive:
    """The body in one message, then whatever comes: the client's leaving."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


class Heads:
    """Whoever may GET may ask for the head alone: uvicorn leaves the rest out."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send)


class Spelled(bytes):
    """A header's name as it is written: uvicorn puts names in small letters otherwise."""

    def lower(self) -> bytes:
        return self


class Spelling:
    """Headers are spelled as llama-server spells them, `Content-Type`: some clients compare them letter by letter."""

    OWN = frozenset((b"content-length", b"transfer-encoding", b"connection"))  # uvicorn looks for these itself

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_spelled(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [(self._spelled(name), value) for name, value in message.get("headers", ())]
            await send(message)

        await self.app(scope, receive, send_spelled)

    def _spelled(self, name: bytes) -> bytes:
        return name if name in self.OWN else Spelled(b"-".join(part.capitalize() for part in name.split(b"-")))
