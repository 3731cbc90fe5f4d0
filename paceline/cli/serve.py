"""`paceline serve`: load the model behind a bar, listen, say where."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from paceline.cli import build
from paceline.cli.fetching import name_of, with_files
from paceline.cli.flags import Parsed
from paceline.cli.options import RequestOptions
from paceline.cli.progress import loading_bar
from paceline.cli.prompts import read_text
from paceline.cluster.replicas import check_ray, open_replicas
from paceline.config import ModelParams
from paceline.errors import ConfigError
from paceline.server import vertex
from paceline.server.listener import Server, listen_everywhere, url
from paceline.server.params import ServerParams
from paceline.server.service import OpenBackend, Service
from paceline.server.text_request import Defaults, scales_of

log = logging.getLogger("paceline")


def main(parsed: Parsed) -> int:
    params = ServerParams(verbose=bool(parsed.values.get("log.verbose")), **parsed.under("server"))
    params = with_name(vertex.configured(params, os.environ), parsed)
    settings = build.settings(parsed)
    defaults = defaults_of(parsed, params, settings.model)
    service = Service(with_files(settings, parsed), params, defaults, open_backend=replicas_of(params))
    server = Server(service)
    with listen_everywhere(params) as sockets:
        addresses = [url(params, sock) for sock in sockets]
        service.load_in_background(lambda: load(service, server, addresses))
        server.run(sockets=sockets)
    if service.error:
        raise service.error
    return 0


def replicas_of(params: ServerParams) -> OpenBackend | None:
    """How several engines are opened, where several are wanted."""
    if not params.replicas and params.ray_address is None:
        return None
    check_ray()
    return partial(open_replicas, n_replicas=params.replicas or 1, address=params.ray_address, name=params.ray_app)


def load(service: Service, server: Server, addresses: Sequence[str]) -> None:
    """On its own thread, beside the server, which says "loading" meanwhile. A model that fails ends the server."""
    log.info("%s/health answers while %s loads", addresses[0], service.model_name)
    try:
        with loading_bar(service.settings.model.path) as on_progress:
            service.load(on_progress)
        server.take_signals_again()
    except BaseException:
        server.should_exit = True
        raise
    if service.ready:
        engine = service.engine
        places = ", ".join(addresses)
        log.info("ready at %s (%d x %d tokens), Ctrl-C ends it", places, engine.n_slots, engine.n_ctx)


def with_name(params: ServerParams, parsed: Parsed) -> ServerParams:
    """A model of a hub goes by its name there, unless it has another."""
    return params if params.alias else replace(params, alias=name_of(parsed))


def defaults_of(parsed: Parsed, params: ServerParams, model: ModelParams) -> Defaults:
    """What requests get that do not say: the sampling flags, -n, -r, adapters, a grammar."""
    request = build.request(parsed)
    return Defaults(
        sampling=build.sampling(parsed),
        max_tokens=request.max_tokens,
        stop=request.stop,
        adapter=scales_of(model, ()) if params.lora_init_without_apply else None,
        cache_prompt=params.cache_prompt,
        grammar=request.grammar if request.grammar_file is None else read_text(request.grammar_file),
        json_schema=schema_of(request),
    )


def schema_of(request: RequestOptions) -> str | None:
    text = request.json_schema if request.json_schema_file is None else read_text(request.json_schema_file)
    try:
        if text is not None and not isinstance(json.loads(text), dict):
            raise ValueError("a schema is a JSON object")
    except ValueError as error:
        raise ConfigError(f"the JSON schema cannot be read: {error}") from None
    return text
