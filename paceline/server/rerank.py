"""Documents by how well they answer a query: `/v1/rerank` as Jina words it, and as text-embeddings-inference does."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BeforeValidator, Field
from starlette.responses import Response

from paceline.errors import ConfigError
from paceline.server.body import BodyRoute
from paceline.server.embeddings import answer, vectors_of
from paceline.server.errors import not_supported
from paceline.server.schema import MAX_INPUTS, Body, Int
from paceline.server.service import Service
from paceline.server.text_request import bounded, utf8

AS_THEY_ARE = -1


def document_text(value: Any) -> Any:
    """Jina's clients may wrap a document as {"text": ...}."""
    return value["text"] if isinstance(value, dict) and "text" in value else value


Document = Annotated[str, BeforeValidator(document_text)]
Documents = Annotated[list[Document], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]


class RerankBody(Body):
    """`texts` is TEI's name for the documents, and asks for its shape of answer."""

    query: str
    documents: Documents | None = None
    texts: Documents | None = None
    model: str | None = None
    top_n: Annotated[Int, Field(ge=0)] | None = None
    return_text: bool | None = None
    return_documents: bool | None = None


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["rerank"], route_class=BodyRoute)

    @router.post("/v1/rerank")
    @router.post("/rerank", include_in_schema=False)
    @router.post("/reranking", include_in_schema=False)
    @router.post("/v1/reranking", include_in_schema=False)
    async def rerank(request: Request, body: RerankBody) -> Response:
        service.check_model(body.model)
        return await answer(request, ranked(service, body))

    return router


async def ranked(service: Service, body: RerankBody) -> Any:
    """The best first."""
    if service.settings.context.pooling != "rank":
        raise not_supported("this server does not rank; start it with --reranking and a model made for it")
    documents = body.documents or body.texts
    if documents is None:
        raise ConfigError("documents: the texts to rank are missing")
    pairs = await asyncio.to_thread(paired, service, body.query, documents)
    scores = [found[0][0] for found in await vectors_of(service, pairs, AS_THEY_ARE)]
    best = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
    if body.texts is not None:
        return [tei_json(index, scores[index], documents, bool(body.return_text)) for index in best]
    n_tokens = sum(map(len, pairs))
    return {
        "object": "list",
        "model": body.model or service.model_name,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        "results": [jina_json(index, scores[index], documents, bool(body.return_documents)) for index in best],
    }


def paired(service: Service, query: str, documents: list[str]) -> list[list[int]]:
    engine = service.engine
    texts = [bounded(engine, utf8(text)) for text in (query, *documents)]
    return engine.pairs(texts[0], texts[1:])


def tei_json(index: int, score: float, documents: list[str], with_text: bool) -> dict[str, Any]:
    return {"index": index, "score": score, **({"text": documents[index]} if with_text else {})}


def jina_json(index: int, score: float, documents: list[str], with_text: bool) -> dict[str, Any]:
    shown = {"document": {"text": documents[index]}} if with_text else {}
    return {"index": index, "relevance_score": score, **shown}
