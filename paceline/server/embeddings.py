"""Texts as vectors: OpenAI's `/v1/embeddings` and llama-server's `/embedding`, where the server was started for it."""

from __future__ import annotations

import asyncio
import base64
from time import perf_counter
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from starlette.responses import Response

from paceline.errors import ConfigError
from paceline.server.body import BodyRoute
from paceline.server.errors import Json, not_supported
from paceline.server.schema import MAX_INPUTS, EmbeddingBody, EmbeddingsBody, PromptField
from paceline.server.service import Service
from paceline.server.sse import ClientGone, unless_gone
from paceline.server.stream import CLIENT_GONE
from paceline.server.text_request import prompts_of


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["embeddings"], route_class=BodyRoute)

    @router.post("/v1/embeddings")
    async def openai_embeddings(request: Request, body: EmbeddingsBody) -> Response:
        service.check_model(body.model)
        if body.dimensions not in (None, service.engine.info.n_embd):
            raise ConfigError(f"this model's embeddings have {service.engine.info.n_embd} dimensions; leave it out")
        return await answer(request, openai_reply(service, body))

    @router.post("/embedding")
    @router.post("/embeddings", include_in_schema=False)
    async def native_embeddings(request: Request, body: EmbeddingBody) -> Response:
        return await answer(request, native_reply(service, body))

    return router


async def answer(request: Request, reply: Any) -> Response:
    try:
        return Json(await unless_gone(request, reply))
    except ClientGone:
        return Response(status_code=CLIENT_GONE)


async def openai_reply(service: Service, body: EmbeddingsBody) -> dict[str, Any]:
    vectors, n_tokens = await vectors_of(service, body.input)
    encode = as_base64 if body.encoding_format == "base64" else list
    data = [{"object": "embedding", "index": i, "embedding": encode(v)} for i, v in enumerate(vectors)]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return {"object": "list", "model": service.model_name, "data": data, "usage": usage}


async def native_reply(service: Service, body: EmbeddingBody) -> list[dict[str, Any]]:
    given = body.content if body.content is not None else body.input
    if given is None:
        raise ConfigError("content: the text to embed is missing")
    vectors, _ = await vectors_of(service, given)
    return [{"index": i, "embedding": [vector]} for i, vector in enumerate(vectors)]


async def vectors_of(service: Service, given: PromptField) -> tuple[list[list[float]], int]:
    """One text at a time between the steps of running answers; and how many tokens they were."""
    engine = service.engine
    if not service.params.embeddings:
        raise not_supported("this server has no embeddings; start it with --embeddings")
    prompts = await asyncio.to_thread(prompts_of, engine, given)
    if len(prompts) > MAX_INPUTS:
        raise ConfigError(f"{len(prompts)} texts are too many; {MAX_INPUTS} at once are allowed")
    start = perf_counter()
    vectors = [await asyncio.to_thread(engine.embed, prompt) for prompt in prompts]
    service.metrics.embedded(sum(map(len, prompts)), perf_counter() - start)
    return vectors, sum(map(len, prompts))


def as_base64(vector: list[float]) -> str:
    return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()
