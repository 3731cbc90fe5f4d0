"""OpenAI's API: models, completions, chat completions. Bodies in, replies out; the work is elsewhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from fastapi import APIRouter, Request
from starlette.responses import Response

from paceline.errors import ConfigError
from paceline.library import Engine
from paceline.server import chat
from paceline.server.chat_reply import ChatStream, Rules
from paceline.server.errors import Json, not_supported
from paceline.server.jobs import Job, check_model, job_of, prompts_of
from paceline.server.schema import MAX_CHOICES, ChatBody, CompletionBody
from paceline.server.service import Running, Service
from paceline.server.sse import ClientGone, EventStream, unless_gone
from paceline.server.text_reply import TextStream
from paceline.text.grammar import Grammar

CLIENT_GONE = 499


class Reply(Protocol):
    """A reply that can come in events or whole."""

    def events(self) -> AsyncGenerator[bytes, None]: ...
    async def whole(self) -> Any: ...


async def send(request: Request, reply: Reply, runnings: Sequence[Running]) -> Response:
    """However it ends, what was started is closed."""
    try:
        if runnings[0].job.stream:
            return await begun(request, reply.events(), lambda: close(runnings))
        whole = await unless_gone(request, reply.whole())
    except ClientGone:
        close(runnings)
        return Response(status_code=CLIENT_GONE)
    except BaseException:
        close(runnings)
        raise
    close(runnings)
    return Json(whole)


async def begun(request: Request, events: AsyncGenerator[bytes, None], on_close: Callable[[], None]) -> EventStream:
    """The first event decides: before it an error has a status of its own."""
    try:
        first = await unless_gone(request, anext(events))
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events, on_close)


def close(runnings: Sequence[Running]) -> None:
    for running in runnings:
        running.close()


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

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
        job, rules = await service.prepare(chat_job, body)
        runnings = service.start([job.numbered(index) for index in range(body.n or 1)])
        reply = ChatStream(service.model_name, service.engine.vocab, runnings, rules)
        return await send(request, reply, runnings)

    @router.post("/v1/completions")
    async def completions(request: Request, body: CompletionBody) -> Response:
        jobs, echoes = await service.prepare(text_jobs, body)
        runnings = service.start(jobs)
        usage = bool(body.stream_options and body.stream_options.include_usage)
        reply = TextStream(
            service.model_name,
            service.engine.vocab,
            runnings,
            echoes,
            n_choices=body.n or 1,
            include_usage=usage,
        )
        return await send(request, reply, runnings)

    return router


def models_json(service: Service) -> dict[str, Any]:
    engine = service.engine
    meta = {
        "vocab_type": engine.vocab.kind,
        "n_vocab": engine.vocab.n_tokens,
        "n_ctx": engine.n_ctx,
        "n_ctx_train": engine.model.n_ctx_train,
        "n_embd": engine.model.n_embd,
        "n_params": engine.model.n_params,
        "size": engine.model.n_bytes,
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


def chat_job(service: Service, body: ChatBody) -> tuple[Job, Rules]:
    """Runs on a worker thread: templates, tokens and grammars take a while."""
    engine = service.engine
    check_model(body.model, service.model_names)
    conversation = chat.converse(service.template, body, service.template_variables)
    job = job_of(engine, body, engine.tokenize(conversation.prompt), service.defaults)
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
        keep_thoughts=chat.keeps_thoughts(body, service.params.reasoning_format),
        logprobs=bool(body.logprobs),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
    )
    return replace(job, grammar=grammar, n_logprobs=(body.top_logprobs or 0) if body.logprobs else None), rules


def text_jobs(service: Service, body: CompletionBody) -> tuple[list[Job], list[str]]:
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
    jobs = [replace(job_of(engine, body, p, service.defaults), grammar=grammar, n_logprobs=n_logprobs) for p in prompts]
    echo = [text_of(engine, p) if body.echo else "" for p in prompts]
    return [job.numbered(i) for job in jobs for i in range(n)], [text for text in echo for _ in range(n)]


def text_of(engine: Engine, tokens: list[int]) -> str:
    pieces = [engine.vocab.piece(token) for token in tokens if 0 <= token < engine.vocab.n_tokens]
    return b"".join(pieces).decode(errors="replace")
