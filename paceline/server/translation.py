"""What other APIs' bodies have in common on their way to a chat: sampling fields pass, the rest is worded anew."""

from __future__ import annotations

from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from paceline.server.errors import ApiError
from paceline.server.schema import ChatBody, SamplingBody

SHARED = set(SamplingBody.model_fields)


def chat_body(body: SamplingBody, **fields: Any) -> ChatBody:
    """The body's sampling fields, and these."""
    shared = body.model_dump(include=SHARED, exclude_none=True)
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return ChatBody.model_validate(shared | given)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None


def no_images() -> ApiError:
    """llama-server's status for it, which no client takes for a success."""
    return ApiError(500, "image input is not supported: this server reads text only", "server_error")
