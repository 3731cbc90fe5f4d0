"""Google Vertex AI's way to ask: one address, several requests in a body, each naming the address it is meant for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.responses import Response
from starlette.types import Message, Scope

from paceline.errors import ConfigError
from paceline.server.body import BodyRoute
from paceline.server.embeddings import answer
from paceline.server.errors import ApiError, Json, encode
from paceline.server.native import health_json
from paceline.server.params import ServerParams
from paceline.server.schema import MAX_CHOICES, Body
from paceline.server.service import Service

FORMAT = "@requestFormat"


class PredictBody(Body):
    instances: Annotated[list[dict[str, Any]], Field(max_length=MAX_CHOICES)]


def configured(params: ServerParams, environment: Mapping[str, str]) -> ServerParams:
    """What Vertex tells a container in its environment wins over the command line."""
    if environment.get("AIP_MODE") != "PREDICTION":
        return params
    port = environment.get("AIP_HTTP_PORT") or "8080"
    if not port.isdecimal():
        raise ConfigError(f"AIP_HTTP_PORT is {port!r}, and not a number")
    predict = route(environment.get("AIP_PREDICT_ROUTE") or "/predict")
    return replace(
        params, port=int(port), predict_route=predict, health_route=route(environment.get("AIP_HEALTH_ROUTE"))
    )


def route(path: str | None) -> str | None:
    return f"/{path.strip('/')}" if path else None


def routes(service: Service, app: FastAPI, others: Sequence[APIRouter]) -> APIRouter:
    """`others` have the addresses that can be named, in the same application."""
    params = service.params
    router = APIRouter(tags=["Vertex AI"], route_class=BodyRoute)
    paths = post_paths(others)
    assert params.predict_route
    if params.predict_route in paths:
        raise ConfigError(f"AIP_PREDICT_ROUTE is {params.predict_route}, where something else answers")

    @router.post(params.predict_route)
    async def predict(request: Request, body: PredictBody) -> Response:
        work = [prediction(app, service.params.api_prefix, paths, request.scope, each) for each in body.instances]
        return await answer(request, together(work))

    if params.health_route:

        @router.get(params.health_route)
        async def health() -> Response:
            return Json(health_json(service))

    return router


def post_paths(routers: Sequence[APIRouter]) -> dict[str, str]:
    """Where bodies are taken, by address and by its other name; OpenAI's address wins where two have one name."""
    found = [
        r.path for router in routers for r in router.routes if isinstance(r, APIRoute) and "POST" in (r.methods or ())
    ]
    plain = sorted([path for path in found if "{" not in path], key=lambda path: path.startswith("/v1/"))
    return {name: path for path in plain for name in (path, camel_case(path))}


def camel_case(path: str) -> str:
    """`/v1/chat/completions` is chatCompletions."""
    first, *rest = re.split(r"[/_-]", path.removeprefix("/v1").strip("/"))
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


async def together(work: Sequence[Coroutine[Any, Any, Any]]) -> dict[str, Any]:
    """All at once, as far as there are slots. One that fails is an error object among the others' answers."""
    return {"predictions": await asyncio.gather(*work)}


async def prediction(
    app: FastAPI, prefix: str, paths: Mapping[str, str], scope: Scope, instance: dict[str, Any]
) -> Any:
    wanted = instance.get(FORMAT)
    if not isinstance(wanted, str) or wanted not in paths:
        return ApiError(400, f"{FORMAT} is {wanted!r}; there are {', '.join(sorted(paths))}").body()
    body = {key: value for key, value in instance.items() if key != FORMAT}
    if "stream" in body:
        body["stream"] = False
    return msgspec.Raw(await reply_of(app, scope, prefix + paths[wanted], encode(body)))


async def reply_of(app: FastAPI, scope: Scope, path: str, body: bytes) -> bytes:
    """What this server answers at another of its addresses."""
    asked: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    said: list[bytes] = []

    async def receive() -> Message:
        if not asked:
            await asyncio.Event().wait()
        return asked.pop()

    async def send(message: Message) -> None:
        said.append(message.get("body", b""))

    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await app.router({**scope, "path": path, "raw_path": path.encode(), "headers": headers}, receive, send)
    return b"".join(said)
