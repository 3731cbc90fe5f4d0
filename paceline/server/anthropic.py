"""Anthropic's API: `/v1/messages` and what a prompt counts. A body becomes a chat; the work is the chat's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.responses import Response

from paceline.errors import PacelineError, PromptError
from paceline.server.anthropic_reply import WORDING, MessageReply, error_json
from paceline.server.body import BodyRoute
from paceline.server.chat_reply import Rules
from paceline.server.errors import ApiError, Json, api_error, validation_error
from paceline.server.openai import begin_chat, chat_request
from paceline.server.schema import MAX_TOOLS, Body, ChatBody, Count, SamplingBody, Stops
from paceline.server.service import Service
from paceline.server.stream import send
from paceline.server.text_request import TextRequest
from paceline.server.translation import chat_body, no_images

USUAL_MAX = 4096
STAMP = re.compile(r"^(x-anthropic-billing-header:.*?\bcch=)[0-9a-fA-F]{5}(?=;)")
"""What one client puts before its system prompt changes with every request; unchanged it keeps the prefix reusable."""


class PlainBlock(Body):
    """Something to read."""

    type: str
    text: str | None = None
    source: dict[str, Any] | None = None


class Block(PlainBlock):
    """A part of a message, of whatever type."""

    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | Annotated[list[PlainBlock], Field(fail_fast=True)] | None = None


Blocks = Annotated[list[Block], Field(fail_fast=True)]


class Turn(Body):
    role: Literal["user", "assistant", "system"]
    content: str | Blocks = ""


class OfferedTool(Body):
    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ToolChoice(Body):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None


class Thinking(Body):
    type: str
    budget_tokens: Count | None = None


class MessagesBody(SamplingBody):
    """POST /v1/messages. Sampling fields of llama-server's are taken too."""

    messages: Annotated[list[Turn], Field(fail_fast=True)]
    system: str | Blocks | None = None
    stop_sequences: Stops | None = None
    tools: Annotated[list[OfferedTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class AnthropicRoute(BodyRoute):
    """Errors in Anthropic's shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                refusal = validation_error(error)
            except (ApiError, PacelineError) as error:
                refusal = api_error(error)
            return Json(error_json(refusal), refusal.status, dict(refusal.headers))

        return handled


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["Anthropic"], route_class=AnthropicRoute)

    @router.post("/v1/messages")
    async def messages(request: Request, body: MessagesBody) -> Response:
        chat = await begin_chat(service, request, message_request, body)
        return await send(request, MessageReply(chat, body.model or service.model_name), WORDING)

    @router.post("/v1/messages/count_tokens")
    async def count_tokens(body: MessagesBody) -> Response:
        wanted, _ = await service.prepare(message_request, body)
        return Json({"input_tokens": len(wanted.prompt)})

    return router


def message_request(service: Service, body: MessagesBody) -> tuple[TextRequest, Rules]:
    return chat_request(service, as_chat(body))


# -- the same as OpenAI's chat says it


def as_chat(body: MessagesBody) -> ChatBody:
    variables = dict(body.chat_template_kwargs or {})
    if body.thinking and body.thinking.type == "disabled":
        variables.setdefault("enable_thinking", False)
    return chat_body(
        body,
        messages=[*system_messages(body.system), *chat_messages(body.messages)] or [{"role": "user", "content": ""}],
        tools=[tool_json(tool) for tool in body.tools or ()] or None,
        tool_choice=tool_choice(body.tool_choice) if body.tools else None,
        stop=body.stop if body.stop_sequences is None else body.stop_sequences,
        max_tokens=USUAL_MAX if body.max_tokens is None else body.max_tokens,
        chat_template_kwargs=variables or None,
        thinking_budget_tokens=body.thinking.budget_tokens if body.thinking else None,
    )


def system_messages(system: str | Sequence[Block] | None) -> list[dict[str, Any]]:
    if system is None:
        return []
    texts = [system] if isinstance(system, str) else [text_of(block) for block in system]
    return [{"role": "system", "content": "".join(STAMP.sub(r"\g<1>fffff", text) for text in texts)}]


def chat_messages(turns: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    for turn in turns:
        if isinstance(turn.content, str):
            yield {"role": turn.role, "content": turn.content}
        elif turn.role == "assistant":
            yield assistant_message(turn.content)
        else:
            yield from user_messages(turn.role, turn.content)


def assistant_message(blocks: Sequence[Block]) -> dict[str, Any]:
    """Thoughts, text and calls of one turn are one message."""
    message: dict[str, Any] = {"role": "assistant"}
    thoughts = "".join(block.thinking or "" for block in blocks if block.type == "thinking")
    calls = [call_json(block) for block in blocks if block.type == "tool_use"]
    other = [block for block in blocks if block.type not in ("thinking", "redacted_thinking", "tool_use")]
    message["content"] = [text_json(block) for block in other] or ""
    return message | ({"reasoning_content": thoughts} if thoughts else {}) | ({"tool_calls": calls} if calls else {})


def user_messages(role: str, blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """A tool's result is a message of its own; texts between them stay where they are."""
    texts: list[dict[str, Any]] = []
    for block in blocks:
        if block.type != "tool_result":
            texts.append(text_json(block))
            continue
        if texts:
            yield {"role": role, "content": texts}
            texts = []
        yield {"role": "tool", "tool_call_id": block.tool_use_id or "", "content": result_text(block)}
    if texts:
        yield {"role": role, "content": texts}


def result_text(block: Block) -> str:
    if isinstance(block.content, list):
        return "".join(text_of(part) for part in block.content)
    return block.content or ""


def text_json(block: PlainBlock) -> dict[str, Any]:
    return {"type": "text", "text": text_of(block)}


def text_of(block: PlainBlock) -> str:
    if block.type == "text" and block.text is not None:
        return block.text
    if block.type == "document" and (block.source or {}).get("type") == "text":
        return str((block.source or {}).get("data", ""))
    if block.type == "image":
        raise no_images()
    raise PromptError(f"a content block of type {block.type!r}: this server reads text, calls and their results")


def call_json(block: Block) -> dict[str, Any]:
    arguments = json.dumps(block.input or {}, ensure_ascii=False)
    return {"id": block.id, "type": "function", "function": {"name": block.name or "", "arguments": arguments}}


def tool_json(tool: OfferedTool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema or {}}
    return {"type": "function", "function": function}


def tool_choice(choice: ToolChoice | None) -> Any:
    if choice is None:
        return None
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name or ""}}
    return {"auto": "auto", "any": "required", "none": "none"}[choice.type]
