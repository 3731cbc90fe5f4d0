"""OpenAI's Responses API: `/v1/responses` and what a prompt counts. A body becomes a chat; nothing is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from paceline.errors import ConfigError, PromptError
from paceline.server.body import BodyRoute
from paceline.server.chat_reply import Rules
from paceline.server.errors import Json
from paceline.server.openai import begin_chat, chat_request
from paceline.server.responses_reply import ResponseReply
from paceline.server.schema import MAX_TOOLS, Body, ChatBody, Count, SamplingBody
from paceline.server.service import Service
from paceline.server.stream import send
from paceline.server.text_request import TextRequest
from paceline.server.translation import chat_body, no_images

TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")


class ItemPart(Body):
    type: str
    text: str | None = None
    refusal: str | None = None


Parts = Annotated[list[ItemPart], Field(fail_fast=True)]


class Item(Body):
    """Something said, thought, called or answered by a tool, in whatever order it happened."""

    type: str | None = None
    role: Literal["user", "system", "developer", "assistant"] | None = None
    content: str | Parts | None = None
    summary: Parts | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | Parts | None = None


class ResponseTool(Body):
    """Only functions are the client's to run; others are left out."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedChoice(Body):
    type: str
    name: str | None = None


class Effort(Body):
    effort: str | None = None


class TextFormat(Body):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")


class TextOptions(Body):
    format: TextFormat | None = None


class ResponsesBody(SamplingBody):
    """POST /v1/responses. Sampling fields of llama-server's are taken too."""

    input: str | Annotated[list[Item], Field(fail_fast=True)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    tools: Annotated[list[ResponseTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Effort | None = None
    text: TextOptions | None = None
    metadata: dict[str, Any] | None = None
    previous_response_id: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_progress: bool | None = None


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["OpenAI"], route_class=BodyRoute)

    @router.post("/v1/responses")
    @router.post("/responses", include_in_schema=False)
    async def responses(request: Request, body: ResponsesBody) -> Response:
        chat = await begin_chat(service, request, response_request, body)
        reply = ResponseReply(chat, echo(body, service.model_name))
        return await send(request, reply, reply.wording)

    @router.post("/v1/responses/input_tokens")
    @router.post("/responses/input_tokens", include_in_schema=False)
    async def input_tokens(body: ResponsesBody) -> Response:
        wanted, _ = await service.prepare(response_request, body)
        return Json({"object": "response.input_tokens", "input_tokens": len(wanted.prompt)})

    return router


def echo(body: ResponsesBody, model: str) -> dict[str, Any]:
    """What a response repeats of its request."""
    given = body.model_dump(
        include={"instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning", "temperature"}
        | {"text", "tool_choice", "tools", "top_p"},
        by_alias=True,
        exclude_none=True,
    )
    usual: dict[str, Any] = {
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return {"model": body.model or model, **usual, **given}


def response_request(service: Service, body: ResponsesBody) -> tuple[TextRequest, Rules]:
    return chat_request(service, as_chat(body))


# -- the same as OpenAI's chat says it


def as_chat(body: ResponsesBody) -> ChatBody:
    if body.previous_response_id:
        raise ConfigError("previous_response_id: nothing is stored here; send the whole conversation as input")
    tools = [tool_json(tool) for tool in body.tools or () if tool.type == "function"]
    return chat_body(
        body,
        messages=messages_of(body),
        tools=tools or None,
        tool_choice=tool_choice(body.tool_choice) if tools else None,
        max_tokens=body.max_tokens if body.max_output_tokens is None else body.max_output_tokens,
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        response_format=format_json(body.text.format) if body.text and body.text.format else None,
        parallel_tool_calls=body.parallel_tool_calls,
        chat_template_kwargs=body.chat_template_kwargs,
        return_progress=body.return_progress,
    )


def messages_of(body: ResponsesBody) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if body.instructions is not None:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return [*messages, {"role": "user", "content": body.input}]
    for item in body.input:
        add_item(messages, item)
    if not messages:
        raise PromptError("input: the list is empty; give a text or items")
    return messages


def add_item(messages: list[dict[str, Any]], item: Item) -> None:
    if item.type == "function_call":
        call = {"name": item.name or "", "arguments": item.arguments or "{}"}
        calls = assistant(messages).setdefault("tool_calls", [])
        calls.append({"id": item.call_id, "type": "function", "function": call})
    elif item.type == "function_call_output":
        messages.append({"role": "tool", "tool_call_id": item.call_id or "", "content": text_of(item.output)})
    elif item.type == "reasoning":
        if thoughts := text_of(item.content or item.summary):
            assistant(messages)["reasoning_content"] = thoughts
    elif item.role == "assistant":
        message = assistant(messages)
        message["content"] += text_of(item.content)
    elif item.role and item.type in (None, "message"):
        messages.append({"role": item.role, "content": text_parts(item.content)})
    else:
        raise PromptError(f"an input item of type {item.type!r}: there are messages, calls, their outputs, reasoning")


def assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Thoughts, text and calls that follow one another are one message."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def text_of(content: str | Sequence[ItemPart] | None) -> str:
    parts = text_parts(content)
    return parts if isinstance(parts, str) else "".join(part["text"] for part in parts)


def text_parts(content: str | Sequence[ItemPart] | None) -> str | list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return content or ""
    return [{"type": "text", "text": part_text(part)} for part in content]


def part_text(part: ItemPart) -> str:
    if part.type in TEXTS and part.text is not None:
        return part.text
    if part.type == "refusal":
        return part.refusal or ""
    if part.type == "input_image":
        raise no_images()
    raise PromptError(f"a content part of type {part.type!r}: this server reads text only")


def tool_json(tool: ResponseTool) -> dict[str, Any]:
    return {"type": "function", "function": tool.model_dump(exclude_none=True, exclude={"type"})}


def tool_choice(choice: str | NamedChoice | None) -> Any:
    if isinstance(choice, NamedChoice):
        return {"type": "function", "function": {"name": choice.name or ""}} if choice.type == "function" else "auto"
    return choice


def format_json(form: TextFormat) -> dict[str, Any]:
    if form.type != "json_schema":
        return {"type": form.type}
    return {"type": "json_schema", "json_schema": {"name": form.name or "answer", "schema": form.schema_ or {}}}
