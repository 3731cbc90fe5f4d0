"""Chat templates that want their messages in a way of their own, told by words in them. As llama-server has them.

Each row: what its templates contain, what they do not, how an assistant's turn that is continued begins, and what is
done to the messages before. `turn` is what stands before the thoughts, then what stands between them and the content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from paceline.text.messages import Message, joined_parts

Change = Callable[[list[Message]], list[Message]]


def unchanged(messages: list[Message]) -> list[Message]:
    return messages


def thinking_field(messages: list[Message]) -> list[Message]:
    return [{**m, "thinking": m["reasoning_content"]} if "reasoning_content" in m else m for m in messages]


def thinking_or_content(messages: list[Message]) -> list[Message]:
    """gpt-oss: an answer that thinks and calls a tool says nothing."""
    silent = [m for m in messages if "reasoning_content" in m and m.get("tool_calls")]
    out = thinking_field(messages)
    for at, message in enumerate(messages):
        if message in silent:
            del out[at]["content"]
    return out


def thinking_parts(messages: list[Message]) -> list[Message]:
    """Ministral: thoughts are parts of the content."""
    return [parted(m) if m["role"] in ("system", "assistant") else m for m in messages]


def parted(message: Message) -> Message:
    thought, content = message.get("reasoning_content"), message["content"]
    parts: list[Any] = [{"type": "thinking", "thinking": thought}] if thought else []
    parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {name: value for name, value in message.items() if name != "reasoning_content"} | {"content": parts}


def results_in_order(messages: list[Message]) -> list[Message]:
    """DeepSeek V4: results of tools in the order of their calls."""
    out: list[Message] = []
    order: dict[str, int] = {}
    for is_input, run in groupby(messages, lambda m: m["role"] in ("user", "tool")):
        turns = list(run)
        if is_input:
            results = iter(sorted((m for m in turns if m["role"] == "tool"), key=lambda m: place(m, order)))
            turns = [next(results) if m["role"] == "tool" else m for m in turns]
        for message in turns:
            if message.get("tool_calls"):
                order = {call.get("id", ""): n for n, call in enumerate(message["tool_calls"])}
        out += turns
    return out


def place(message: Message, order: dict[str, int]) -> int:
    return order.get(message.get("tool_call_id", ""), 0)


def results_in_turn(messages: list[Message]) -> list[Message]:
    """Gemma 4's first templates: calls, their results and the answer are one turn."""
    out: list[Message] = []
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        if message["role"] == "assistant" and message.get("tool_calls"):
            message = whole_turn(message, rest)
        out.append(message)
    return out


def whole_turn(message: Message, rest: list[Message]) -> Message:
    """Takes from the rest what belongs to the turn."""
    turn: Message = {"role": "assistant", "tool_calls": message["tool_calls"]}
    names = [call["function"]["name"] for call in message["tool_calls"]]
    results: list[Any] = []
    while rest and rest[0]["role"] == "tool":
        result = rest.pop(0)
        name = names[len(results)] if len(results) < len(names) else result.get("tool_call_id", "")
        results.append({"name": name, "response": parsed(result["content"])})
    if results:
        turn["tool_responses"] = results
    if rest and rest[0]["role"] == "assistant" and not rest[0].get("tool_calls") and rest[0]["content"]:
        turn["content"] = rest.pop(0)["content"]
    if "reasoning_content" in message:
        turn["reasoning_content"] = message["reasoning_content"]
    return turn


def parsed(content: Any) -> Any:
    with suppress(ValueError, RecursionError, TypeError):
        return json.loads(content)
    return content


@dataclass(frozen=True, slots=True)
class TemplateFamily:
    """`turn` is None where the template's own generation prompt begins a turn that is continued."""

    words: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    turn: tuple[str, str] | str | None = None
    change: Change = unchanged
    thinks: bool = True

    def owns(self, source: str) -> bool:
        return all(word in source for word in self.words) and not any(word in source for word in self.never)


