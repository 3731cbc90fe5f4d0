"""What other APIs' bodies have in common on their way to a chat: sampling fields pass, the rest is worded anew."""

from __future__ import annotations

from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from paceline.server.errors import ApiError
from paceline.server.schema import ChatBody, SamplingBody


def chat_body(body: SamplingBody, **fields: Any) -> ChatBody:
    """The body's sampling fields, and these."""
    shared = {name: getattr(body, name) for name in SamplingBody.model_fields}
    try:
        return ChatBody.model_validate({name: v for name, v in (shared | fields).items() if v is not None})
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None


def no_images() -> ApiError:
    """llama-server's status for it, which no client takes for a success."""
    return ApiError(500, "image input is not supported: this server reads text only", "server_error")
