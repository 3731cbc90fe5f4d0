"""llama-server's own API: health, properties, slots, completion, infill, tokens, metrics. Its names, its shapes."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from paceline.errors import ConfigError, PromptError
from paceline.process.base import ReplicaHealth
from paceline.server import dialogue, slots
from paceline.server.body import BodyRoute
from paceline.server.errors import Json, not_supported, unavailable
from paceline.server.middleware import owner_of
from paceline.server.native_reply import NativeReply, ReplyOptions, settings_json
from paceline.server.reply import BUILD
from paceline.server.schema import (
    MAX_CHOICES,
    Adapters,
    DetokenizeBody,
    InfillBody,
    MixedText,
    NativeBody,
    PropsBody,
    SlotFileBody,
    TemplateBody,
    TokenizeBody,
)
from paceline.server.service import Service
from paceline.server.stream import send
from paceline.server.text_request import (
    TextRequest,
    max_tokens_of,
    mixed_tokens,
    prompts_of,
    sampling_of,
    scales_of,
    stops_of,
    text_request,
    utf8,
)
from paceline.text.infill import File, Gap, Room, files_prompt, infill_prompt
from paceline.text.vocabulary import Vocabulary

SlotId = Annotated[int, Path(ge=0, le=2**31 - 1)]
CHARS_PER_TOKEN = 16
"""A text around a gap is cut to so many before its tokens are counted."""
STARTED = int(time.time())


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
    async def set_props(body: PropsBody | None = None) -> Response:
        if not service.params.props:
            raise not_supported("properties cannot be changed; start the server with --props")
        if body:
            await service.prepare(change_defaults, body)
        return Json({"success": True})

    @router.get("/metrics")
    async def metrics() -> Response:
        if not service.params.metrics:
            raise not_supported("this server keeps no metrics; start it with --metrics")
        text = service.metrics.text(await service.status(), service.engine.health)
        started = {"Process-Start-Time-Unix": str(STARTED)}
        return Response(text, media_type="text/plain; version=0.0.4", headers=started)

    @router.get("/paceline/stats", tags=["paceline"])
    async def stats() -> Response:
        return Json(slots.stats_json(service, await service.status()))

    @router.get("/lora-adapters")
    async def adapters() -> Response:
        return Json(service.adapters_json())

    @router.post("/lora-adapters")
    async def set_adapters(body: Adapters) -> Response:
        """For requests that do not say; those at work go on as they are."""
        service.defaults = replace(service.defaults, adapter=scales_of(service.settings.model, body))
        return Json({"success": True})

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
        tokens = mixed_tokens(engine, valid(body.content), special=body.add_special, parse_special=body.parse_special)
        if not body.with_pieces:
            return Json({"tokens": tokens})
        return Json({"tokens": [{"id": t, "piece": piece_json(piece)} for t, piece in rendered(engine.vocab, tokens)]})

    @router.post("/detokenize")
    def detokenize(body: DetokenizeBody) -> Response:
        data = b"".join(piece for _, piece in rendered(service.engine.vocab, body.tokens))
        return Json({"content": data.decode(errors="replace")})

    @router.post("/apply-template")
    def apply_template(body: TemplateBody) -> Response:
        return Json({"prompt": dialogue.converse(service.template, body, service.manner).prompt})


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
    if health.replicas:
        restarts["replicas"] = [replica_json(replica) for replica in health.replicas]
    if not health.ready:
        raise unavailable("the engine is being started again", status="restarting", **restarts)
    return {"status": "ok", **restarts}


def replica_json(replica: ReplicaHealth) -> dict[str, Any]:
    return {
        "replica": replica.number,
        "host": replica.host,
        "status": "ok" if replica.ready else "restarting",
        "restarts": replica.n_restarts,
        "requests": replica.n_running,
    }


def native_requests(service: Service, body: NativeBody) -> tuple[list[TextRequest], ReplyOptions]:
    """Runs on a worker thread."""
    engine = service.engine
    service.check_model(body.model)
    prompts, n = prompts_of(engine, body.prompt), body.n_cmpl or body.n or 1
    if len(prompts) * n > MAX_CHOICES:
        raise ConfigError(f"{len(prompts)} prompts of {n} texts are too many; {MAX_CHOICES} at once are allowed")
    grammar = service.grammars.of(body)
    n_logprobs = int(body.n_probs if body.n_probs is not None else body.logprobs or 0) or None
    sampled = bool(body.post_sampling_probs)
    wanted = [text_request(engine, body, prompt, service.defaults) for prompt in prompts]
    wanted = [replace(each, grammar=grammar, n_logprobs=n_logprobs, sampled_probs=sampled) for each in wanted]
    options = ReplyOptions(
        tokens=bool(body.return_tokens),
        fields=tuple(body.response_fields or ()),
        several=len(prompts) * n > 1 or (isinstance(body.prompt, list) and isinstance(body.prompt[0], list)),
    )
    return [each.numbered(index) for each in wanted for index in range(n)], options


def infill_requests(service: Service, body: InfillBody) -> tuple[list[TextRequest], ReplyOptions]:
    if not service.engine.info.fim.complete:
        raise not_supported("this model has no tokens for filling gaps; use /completion, or a code model")
    if not isinstance(body.prompt, str):
        raise PromptError("the prompt of /infill is a text, the start of the gap")
    prompt: list[Any] = gap_prompt(service, body, body.prompt)
    return native_requests(service, body.model_copy(update={"prompt": prompt}))


def gap_prompt(service: Service, body: InfillBody, start: str) -> list[int]:
    """The tokens around the gap and of other files, as far as there is room."""
    engine, vocab, fim = service.engine, service.engine.vocab, service.engine.info.fim
    room = Room.of(engine.n_ctx, engine.settings.context.n_batch, service.defaults.max_tokens)
    n_most = CHARS_PER_TOKEN * engine.n_ctx

    def tokenize(text: MixedText) -> list[int]:
        return mixed_tokens(engine, valid(text), special=False, parse_special=False)

    files = [File(file.filename[-n_most:], file.text[-n_most:]) for file in body.input_extra or ()]
    prefix, suffix = tokenize(body.input_prefix[-n_most:]), tokenize(body.input_suffix[:n_most])
    gap = Gap(prefix, suffix, engine.tokenize(utf8(start), special=False))
    others = files_prompt(fim, files, tokenize, room.files)
    bos = vocab.bos if vocab.add_bos else -1
    return infill_prompt(fim, gap, others, room, bos=bos, suffix_first=service.params.spm_infill)


def change_defaults(service: Service, body: PropsBody) -> None:
    """POST /props: what a request gets from now on that does not say otherwise."""
    old = service.defaults
    service.defaults = replace(
        old,
        sampling=sampling_of(service.engine, body, old.sampling),
        max_tokens=max_tokens_of(body, old.max_tokens),
        stop=stops_of(body, old.stop),
        cache_prompt=old.cache_prompt if body.cache_prompt is None else body.cache_prompt,
    )


def valid(given: MixedText) -> MixedText:
    return utf8(given) if isinstance(given, str) else [utf8(part) if isinstance(part, str) else part for part in given]


def rendered(vocab: Vocabulary, tokens: list[int]) -> list[tuple[int, bytes]]:
    if not all(0 <= token < vocab.n_tokens for token in tokens):
        raise PromptError(f"token ids go from 0 to {vocab.n_tokens - 1}")
    return [(token, vocab.render(token, special=True)) for token in tokens]


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
        "model_ftype": " ".join(engine.info.description.split()[2:]),
        "model_path": service.settings.model.path,
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": service.params.slots,
        "endpoint_props": service.params.props,
        "endpoint_metrics": service.params.metrics,
        "ui": service.params.webui,
        "chat_template": service.template.source,
        **({"chat_template_tool_use": service.template.tool_source} if service.template.tool_source else {}),
        "chat_template_caps": asdict(service.template.capabilities),
        "bos_token": spelled(engine.vocab, engine.vocab.bos),
        "eos_token": spelled(engine.vocab, engine.vocab.eos),
        "build_info": BUILD,
        "is_sleeping": engine.health.asleep,
        "cors_proxy_enabled": False,
        "ui_settings": service.ui_settings,
        "speculative": {**asdict(wanted.speculative), "types": list(engine.info.drafters)},
    }


def spelled(vocab: Any, token: int) -> str:
    return str(vocab.render(token, special=True).decode(errors="replace")) if token >= 0 else ""
