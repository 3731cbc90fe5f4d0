"""Messages to a prompt, and the rules an answer follows: tools, formats, thoughts. Knows OpenAI's message shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.errors import ConfigError, PromptError
from paceline.server.schema import ChatBody, Message, NamedTool, TemplateBody
from paceline.server.text_request import utf8
from paceline.text.builtin import BuiltinTemplate
from paceline.text.chat import ChatTemplate
from paceline.text.messages import joined_parts
from paceline.text.reasoning import opens_thoughts
from paceline.text.tools import call_schema, instructions

KEPT_IN_CONTENT = ("none", "deepseek-legacy")
TEXTS = ("text", "input_text", "output_text")

Template = ChatTemplate | BuiltinTemplate


@dataclass(frozen=True, slots=True)
class Conversation:
    """A rendered chat. `forced` is the schema of a call the answer must be; `names` the tools on offer; `begun` the
    end of the prompt that is the answer's beginning, before which `thoughts_opened` are."""

    prompt: str
    names: tuple[str, ...] = ()
    forced: dict[str, Any] | None = None
    thoughts_opened: bool = False
    begun: str = ""


@dataclass(frozen=True, slots=True)
class Manner:
    """What the server's command line says of chats: variables of the template; whether an assistant's message at the
    end is continued; whether a model whose template has no place for tools is told of them all the same."""

    variables: Mapping[str, Any] = field(default_factory=dict)
    prefill: bool = True
    describe_tools: bool = False


def converse(template: Template, body: TemplateBody, manner: Manner) -> Conversation:
    offered = offered_tools(body)
    begun = continued(body, prefill=manner.prefill)
    messages = [template_message(message) for message in body.messages]
    if offered and manner.describe_tools and not template.capabilities.supports_tools:
        messages = with_system(messages, instructions(offered))
    given = variables(body, manner.variables)
    opening = given.pop("add_generation_prompt", False) or body.add_generation_prompt is not False
    prompt, said = template.compose(
        messages,
        tools=[tool.model_dump(exclude_none=True) for tool in body.tools or ()],
        add_generation_prompt=bool(opening),
        continue_final_message=begun,
        **given,
    )
    names = tuple(tool["function"]["name"] for tool in offered)
    return Conversation(utf8(prompt + said), names, forced_call(body, offered), opens_thoughts(prompt), said)


def variables(body: TemplateBody, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What templates read beside the messages."""
    given = {**defaults, **(body.chat_template_kwargs or {})}
    for name in ("messages", "tools", "continue_final_message"):
        if name in given:
            raise ConfigError(f"chat_template_kwargs cannot set {name!r}; it is a field of its own")
    if isinstance(given.get("enable_thinking"), str):
        raise ConfigError("enable_thinking in chat_template_kwargs is true or false, not a text")
    if body.reasoning_effort == "none":
        given.pop("reasoning_effort", None)
        given.setdefault("enable_thinking", False)
    elif body.reasoning_effort:
        given["reasoning_effort"] = body.reasoning_effort
    return given


def source_for(template: Template, tools: Sequence[Any]) -> str:
    """The text of the template that a chat with these tools is rendered by: it tells the family's formats."""
    return (template.tool_source if tools else None) or template.source


def echoes(body: ChatBody) -> bool:
    """Whether the answer says again what it continues; a stream that was asked to continue does not."""
    return bool(body.echo or not (body.stream and body.continue_final_message))


def continued(body: TemplateBody, *, prefill: bool) -> str | None:
    """Which part of the last message the answer goes on with, if any."""
    last, asked = body.messages[-1], body.continue_final_message
    if asked not in (True, "content", "reasoning_content"):
        if not prefill or last.role != "assistant":
            return None
        if [message.role for message in body.messages[-2:]] == ["assistant", "assistant"]:
            raise ConfigError("two assistant messages at the end: only one can be continued")
    elif body.add_generation_prompt is not False:
        raise ConfigError("continue_final_message goes with add_generation_prompt: false")
    if last.role == "assistant" and last.tool_calls:
        raise ConfigError("an assistant message with tool calls cannot be continued")
    if isinstance(asked, str) and asked in ("content", "reasoning_content"):
        return asked
    return "reasoning_content" if last.reasoning_content and not last.content else "content"


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
    """As OpenAI has it; parts must be texts."""
    if isinstance(message.content, list):
        for part in message.content:
            if part.text is None or part.type not in TEXTS:
                raise PromptError(f"a content part of type {part.type!r}: this server reads text only")
    out = message.model_dump(exclude_none=True)
    if isinstance(message.content, list):
        out["content"] = [{"type": "text", "text": part.text} for part in message.content]
    return out


def with_system(messages: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """The text joins the system message, or becomes it."""
    if messages and messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{joined_parts(messages[0].get('content'))}\n\n{text}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
