"""Reading a request's body. A large one is parsed and checked beside the event loop, one at a time, so that whoever
else asks is answered meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from paceline.server.errors import ApiError

LARGE = 2**16
MAX_COMMAS = 2**19
"""About how many values JSON may hold: Python takes a second for millions of them, and lets nobody else run."""
READ = b"read"
ONE_AT_A_TIME = ThreadPoolExecutor(1, thread_name_prefix="paceline-body")


class BodyRoute(APIRoute):
    """FastAPI parses on the event loop; what it finds parsed already it takes as it is."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        kind: Any = self.body_field.field_info.annotation
        adapter: TypeAdapter[Any] = TypeAdapter(kind)

        async def read_and_handle(request: Request) -> Response:
            data = b"".join([part async for part in request.stream()])
            request._body = data
            if len(data) > LARGE:
                loop = asyncio.get_running_loop()
                request._json = await loop.run_in_executor(ONE_AT_A_TIME, parsed, adapter, data)
                request._body = READ  # the bytes need not be kept for as long as the answer takes
            del data
            return await handle(request)

        return read_and_handle


def parsed(adapter: TypeAdapter[Any], data: bytes) -> Any:
    if data.count(b",") > MAX_COMMAS:
        raise ApiError(400, f"the body is a list of too many things: it has more than {MAX_COMMAS} commas")
    try:
        value = json.loads(data)
    except RecursionError:
        raise ApiError(400, "the body is not JSON, or nested too deeply") from None
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {getattr(error, 'msg', error)}") from None
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None
