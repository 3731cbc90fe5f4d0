"""Which pages may read, by the headers browsers look at."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paceline.config import ModelParams, Settings
from paceline.server.app import create_app
from paceline.server.cors import Origins
from paceline.server.params import ServerParams
from paceline.server.service import Service

ALLOWED = "access-control-allow-origin"
LOCAL = ["http://localhost", "http://localhost:8080", "http://127.0.0.1:3000", "http://[::1]:3000"]
STRANGE = ["http://web.example", "http://notlocalhost", "http://localhost.evil.example", "null", "http://["]


@dataclass(frozen=True, slots=True)
class Asked:
    """A server whose model is never there: headers come with errors too."""

    app: FastAPI

    def get(self, path: str, headers: dict[str, str]) -> httpx.Response:
        return asyncio.run(self._ask("GET", path, headers))

    def options(self, path: str, headers: dict[str, str]) -> httpx.Response:
        return asyncio.run(self._ask("OPTIONS", path, headers))

    async def _ask(self, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://127.0.0.1") as http:
            reply = await http.request(method, path, headers=headers)
        reply.headers = httpx.Headers([(bytes(name), value) for name, value in reply.headers.raw])
        return reply


def client(**params: Any) -> Asked:
    settings = Settings(model=ModelParams(path="-"))
    return Asked(create_app(Service(settings, ServerParams(webui=False, **params))))


def preflight(asked: Asked, origin: str) -> Any:
    headers = {"origin": origin, "access-control-request-method": "POST"}
    reply = asked.options("/completions", headers=headers)
    assert reply.status_code == 200
    return reply.headers


def test_with_a_key_every_page_may_ask_and_is_named() -> None:
    asked = client(api_keys=("k",))
    for origin in ("localhost", "http://web.example"):
        headers = preflight(asked, origin)
        assert headers[ALLOWED] == origin
        assert headers["access-control-allow-credentials"] == "true"
        assert headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
        assert headers["access-control-allow-headers"] == "*"
    assert asked.get("/v1/models", headers={"origin": "http://web.example"}).headers[ALLOWED] == "http://web.example"


def test_without_credentials_nobody_is_named() -> None:
    headers = preflight(client(api_keys=("k",), cors_credentials=False), "http://web.example")
    assert (headers[ALLOWED], headers["access-control-allow-credentials"]) == ("*", "false")


@pytest.mark.parametrize(
    "params", [{}, {"cors_origins": "localhost"}, {"api_keys": ("k",), "cors_origins": "localhost"}]
)
def test_pages_of_this_machine_alone(params: dict[str, Any]) -> None:
    asked = client(**params)
    for origin in LOCAL:
        assert preflight(asked, origin)[ALLOWED] == origin
    for origin in STRANGE:
        assert ALLOWED not in preflight(asked, origin)
        assert ALLOWED not in asked.get("/health", headers={"origin": origin}).headers


def test_pages_can_be_let_in_by_name_without_a_key() -> None:
    asked = client(cors_origins="https://chat.example, http://other.example", cors_methods="POST", cors_headers="x-a")
    headers = preflight(asked, "https://chat.example")
    assert headers[ALLOWED] == "https://chat.example"
    assert (headers["access-control-allow-methods"], headers["access-control-allow-headers"]) == ("POST", "x-a")
    assert asked.get("/health", headers={"origin": "https://chat.example"}).status_code == 503
    for origin in ("http://chat.example", "https://evil.example", "http://localhost.evil.example"):
        assert asked.get("/health", headers={"origin": origin}).status_code == 403
    rebound = {"origin": "https://chat.example", "host": "chat.example"}
    assert asked.get("/health", headers=rebound).status_code == 403


def test_everybody_can_be_let_in() -> None:
    asked = client(cors_origins="*")
    assert asked.get("/health", headers={"origin": "https://any.example"}).status_code == 503
    assert preflight(asked, "https://any.example")[ALLOWED] == "https://any.example"


def test_an_empty_name_is_nobody() -> None:
    assert not Origins("a,,b").allow("")
    assert Origins("https://A.example/").allow("https://a.example")
