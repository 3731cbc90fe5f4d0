"""Texts as vectors: OpenAI's `/v1/embeddings` and llama-server's `/embedding`, where the server was started for it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine, Sequence
from time import perf_counter
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from paceline.errors import ConfigError, PromptError
from paceline.process.base import Vectors
from paceline.server.body import BodyRoute
from paceline.server.errors import Json, not_supported
from paceline.server.schema import MAX_INPUTS, Body, ContentPart, Int, PromptObject, Tokens
from paceline.server.service import Service
from paceline.server.sse import ClientGone, unless_gone
from paceline.server.stream import CLIENT_GONE
from paceline.server.text_request import prompts_of

MAX_VALUES = 2**23


class ContentObject(Body):
    """A text in parts, as in a chat."""

    content: Annotated[list[ContentPart], Field(min_length=1, max_length=MAX_INPUTS)]

    def text(self) -> str:
        for part in self.content:
            if part.type != "text" or part.text is None:
                raise PromptError(f"a content part of type {part.type!r}: this server reads text only")
        return "".join(part.text or "" for part in self.content)


One = str | PromptObject | ContentObject
Several = Annotated[list[Int | str | PromptObject | ContentObject | Tokens], Field(fail_fast=True)]


class EmbeddingsBody(Body):
    """Both APIs'. `content` is llama-server's name for the input."""

    input: One | Several | None = None
    content: One | Several | None = None
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    embd_normalize: Annotated[int, Field(ge=-1, le=100)] | None = None


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["embeddings"], route_class=BodyRoute)

    @router.post("/v1/embeddings")
    async def openai_embeddings(request: Request, body: EmbeddingsBody) -> Response:
        service.check_model(body.model)
        if body.input is None and body.content is not None:
            return await answer(request, native_reply(service, body))
        if service.settings.context.pooling == "none":
            raise ConfigError("with --pooling none a text has many vectors, and this address one; ask /embedding")
        return await answer(request, openai_reply(service, body))

    @router.post("/embedding")
    @router.post("/embeddings", include_in_schema=False)
    async def native_embeddings(request: Request, body: EmbeddingsBody) -> Response:
        return await answer(request, native_reply(service, body))

    return router


async def answer(request: Request, reply: Coroutine[Any, Any, Any]) -> Response:
    try:
        return Json(await unless_gone(request, reply))
    except ClientGone:
        return Response(status_code=CLIENT_GONE)


async def openai_reply(service: Service, body: EmbeddingsBody) -> dict[str, Any]:
    vectors, n_tokens = await embedded(service, body)
    data = [vector_json(i, found[0], body.encoding_format == "base64") for i, found in enumerate(vectors)]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return {"object": "list", "model": body.model or service.model_name, "data": data, "usage": usage}


def vector_json(index: int, vector: list[float], in_base64: bool) -> dict[str, Any]:
    if not in_base64:
        return {"object": "embedding", "index": index, "embedding": vector}
    return {"object": "embedding", "index": index, "embedding": as_base64(vector), "encoding_format": "base64"}


async def native_reply(service: Service, body: EmbeddingsBody) -> list[dict[str, Any]]:
    vectors, _ = await embedded(service, body)
    return [{"index": i, "embedding": found} for i, found in enumerate(vectors)]


async def embedded(service: Service, body: EmbeddingsBody) -> tuple[Vectors, int]:
    """Each text's vectors, and how many tokens they were."""
    if service.settings.context.pooling == "rank":
        raise not_supported("this server ranks and has no embeddings; start it without --reranking")
    if not service.params.embeddings:
        raise not_supported("this server has no embeddings; start it with --embeddings")
    n_embd = service.engine.info.n_embd
    if body.dimensions is not None and body.dimensions > n_embd:
        raise ConfigError(f"this model's embeddings have {n_embd} dimensions; ask for as many or fewer")
    prompts = await asyncio.to_thread(tokenized, service, body)
    check_size(service, prompts, body.dimensions or n_embd)
    normalize = service.params.embd_normalize if body.embd_normalize is None else body.embd_normalize
    vectors = await vectors_of(service, prompts, normalize, body.dimensions)
    return vectors, sum(map(len, prompts))


def check_size(service: Service, prompts: Sequence[Sequence[int]], n_values: int) -> None:
    """Without pooling a reply has a vector for every token."""
    n = sum(map(len, prompts)) if service.settings.context.pooling == "none" else len(prompts)
    if n * n_values > MAX_VALUES:
        raise ConfigError(f"{n} vectors of {n_values} numbers are too many; {MAX_VALUES} numbers fit; send fewer texts")


def tokenized(service: Service, body: EmbeddingsBody) -> list[list[int]]:
    given: Any = body.input if body.input is not None else body.content
    if given is None:
        raise ConfigError("input: the text to embed is missing")
    if isinstance(given, list):
        given = [item.text() if isinstance(item, ContentObject) else item for item in given]
    prompts = prompts_of(service.engine, given.text() if isinstance(given, ContentObject) else given)
    if len(prompts) > MAX_INPUTS:
        raise ConfigError(f"{len(prompts)} texts are too many; {MAX_INPUTS} at once are allowed")
    return prompts


async def vectors_of(
    service: Service, texts: Sequence[Sequence[int]], normalize: int, n_values: int | None = None
) -> Vectors:
    """A batch at a time, between the steps of running answers; the same text is computed once."""
    engine = service.engine
    different = [list(tokens) for tokens in dict.fromkeys(map(tuple, texts))]
    found: dict[tuple[int, ...], list[list[float]]] = {}
    start = perf_counter()
    for some in engine.embedded_together(different):
        vectors = await asyncio.to_thread(engine.embed_all, some, normalize=normalize, n_values=n_values)
        found |= zip(map(tuple, some), vectors, strict=True)
    service.metrics.embedded(sum(map(len, texts)), perf_counter() - start)
    return [found[tuple(tokens)] for tokens in texts]


def as_base64(vector: list[float]) -> str:
    return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()
