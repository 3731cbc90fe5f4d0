"""OpenAI's API: models, completions, chat completions. Bodies in, replies out; the work is elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from paceline.engine.request import Grammar
from paceline.errors import ConfigError
from paceline.library import Engine
from paceline.server import dialogue
from paceline.server.body import BodyRoute
from paceline.server.chat_reply import ChatReply, Rules
from paceline.server.errors import Json, not_supported
from paceline.server.middleware import owner_of
from paceline.server.schema import MAX_CHOICES, ChatBody, CompletionBody
from paceline.server.service import Service
from paceline.server.stream import send
from paceline.server.text_reply import TextReply
from paceline.server.text_request import TextRequest, bounded, check_model, prompts_of, text_request


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["OpenAI"], route_class=BodyRoute)

    @router.get("/v1/models")
    @router.get("/models", include_in_schema=False)
    async def models() -> Response:
        return Json(models_json(service))

    @router.get("/v1/models/{name:path}")
    async def one_model(name: str) -> Response:
        check_model(name, service.model_names)
        return Json(models_json(service)["data"][0])

    @router.post("/v1/chat/completions")
    @router.post("/chat/completions", include_in_schema=False)
    async def chat_completions(request: Request, body: ChatBody) -> Response:
        wanted, rules = await service.prepare(chat_request, body)
        choices = service.start([wanted.numbered(index) for index in range(body.n or 1)], owner_of(request.scope))
        return await send(request, ChatReply(service.model_name, service.engine.vocab, choices, rules))

    @router.post("/v1/completions")
    async def completions(request: Request, body: CompletionBody) -> Response:
        wanted, echoes = await service.prepare(text_requests, body)
        choices = service.start(wanted, owner_of(request.scope))
        usage = bool(body.stream_options and body.stream_options.include_usage)
        reply = TextReply(
            service.model_name,
            service.engine.vocab,
            choices,
            echoes,
            n_choices=body.n or 1,
            include_usage=usage,
        )
        return await send(request, reply)

    return router


def models_json(service: Service) -> dict[str, Any]:
    engine = service.engine
    meta = {
        "vocab_type": engine.vocab.kind,
        "n_vocab": engine.vocab.n_tokens,
        "n_ctx": engine.n_ctx,
        "n_ctx_train": engine.info.n_ctx_train,
        "n_embd": engine.info.n_embd,
        "n_params": engine.info.n_params,
        "size": engine.info.n_bytes,
    }
    data = {
        "id": service.model_name,
        "aliases": list(service.params.aliases),
        "object": "model",
        "created": service.created,
        "owned_by": "paceline",
        "meta": meta,
    }
    return {"object": "list", "data": [data]}


def chat_request(service: Service, body: ChatBody) -> tuple[TextRequest, Rules]:
    """Runs on a worker thread: templates, tokens and grammars take a while."""
    engine = service.engine
    check_model(body.model, service.model_names)
    conversation = dialogue.converse(service.template, body, service.template_variables)
    wanted = text_request(engine, body, engine.tokenize(bounded(engine, conversation.prompt)), service.defaults)
    if body.top_logprobs is not None and not body.logprobs:
        raise ConfigError("top_logprobs needs logprobs: true")
    formats: list[object] = [body.grammar, body.json_schema, conversation.forced]
    if body.response_format and body.response_format.type != "text":
        formats.append(body.response_format)
    if sum(form is not None for form in formats) > 1:
        raise ConfigError("give one of response_format, grammar, json_schema and a forced tool_choice")
    if conversation.forced:
        grammar: Grammar | None = service.grammars.json_schema(conversation.forced)
    else:
        grammar = service.grammars.of_format(body.response_format) or service.grammars.of(body)
    rules = Rules(
        names=conversation.names,
        thoughts_opened=conversation.thoughts_opened,
        keep_thoughts=dialogue.keeps_thoughts(body, service.params.reasoning_format),
        logprobs=bool(body.logprobs),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
    )
    return replace(wanted, grammar=grammar, n_logprobs=(body.top_logprobs or 0) if body.logprobs else None), rules


def text_requests(service: Service, body: CompletionBody) -> tuple[list[TextRequest], list[str]]:
    """Every choice of every prompt, and what to echo before each."""
    engine = service.engine
    check_model(body.model, service.model_names)
    if body.suffix:
        raise not_supported("suffix is not supported here; /infill fills gaps for models trained to")
    if (body.best_of or 1) > (body.n or 1):
        raise not_supported("best_of is not supported; ask for n choices instead")
    prompts, n = prompts_of(engine, body.prompt), body.n or 1
    if len(prompts) * n > MAX_CHOICES:
        raise ConfigError(
            f"{len(prompts)} prompts of {n} choices are too many; {MAX_CHOICES} texts at once are allowed"
        )
    grammar = service.grammars.of(body)
    n_logprobs = None if body.logprobs is None or body.logprobs is False else int(body.logprobs)
    wanted = [text_request(engine, body, prompt, service.defaults) for prompt in prompts]
    wanted = [replace(each, grammar=grammar, n_logprobs=n_logprobs) for each in wanted]
    echo = [text_of(engine, p) if body.echo else "" for p in prompts]
    return [each.numbered(i) for each in wanted for i in range(n)], [text for text in echo for _ in range(n)]


def text_of(engine: Engine, tokens: list[int]) -> str:
    pieces = [engine.vocab.piece(token) for token in tokens if 0 <= token < engine.vocab.n_tokens]
    return b"".join(pieces).decode(errors="replace")