PLAIN = TemplateFamily()
GPT_OSS = TemplateFamily(
    ("<|channel|>",),
    turn=(
        "<|start|>assistant<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    change=thinking_or_content,
)
MINIMAX = TemplateFamily(("]<]minimax[>[", "<tool_call>", "<invoke name="), turn=("<mm:think>", "</mm:think>"))
DEEPSEEK_4 = TemplateFamily(
    ("dsml_token", "DSML", "tool_calls"),
    ("function_calls",),
    turn=("<｜Assistant｜><think>", "</think>"),
    change=results_in_order,
)
GEMMA_4_CALL = "'<|tool_call>call:'"
GEMMA_4_TURN = ("<|channel>thought\n", "<channel|>")
GEMMA_4_NEW = "{#- OpenAI Chat Completions:"
GEMMA_4 = TemplateFamily((GEMMA_4_CALL, GEMMA_4_NEW), turn=GEMMA_4_TURN)
GEMMA_4_OLD = TemplateFamily((GEMMA_4_CALL,), turn=GEMMA_4_TURN, change=results_in_turn)
LFM_TURN = ("<|im_start|>assistant\n<think>", "</think>")
QWEN_TURN = ("<|im_start|>assistant\n<think>\n", "\n</think>\n\n")
QWEN_WORDS = ("<tool_call>", "<function=", "<parameter=")
QWEN_NEVER = ("'<tool_call><function=' ~ tool_call.name ~ '>'",)

FAMILIES: Sequence[TemplateFamily] = (
    TemplateFamily(
        ("[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"),
        ("[CALL_ID]",),
        turn=("[THINK]", "[/THINK]"),
        change=thinking_parts,
    ),
    GPT_OSS,
    TemplateFamily(
        ("<atem:function_calls>", "<|eom|>"),
        turn=("<|start|>assistant to=self<|message|>", "<|eom|><|start|>assistant to=user<|message|>"),
    ),
    TemplateFamily(
        (">>>all", ">>>${recipient}"), turn="<|start_header_id|>assistant<|end_header_id|>\n\n>>>all\n", thinks=False
    ),
    TemplateFamily(
        ("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
        turn=("<|im_assistant|>assistant<|im_middle|><think>", "</think>"),
    ),
    TemplateFamily(
        ("<|open|>", "<|close|>", "<|end_of_msg|>"),
        turn=(
            '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>',
            "<|close|>think<|sep|><|open|>response<|sep|>",
        ),
    ),
    TemplateFamily(("<role>ASSISTANT</role>", "<arg_key>"), turn=("<role>ASSISTANT</role>\n<think>", "</think>")),
    TemplateFamily(
        ("<|START_TEXT|>", "<|START_ACTION|>"),
        turn=(
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>",
            "<|END_THINKING|><|START_TEXT|>",
        ),
    ),
    TemplateFamily(("<|tool_list_start|>", "<|tool_list_end|>"), turn=LFM_TURN, change=thinking_field),
    TemplateFamily(("List of tools: [",), ("<|tool_list_start|>",), turn=LFM_TURN, change=thinking_field),
    TemplateFamily(
        ("<|role_sep|>", "<|message_sep|>"), ("<|function_call|>",), turn="assistant<|role_sep|>\n", thinks=False
    ),
    MINIMAX,
    TemplateFamily(("dsml_token", "DSML", "function_calls"), turn=("<｜Assistant｜><think>", "</think>")),
    DEEPSEEK_4,
    GEMMA_4,
    GEMMA_4_OLD,
    TemplateFamily(("Tool usage guidelines:", '<function name="', '<param name="'), turn=QWEN_TURN),
    TemplateFamily((*QWEN_WORDS, "<think>"), QWEN_NEVER, turn=QWEN_TURN),
    TemplateFamily(QWEN_WORDS, QWEN_NEVER, turn="<|im_start|>assistant\n", thinks=False),
)


def family_of(source: str) -> TemplateFamily:
    return next((family for family in FAMILIES if family.owns(source)), PLAIN)


def begun_turn(family: TemplateFamily, opening: str, message: Message, *, thinking: bool) -> str:
    """A turn as far as it goes. `opening` is what the template begins one with; `thinking` that it ends in thoughts."""
    thought: str = message.get("reasoning_content", "")
    said = joined_parts(message["content"], "\n\n")
    if isinstance(family.turn, str):
        return family.turn + said
    assert family.turn
    before, between = family.turn
    if family is MINIMAX:
        before = opening + before
    if family is DEEPSEEK_4 and not thought:
        return "<｜Assistant｜></think>" + ("" if thinking else said)
    return before + thought + ("" if thinking else between + said)
