"""The application: routes, middleware, static files, put together around one service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from paceline import __version__
from paceline.server import anthropic, embeddings, errors, native, openai, rerank, responses, vertex
from paceline.server.cors import ANY, LOCAL, Cors, Origins
from paceline.server.middleware import ApiKey, BodyLimit, Heads, Spelling
from paceline.server.origin import KnownNames, only_this_machine
from paceline.server.page import PageFiles
from paceline.server.params import ServerParams
from paceline.server.service import Service

WEB = Path(__file__).parent / "web"


def create_app(service: Service) -> FastAPI:
    """Ready to be served. The service is closed when the application ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.cancel_all()
        await asyncio.to_thread(service.close)

    params = service.params
    app = FastAPI(title="paceline", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    errors.install(app)
    routers = [api.routes(service) for api in (native, openai, responses, anthropic, embeddings, rerank)]
    if params.predict_route:
        routers.append(vertex.routes(service, app, routers))
    for router in routers:
        app.include_router(router, prefix=params.api_prefix)
    folder = static_folder(service)
    public = Public(params.api_prefix, folder, params.health_route)
    if folder:
        app.router.routes.append(Files(params.api_prefix, folder, public))
    app.add_middleware(BodyLimit, n_max=params.max_body)
    keys = params.keys()
    app.add_middleware(ApiKey, keys=keys, is_public=public)
    guarded = not keys and only_this_machine(params.hosts)
    origins = Origins(params.cors_origins or (LOCAL if guarded else ANY), frozenset(params.allow_hosts))
    if guarded:
        app.add_middleware(KnownNames, names=(*params.hosts, *params.allow_hosts), may_ask=origins.allow)
    add_cors(app, origins, params)
    app.add_middleware(Heads)
    app.add_middleware(Spelling)
    return app


def add_cors(app: FastAPI, origins: Origins, params: ServerParams) -> None:
    app.add_middleware(
        Cors,
        origins=origins,
        methods=params.cors_methods,
        headers=params.cors_headers,
        credentials=params.cors_credentials,
    )


def static_folder(service: Service) -> Path | None:
    if service.params.static_path is not None:
        return Path(service.params.static_path)
    return WEB if service.params.webui and WEB.is_dir() else None


class Files(Mount):
    """The files of a folder, and no opinion on any other address."""

    def __init__(self, prefix: str, folder: Path, public: Public) -> None:
        files = PageFiles if folder == WEB else StaticFiles
        super().__init__(prefix or "/", files(directory=folder, html=True), name="web")
        self._public = public

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or not self._public.is_file(scope["path"]):
            return Match.NONE, {}
        return super().matches(scope)


class Public:
    """What needs no key: health, and files that exist in the static folder."""

    def __init__(self, prefix: str, folder: Path | None, health: str | None = None) -> None:
        self._health = {f"{prefix}{path}" for path in ("/health", "/v1/health", health) if path}
        self._prefix = prefix
        self._folder = folder.resolve() if folder else None

    def __call__(self, path: str) -> bool:
        return path in self._health or self.is_file(path)

    def is_file(self, path: str) -> bool:
        if self._folder is None or not path.startswith(f"{self._prefix}/"):
            return False
        name = path.removeprefix(f"{self._prefix}/") or "index.html"
        if "\0" in name:
            return False
        try:
            file = (self._folder / name).resolve()
            return file.is_relative_to(self._folder) and file.is_file()
        except (OSError, RuntimeError, ValueError):  # a name too long, a loop of links, half of a surrogate pair
            return False
