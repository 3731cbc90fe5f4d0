"""OpenAI's API: models, completions, chat completions. Bodies in, replies out; the work is elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from paceline.errors import ConfigError
from paceline.library import Engine
from paceline.server import dialogue
from paceline.server.binding import binding_of
from paceline.server.body import BodyRoute
from paceline.server.chat_reply import ChatReply, Rules
from paceline.server.errors import Json, not_supported
from paceline.server.middleware import owner_of
from paceline.server.schema import MAX_CHOICES, ChatBody, CompletionBody, SamplingBody
from paceline.server.service import Service
from paceline.server.stream import send
from paceline.server.text_reply import TextReply
from paceline.server.text_request import TextRequest, bounded, prompts_of, text_request
from paceline.text.formats import style_of

AnyBody = TypeVar("AnyBody", bound=SamplingBody)


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["OpenAI"], route_class=BodyRoute)

    @router.get("/v1/models")
    @router.get("/models", include_in_schema=False)
    async def models() -> Response:
        return Json(models_json(service))

    @router.get("/v1/models/{name:path}")
    async def one_model(name: str) -> Response:
        service.check_model(name, strict=True)
        return Json(models_json(service)["data"][0])

    @router.post("/v1/chat/completions")
    @router.post("/chat/completions", include_in_schema=False)
    async def chat_completions(request: Request, body: ChatBody) -> Response:
        return await send(request, await begin_chat(service, request, chat_request, body, body.n or 1))

    @router.post("/v1/chat/completions/input_tokens")
    @router.post("/chat/completions/input_tokens", include_in_schema=False)
    async def input_tokens(body: ChatBody) -> Response:
        return Json({"object": "response.input_tokens", "input_tokens": await service.prepare(n_tokens, body)})

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


async def begin_chat(
    service: Service,
    request: Request,
    work: Callable[[Service, AnyBody], tuple[TextRequest, Rules]],
    body: AnyBody,
    n: int = 1,
) -> ChatReply:
    """Under whatever API the chat was asked for: `work` makes the request of its body, beside the event loop."""
    wanted, rules = await service.prepare(work, body)
    choices = service.start([wanted.numbered(index) for index in range(n)], owner_of(request.scope))
    return ChatReply(service.model_name, service.engine.vocab, choices, rules)


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
        "tags": sorted(set(service.params.tags)),
        "object": "model",
        "created": service.created,
        "owned_by": "paceline",
        "meta": meta,
    }
    named = {"name": service.model_name, "model": service.model_name, "type": "model", "capabilities": ["completion"]}
    return {"object": "list", "data": [data], "models": [named]}


def chat_request(service: Service, body: ChatBody) -> tuple[TextRequest, Rules]:
    """Runs on a worker thread: templates, tokens and grammars take a while."""
    engine = service.engine
    service.check_model(body.model)
    conversation = dialogue.converse(service.template, body, service.manner)
    wanted = text_request(engine, body, engine.tokenize(bounded(engine, conversation.prompt)), service.defaults)
    if body.top_logprobs is not None and not body.logprobs:
        raise ConfigError("top_logprobs needs logprobs: true")
    whole = service.params.skip_chat_parsing
    tools = dialogue.offered_tools(body)
    style = style_of(dialogue.source_for(service.template, tools))
    binding = binding_of(service, body, conversation, style, tools)
    rules = Rules(
        style=style,
        tools=() if whole or body.parse_tool_calls is False else tuple(tools),
        prompt=conversation.prompt,
        opened=conversation.thoughts_opened,
        begun=conversation.begun,
        echo=dialogue.echoes(body),
        thoughts="kept" if whole else thoughts_of(body, service.params.reasoning_format),
        logprobs=bool(body.logprobs),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        verbose=service.params.verbose if body.verbose is None else body.verbose,
    )
    return replace(
        wanted,
        grammar=binding.grammar,
        bounds=binding.bounds,
        spelled=service.marks(style).spelled(tools=bool(tools)),
        n_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    ), rules


def thoughts_of(body: ChatBody, default: str) -> str:
    """llama-server's old way has them in the content, and apart as well in a reply that is not streamed."""
    if not dialogue.keeps_thoughts(body, default):
        return "apart"
    form = body.reasoning_format or default
    return "both" if form == "deepseek-legacy" and not body.stream else "kept"


def n_tokens(service: Service, body: ChatBody) -> int:
    """How many tokens the model would read."""
    conversation = dialogue.converse(service.template, body, service.manner)
    return len(service.engine.tokenize(bounded(service.engine, conversation.prompt)))


def text_requests(service: Service, body: CompletionBody) -> tuple[list[TextRequest], list[str]]:
    """Every choice of every prompt, and what to echo before each."""
    engine = service.engine
    service.check_model(body.model)
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
