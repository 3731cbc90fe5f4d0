"""Whatever goes wrong, as OpenAI's clients and llama-server's expect it: one JSON object that says what to change."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from paceline.errors import ConfigError, ContextFull, EngineClosed, PacelineError, QueueFull, RequestError

log = logging.getLogger("paceline")

INVALID = "invalid_request_error"
UNAVAILABLE = "unavailable_error"
ENCODER = msgspec.json.Encoder()


class Json(Response):
    """JSON that can always be sent: a lone surrogate becomes a question mark, NaN becomes null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


def encode(content: Any) -> bytes:
    try:
        return ENCODER.encode(content)
    except ValueError:  # half of a surrogate pair, or a number too large
        return json.dumps(finite(content), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def finite(value: Any) -> Any:
    """The same without numbers that JSON has no words for."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass(eq=False)
class ApiError(Exception):
    """An answer that is an error. `extra` joins the error object, `headers` the reply."""

    status: int
    message: str
    kind: str = INVALID
    param: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        error = {"code": self.status, "message": self.message, "type": self.kind, "param": self.param, **self.extra}
        return {"error": error}

    def reply(self) -> Json:
        return Json(self.body(), self.status, dict(self.headers))


def not_supported(message: str) -> ApiError:
    return ApiError(501, message, "not_supported_error")


def unavailable(message: str, seconds: int = 1, **extra: Any) -> ApiError:
    return ApiError(503, message, UNAVAILABLE, extra=extra, headers={"Retry-After": str(seconds)})


def api_error(error: Exception) -> ApiError:
    """What to tell the client about an error of ours."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFull):
        return unavailable(str(error))
    if isinstance(error, EngineClosed):
        return unavailable("the server is shutting down")
    if isinstance(error, ContextFull):
        sizes = {"n_prompt_tokens": error.n_prompt, "n_ctx": error.n_ctx} if error.n_prompt and error.n_ctx else {}
        return ApiError(400, str(error), "exceed_context_size_error", extra=sizes)
    if isinstance(error, ConfigError | RequestError):
        return ApiError(400, str(error))
    if isinstance(error, PacelineError):
        return unavailable(f"the engine failed on this request: {error}")
    log.error("an unexpected error", exc_info=error)
    return ApiError(500, "an unexpected error; the server's log has the details", "server_error")


def install(app: FastAPI) -> None:
    """Every error of every route ends here."""

    async def on_error(_: Request, error: Exception) -> Response:
        return api_error(error).reply()

    async def on_validation(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return validation_error(error).reply()

    async def on_http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return http_error(error).reply()

    app.add_exception_handler(ApiError, on_error)
    app.add_exception_handler(PacelineError, on_error)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_error)


def validation_error(error: RequestValidationError) -> ApiError:
    first = error.errors()[0]
    steps = [step for step in first["loc"] if step not in ("body", "query", "path")]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    # Unions name the branch they tried in brackets or as a type; the field alone helps the reader.
    where = ".".join(str(step) for step in steps if not str(step).endswith("]") and step not in TYPE_NAMES)
    return ApiError(400, f"{where or 'the body'}: {plain(first['msg'])}", param=where or None)


TYPE_NAMES = ("str", "int", "float", "bool", "dict")


def plain(message: str) -> str:
    return message[0].lower() + message[1:]


def http_error(error: HTTPException) -> ApiError:
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return ApiError(404, "there is nothing at this address", "not_found_error", headers=headers)
    if error.status_code == 405:
        return ApiError(405, "this address takes another method", headers=headers)
    if error.status_code == 400:
        return ApiError(400, "the body is not JSON, or nested too deeply")
    return ApiError(error.status_code, str(error.detail), headers=headers)
