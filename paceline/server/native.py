"""llama-server's own API: health, properties, slots, completion, infill, tokens, metrics. Its names, its shapes."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from paceline.errors import ConfigError, PromptError
from paceline.server import dialogue, slots
from paceline.server.body import BodyRoute
from paceline.server.errors import Json, not_supported, unavailable
from paceline.server.middleware import owner_of
from paceline.server.native_reply import NativeReply, ReplyOptions, settings_json
from paceline.server.reply import BUILD
from paceline.server.schema import (
    MAX_CHOICES,
    DetokenizeBody,
    InfillBody,
    NativeBody,
    SlotFileBody,
    TemplateBody,
    TokenizeBody,
)
from paceline.server.service import Service
from paceline.server.stream import send
from paceline.server.text_request import TextRequest, bounded, check_model, prompts_of, text_request, utf8
from paceline.text.infill import File, infill_prompt, spelling_for

SlotId = Annotated[int, Path(ge=0, le=2**31 - 1)]


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["llama-server"], route_class=BodyRoute)

    @router.get("/health")
    @router.get("/v1/health", include_in_schema=False)
    async def health() -> Response:
        return Json(health_json(service))

    @router.get("/props")
    async def props() -> Response:
        return Json(props_json(service))

    @router.post("/props")
    async def set_props() -> Response:
        if not service.params.props:
            raise not_supported("properties cannot be changed; start the server with --props")
        return Json({"success": True})

    @router.get("/metrics")
    async def metrics() -> Response:
        if not service.params.metrics:
            raise not_supported("this server keeps no metrics; start it with --metrics")
        text = service.metrics.text(await service.status(), service.engine.health)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    @router.get("/paceline/stats", tags=["paceline"])
    async def stats() -> Response:
        return Json(slots.stats_json(service, await service.status()))

    add_completion(router, service)
    add_tokens(router, service)
    add_slots(router, service)
    return router


def add_completion(router: APIRouter, service: Service) -> None:
    @router.post("/completion")
    @router.post("/completions", include_in_schema=False)
    async def completion(request: Request, body: NativeBody) -> Response:
        return await answer(request, *await service.prepare(native_requests, body))

    @router.post("/infill")
    async def infill(request: Request, body: InfillBody) -> Response:
        return await answer(request, *await service.prepare(infill_requests, body))

    async def answer(request: Request, wanted: list[TextRequest], options: ReplyOptions) -> Response:
        choices = service.start(wanted, owner_of(request.scope))
        engine = service.engine
        return await send(request, NativeReply(service.model_name, engine.vocab, engine.n_ctx, choices, options))


def add_tokens(router: APIRouter, service: Service) -> None:
    @router.post("/tokenize")
    def tokenize(body: TokenizeBody) -> Response:
        engine = service.engine
        text = bounded(engine, utf8(body.content))
        tokens = engine.tokenize(text, special=body.add_special, parse_special=body.parse_special)
        if not body.with_pieces:
            return Json({"tokens": tokens})
        return Json({"tokens": [{"id": t, "piece": piece_json(engine.vocab.render(t, special=True))} for t in tokens]})

    @router.post("/detokenize")
    def detokenize(body: DetokenizeBody) -> Response:
        vocab = service.engine.vocab
        if not all(0 <= token < vocab.n_tokens for token in body.tokens):
            raise PromptError(f"token ids go from 0 to {vocab.n_tokens - 1}")
        data = b"".join(vocab.render(token, special=True) for token in body.tokens)
        return Json({"content": data.decode(errors="replace")})

    @router.post("/apply-template")
    def apply_template(body: TemplateBody) -> Response:
        return Json({"prompt": dialogue.converse(service.template, body, service.template_variables).prompt})


def add_slots(router: APIRouter, service: Service) -> None:
    @router.get("/slots")
    async def list_slots(request: Request, fail_on_no_slot: Annotated[str | None, Query()] = None) -> Response:
        if not service.params.slots:
            raise not_supported("this server does not show its slots; start it without --no-slots")
        listed = slots.slots_json(service, await service.status(), owner_of(request.scope))
        if fail_on_no_slot and all(slot["is_processing"] for slot in listed):
            raise unavailable("no slot available")
        return Json(listed)

    @router.post("/slots/{id_slot}")
    def change_slot(
        id_slot: SlotId, action: Literal["save", "restore", "erase"], body: SlotFileBody | None = None
    ) -> Response:
        if service.params.slot_save_path is None:
            raise not_supported("this server does not touch slots; start it with --slot-save-path FOLDER")
        if action == "erase":
            return Json(slots.erase(service, id_slot))
        if body is None or body.filename is None:
            raise ConfigError(f"to {action} a slot, give a filename")
        work = slots.save if action == "save" else slots.restore
        return Json(work(service, id_slot, body.filename))


def health_json(service: Service) -> dict[str, Any]:
    """Answers at once, whatever the engine computes; says how often its process had to be started again, and why."""
    health = service.engine.health
    restarts: dict[str, Any] = (
        {"restarts": health.n_restarts, "last_restart": health.reason} if health.n_restarts else {}
    )
    if not health.ready:
        raise unavailable("the engine is being started again", status="restarting", **restarts)
    return {"status": "ok", **restarts}


def native_requests(service: Service, body: NativeBody) -> tuple[list[TextRequest], ReplyOptions]:
    """Runs on a worker thread."""
    engine = service.engine
    check_model(body.model, service.model_names)
    if body.post_sampling_probs:
        raise not_supported("post_sampling_probs is not supported; probabilities come before sampling")
    prompts, n = prompts_of(engine, body.prompt), body.n_cmpl or 1
    if len(prompts) * n > MAX_CHOICES:
        raise ConfigError(f"{len(prompts)} prompts of {n} texts are too many; {MAX_CHOICES} at once are allowed")
    grammar = service.grammars.of(body)
    n_logprobs = body.n_probs or None
    wanted = [text_request(engine, body, prompt, service.defaults) for prompt in prompts]
    wanted = [replace(each, grammar=grammar, n_logprobs=n_logprobs) for each in wanted]
    options = ReplyOptions(
        tokens=bool(body.return_tokens),
        fields=tuple(body.response_fields or ()),
        several=len(prompts) * n > 1 or (isinstance(body.prompt, list) and isinstance(body.prompt[0], list)),
    )
    return [each.numbered(index) for each in wanted for index in range(n)], options


def infill_requests(service: Service, body: InfillBody) -> tuple[list[TextRequest], ReplyOptions]:
    engine = service.engine
    spelling = spelling_for(lambda text: len(engine.tokenize(text, special=False)) == 1)
    if spelling is None:
        raise not_supported("this model has no tokens for filling gaps; use /completion, or a code model")
    if not isinstance(body.prompt, str):
        raise PromptError("the prompt of /infill is a text, the start of the gap")
    files = [File(file.filename, file.text) for file in body.input_extra or ()]
    prompt = infill_prompt(spelling, body.input_prefix, body.input_suffix, body.prompt, files)
    return native_requests(service, body.model_copy(update={"prompt": prompt}))


def piece_json(piece: bytes) -> str | list[int]:
    """Text where it is text, else its bytes."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def props_json(service: Service) -> dict[str, Any]:
    engine, defaults = service.engine, service.defaults
    wanted = TextRequest(
        prompt=[],
        sampling=defaults.sampling,
        speculative=engine.settings.engine.speculative,
        max_tokens=defaults.max_tokens,
        stop=defaults.stop,
        cache_prompt=defaults.cache_prompt,
    )
    return {
        "default_generation_settings": {"n_ctx": engine.n_ctx, "params": settings_json(wanted)},
        "total_slots": engine.n_slots,
        "model_alias": service.model_name,
        "model_path": service.settings.model.path,
        "chat_template": service.template.source,
        "chat_template_caps": {},
        "modalities": {"vision": False, "audio": False},
        "bos_token": spelled(engine.vocab, engine.vocab.bos),
        "eos_token": spelled(engine.vocab, engine.vocab.eos),
        "build_info": BUILD,
        "is_sleeping": engine.health.asleep,
        "speculative": {"types": list(engine.info.drafters), **asdict(wanted.speculative)},
    }


def spelled(vocab: Any, token: int) -> str:
    return str(vocab.render(token, special=True).decode(errors="replace")) if token >= 0 else ""
