"""Messages to a prompt, and the rules an answer follows: tools, formats, thoughts. Knows OpenAI's message shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.errors import ConfigError, PromptError
from paceline.server.schema import ChatBody, ContentPart, Message, MessageToolCall, NamedTool, TemplateBody
from paceline.server.text_request import utf8
from paceline.text.chat import ChatTemplate
from paceline.text.reasoning import opens_thoughts
from paceline.text.tools import call_schema, instructions, knows_tools

KEPT_IN_CONTENT = ("none", "deepseek-legacy")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A rendered chat. `forced` is the schema of a call the answer must be; `names` the tools on offer."""

    prompt: str
    names: tuple[str, ...] = ()
    forced: dict[str, Any] | None = None
    thoughts_opened: bool = False


def converse(template: ChatTemplate, body: TemplateBody, defaults: Mapping[str, Any]) -> Conversation:
    """`defaults` are the template's variables that the server's command line sets."""
    offered = offered_tools(body)
    messages = [template_message(message) for message in body.messages]
    if offered and not knows_tools(template.source):
        messages = with_system(messages, instructions(offered))
    prompt = template.render(messages, tools=offered or None, **{**defaults, **variables(body)})
    names = tuple(tool["function"]["name"] for tool in offered)
    return Conversation(utf8(prompt), names, forced_call(body, offered), opens_thoughts(prompt))


def variables(body: TemplateBody) -> dict[str, Any]:
    """What templates read beside the messages."""
    given = dict(body.chat_template_kwargs or {})
    for name in ("messages", "tools"):
        if name in given:
            raise ConfigError(f"chat_template_kwargs cannot set {name!r}; it is a field of its own")
    if body.reasoning_effort is not None:
        given.setdefault("reasoning_effort", body.reasoning_effort)
        given.setdefault("enable_thinking", body.reasoning_effort != "none")
    if body.add_generation_prompt is not None:
        given["add_generation_prompt"] = body.add_generation_prompt
    return given


def keeps_thoughts(body: ChatBody, default: str) -> bool:
    """Whether thoughts stay in the content, tags and all."""
    form = body.reasoning_format or default
    if form not in ("auto", "deepseek", *KEPT_IN_CONTENT):
        raise ConfigError(f"unknown reasoning_format {form!r}; there are auto, deepseek, {', '.join(KEPT_IN_CONTENT)}")
    return form in KEPT_IN_CONTENT


# -- tools


def offered_tools(body: TemplateBody) -> list[dict[str, Any]]:
    if body.tool_choice == "none":
        return []
    return [tool.model_dump(exclude_none=True) for tool in body.tools or ()]


def forced_call(body: TemplateBody, offered: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """`required` means any of them, a named tool that one."""
    if body.tool_choice in (None, "auto", "none"):
        return None
    if not offered:
        raise ConfigError("tool_choice asks for a call, but there are no tools")
    if isinstance(body.tool_choice, NamedTool):
        wanted = body.tool_choice.function.name
        offered = [tool for tool in offered if tool["function"]["name"] == wanted]
        if not offered:
            raise ConfigError(f"tool_choice names {wanted!r}, which is not among the tools")
    return call_schema(offered)


# -- messages


def template_message(message: Message) -> dict[str, Any]:
    """As templates expect it: content is text, arguments are objects."""
    out: dict[str, Any] = {"role": message.role, "content": content_text(message.content)}
    for name in ("name", "reasoning_content", "tool_call_id"):
        if (value := getattr(message, name)) is not None:
            out[name] = value
    if message.tool_calls:
        out["tool_calls"] = [template_call(call) for call in message.tool_calls]
    return out


def content_text(content: str | list[ContentPart] | None) -> str:
    if not isinstance(content, list):
        return content or ""
    for part in content:
        if part.text is None or part.type not in ("text", "input_text", "output_text"):
            raise PromptError(f"a content part of type {part.type!r}: this server reads text only")
    return "".join(part.text or "" for part in content)


def template_call(call: MessageToolCall) -> dict[str, Any]:
    arguments: Any = call.function.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = call.function.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def with_system(messages: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """The text joins the system message, or becomes it."""
    if messages and messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
