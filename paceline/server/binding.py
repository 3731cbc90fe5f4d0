"""What an answer is bound by: the format of tool calls, a JSON schema, how long it may think. Knows request fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from paceline.engine.request import Bounds, Grammar
from paceline.errors import ConfigError
from paceline.server.dialogue import Conversation, source_for
from paceline.server.schema import ChatBody, NamedTool
from paceline.server.service import Service
from paceline.text.call_grammar import call_grammar, form_of, harmony_grammar
from paceline.text.formats import BARE, Style

Tools = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Binding:
    """A grammar, and from where on it counts."""

    grammar: Grammar | None = None
    bounds: Bounds | None = None


def binding_of(service: Service, body: ChatBody, conversation: Conversation, style: Style, tools: Tools) -> Binding:
    """Of all that could bind the answer the one thing the request asks for, and the budget for thoughts."""
    check_formats(body, conversation)
    try:
        return bound(service, body, conversation, style, tools)
    except RecursionError:
        raise ConfigError("a tool's parameters are nested too deeply") from None


def bound(service: Service, body: ChatBody, conversation: Conversation, style: Style, tools: Tools) -> Binding:
    bounds = bounds_of(service, body, style, conversation)
    if body.grammar:
        return Binding(service.grammars.of(body))
    if conversation.forced:
        return Binding(forced_calls(service, body, style, conversation.prompt, tools), used(bounds))
    grammar = service.grammars.of_format(body.response_format) or service.grammars.of(body)
    if grammar:
        after_header = msgspec.structs.replace(bounds, after=("<|message|>",))
        return Binding(grammar, after_header if style.harmony else used(bounds))
    form = form_of(style, source_for(service.template, tools))
    if tools and form.openers[0] and not style.harmony:
        marks, opener, parallel = service.marks(style), form.openers[0], body.parallel_tool_calls is not False
        source = call_grammar(form, tools, marks.spell, parallel=parallel, opened=opener)
        return Binding(Grammar.lark(source), msgspec.structs.replace(bounds, after=(opener,), lenient=True))
    return Binding(None, bounds if bounds.n_thoughts >= 0 else None)


def check_formats(body: ChatBody, conversation: Conversation) -> None:
    formats: list[object] = [body.grammar, body.json_schema, conversation.forced]
    if body.response_format and body.response_format.type != "text":
        formats.append(body.response_format)
    if sum(form is not None for form in formats) > 1:
        raise ConfigError("give one of response_format, grammar, json_schema and a forced tool_choice")


def bounds_of(service: Service, body: ChatBody, style: Style, conversation: Conversation) -> Bounds:
    """Where the answer thinks, and for how long it may."""
    params = service.params
    given = (body.reasoning_budget_tokens, body.thinking_budget_tokens)
    budget = next((n for n in given if n is not None and n >= 0), params.reasoning_budget)
    message = body.reasoning_budget_message
    message = params.reasoning_budget_message if message is None else message
    closing = service.marks(style).tokens(message + style.think[1] + style.resumed) if budget >= 0 else ()
    start, end = style.think
    opened = conversation.thoughts_opened or style.opens_thoughts(conversation.prompt)
    return Bounds(start, end, opened, budget, closing)


def used(bounds: Bounds) -> Bounds | None:
    """None where nothing is to be watched."""
    return bounds if bounds.opened or bounds.n_thoughts >= 0 else None


def forced_calls(service: Service, body: ChatBody, style: Style, prompt: str, tools: Tools) -> Grammar:
    """A call to any of the tools, or to the one that is named, in the format the model was trained on."""
    choice, spell = body.tool_choice, service.marks(style).spell
    if isinstance(choice, NamedTool):
        tools = [tool for tool in tools if tool["function"]["name"] == choice.function.name]
    if style.harmony and not style.calls:
        return Grammar.lark(harmony_grammar(tools, spell))
    form = form_of(style, source_for(service.template, tools))
    opened = style.prompted if style.prompted and prompt.endswith(style.prompted) else ""
    parallel = body.parallel_tool_calls is True and form is not BARE
    return Grammar.lark(call_grammar(form, tools, spell, parallel=parallel, opened=opened))
