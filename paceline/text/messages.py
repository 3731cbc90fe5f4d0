"""Messages as a template wants them. Knows OpenAI's shape and what templates cannot take; nothing of rendering.

The rules are llama-server's, so that a model reads the same prompt here as there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.errors import PromptError
from paceline.text.capabilities import Capabilities

Message = dict[str, Any]


def shaped(message: Mapping[str, Any]) -> Message:
    """The fields that templates know, in one order; arguments are a text, and content is never missing."""
    out: Message = {"role": message.get("role"), "content": message.get("content") or ""}
    for name in ("reasoning_content", "name", "tool_call_id"):
        if message.get(name):
            out[name] = message[name]
    if message.get("tool_calls"):
        out["tool_calls"] = [shaped_call(call) for call in message["tool_calls"]]
    return out


def shaped_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments", "{}")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    out: dict[str, Any] = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    if call.get("id"):
        out["id"] = call["id"]
    return out


def shaped_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    fields = {
        "name": function["name"],
        "description": function.get("description") or "",
        "parameters": function.get("parameters") or {},
    }
    return {"type": "function", "function": fields}


def joined_parts(content: Any, between: str = "\n") -> str:
    """The text of a message's content."""
    if isinstance(content, str):
        return content
    text = ""
    for part in content or ():
        text += (between if text else "") + part["text"]
    return text


def fitted(messages: Sequence[Message], able: Capabilities, *, developer: bool) -> list[Message]:
    """What the template can take. `developer` says that it knows that role."""
    out = [dict(message) for message in messages]
    for message in out:
        if message["role"] == "developer" and not developer:
            message["role"] = "system"
        message["content"] = fitted_content(message["content"], able)
        if able.supports_object_arguments and message.get("tool_calls"):
            message["tool_calls"] = [with_object(call) for call in message["tool_calls"]]
    return out if able.supports_system_role else without_system(out)


def fitted_content(content: Any, able: Capabilities) -> Any:
    if isinstance(content, str):
        only_parts = able.supports_typed_content and not able.supports_string_content
        return [{"type": "text", "text": content}] if only_parts else content
    only_text = able.supports_string_content and not able.supports_typed_content
    return joined_parts(content) if only_text else content


def with_object(call: dict[str, Any]) -> dict[str, Any]:
    """Arguments as an object."""
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError) as error:
        raise PromptError(f"the arguments of a call to {function['name']!r} are not JSON: {error}") from None
    return {**call, "function": {**function, "arguments": arguments}}


def without_system(messages: list[Message]) -> list[Message]:
    """A system message at the start joins the message after it."""
    if not messages or messages[0]["role"] != "system":
        return messages
    system, *rest = messages
    if not rest:
        return []
    text = f"{joined_parts(system['content'])}\n{joined_parts(rest[0]['content'])}"
    return [{**rest[0], "content": text}, *rest[1:]]


def trimmed(message: Message) -> Message:
    """Without white space around its texts."""
    out = dict(message)
    for name in ("content", "reasoning_content"):
        if isinstance(out.get(name), str):
            out[name] = out[name].strip()
    if isinstance(out["content"], list):
        out["content"] = [{**part, "text": part["text"].strip()} for part in out["content"]]
    return out
