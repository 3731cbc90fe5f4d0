"""Chat templates: messages to a prompt, the one that llama-server would make. Nothing of tokens or HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from typing import Any

from paceline.errors import ConfigError, PromptError
from paceline.text.capabilities import Capabilities, capabilities, efforts, preserving
from paceline.text.families import GEMMA_4, GEMMA_4_OLD, GPT_OSS, PLAIN, begun_turn, family_of
from paceline.text.jinja import Program, now
from paceline.text.messages import Message, fitted, joined_parts, shaped, shaped_tool, trimmed
from paceline.text.thoughts import Thoughts, thoughts_of
from paceline.text.vocabulary import Vocabulary

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""

REPAIRS = {
    '{%- if "<|channel|>analysis<|message|>" in message.content or '
    '"<|channel|>final<|message|>" in message.content %}': "{%- if false %}",
    "{%- if (message['content'] is none or message['content'] == '' or "
    "message['content']|length == 0) and (message['tool_calls'] is not defined or "
    "message['tool_calls'] is none or message['tool_calls']|length == 0) %}": "{%- if false %}",
}
"""Checks that gpt-oss and Mistral have in their templates, of messages that come from clients as they are."""

STEPFUN = "You have access to the following functions in JSONSchema format"


class ChatTemplate:
    """One model's template, compiled once; `render` may be called from any thread.

    A model without a template gets `ChatTemplate(CHATML, bos, eos)`. Where the tokenizer begins every prompt with BOS
    (`adds_bos`), one that the template writes is left off, or it would be there twice. `tool_source` is the template
    for chats with tools, of models that have two.
    """

    def __init__(
        self, source: str, bos: str, eos: str, *, adds_bos: bool = False, tool_source: str | None = None
    ) -> None:
        self.source = source
        self.tool_source = tool_source
        self._with_tools = ChatTemplate(tool_source, bos, eos, adds_bos=adds_bos) if tool_source else None
        self._redundant = bos if adds_bos else ""
        self._special_tokens = {"bos_token": bos, "eos_token": eos}
        for check, instead in REPAIRS.items():
            source = source.replace(check, instead)
        self._program = Program(source)
        self._family = family_of(source)

    @classmethod
    def of(cls, source: str | None, vocab: Vocabulary, tool_source: str | None = None) -> ChatTemplate:
        """With a model's special tokens; the usual one where there is none. Tools do without a broken one."""
        bos, eos = (vocab.render(t, special=True).decode() if t >= 0 else "" for t in (vocab.bos, vocab.eos))
        if tool_source and source:
            with suppress(ConfigError):
                return cls(source, bos, eos, adds_bos=vocab.add_bos, tool_source=tool_source)
            return cls(source, bos, eos, adds_bos=vocab.add_bos)
        return cls(source or tool_source or CHATML, bos, eos, adds_bos=vocab.add_bos)

    @cached_property
    def capabilities(self) -> Capabilities:
        return self._with_tools.capabilities if self._with_tools else self._own_capabilities

    @cached_property
    def _own_capabilities(self) -> Capabilities:
        return capabilities(self._program)

    @cached_property
    def thoughts(self) -> Thoughts:
        """How its model thinks, as far as the template tells."""

        def render(messages: Sequence[Mapping[str, Any]], opening: bool, thinking: bool) -> str:
            fit = fitted([shaped(message) for message in messages], self._own_capabilities, developer=True)
            return self._run(fit, {"enable_thinking": thinking}, opening=opening)

        return thoughts_of(self.source, render)

    @property
    def thinks(self) -> bool:
        """Whether its model thinks unless told not to."""
        return self._family.thinks if self._family is not PLAIN else self.thoughts.supported

    def render(self, messages: Sequence[Mapping[str, Any]], /, **options: Any) -> str:
        """The prompt for these messages. The options are those of `compose`."""
        return "".join(self.compose(messages, **options))

    def compose(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: str | None = None,
        **extra: Any,
    ) -> tuple[str, str]:
        """The prompt for these messages, and the answer as far as it was begun. `continue_final_message` says that the
        last message is to be continued, in its `content` or its `reasoning_content`. `extra` are more variables, as in
        `chat_template_kwargs`."""
        if tools and self._with_tools:
            return self._with_tools.compose(
                messages,
                add_generation_prompt=add_generation_prompt,
                tools=tools,
                continue_final_message=continue_final_message,
                **extra,
            )
        if "messages" in extra:
            raise PromptError("the variable 'messages' of a chat template cannot be set apart from the messages")
        variables = self._variables(tools, extra)
        chat = [shaped(message) for message in messages]
        if STEPFUN in self.source:
            chat = [trimmed(message) for message in chat]
        begun = chat.pop() if continue_final_message and chat else None
        opening = add_generation_prompt and not continue_final_message
        chat = self._family.change(fitted(chat, self._own_capabilities, developer=self._family is GPT_OSS))
        prompt = self._amended(self._run(chat, variables, opening=opening), opening=opening)
        if begun is None or (list(begun) == ["role", "content"] and not begun["content"]):
            return prompt, ""
        thinking = continue_final_message == "reasoning_content"
        head, turn = self._turn(prompt, self._opening(chat, variables), begun, thinking=thinking)
        return prompt + head, turn

    def _variables(self, tools: Sequence[Mapping[str, Any]] | None, extra: Mapping[str, Any]) -> dict[str, Any]:
        today = now()
        dates = {"datetime": today.strftime("%b %d %Y"), "date_string": today.strftime("%d %b %Y")}
        variables: dict[str, Any] = {**dates, "preserve_reasoning": True, "enable_thinking": self.thinks, **extra}
        named: dict[str, Any] = {}
        if isinstance(variables["preserve_reasoning"], bool):
            named |= preserving(variables["preserve_reasoning"])
        if isinstance(level := variables.get("reasoning_effort"), str) and level:
            named |= efforts(level)
        if tools:
            variables["tools"] = [shaped_tool(tool) for tool in tools]
        return named | variables

    def _run(self, messages: Sequence[Message], variables: Mapping[str, Any], *, opening: bool) -> str:
        given = {**self._special_tokens, **variables, "messages": messages}
        if opening:
            given["add_generation_prompt"] = True
        return self._program.run(given).removeprefix(self._redundant)

    def _amended(self, prompt: str, *, opening: bool) -> str:
        if self._family is GPT_OSS and not opening:
            head, end, tail = prompt.rpartition("<|return|>")
            return f"{head}<|end|>{tail}" if end else prompt
        if self._family in (GEMMA_4, GEMMA_4_OLD) and opening and prompt.endswith("<turn|>\n"):
            return prompt + "<|turn>model\n"
        return prompt

    def _opening(self, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
        """What an answer begins with."""
        without, having = (self._run(messages, variables, opening=opening) for opening in (False, True))
        return having[n_shared(without, having) :]

    def _turn(self, prompt: str, opening: str, message: Message, *, thinking: bool) -> tuple[str, str]:
        """What the template begins the answer with, and the answer so far."""
        if self._family is not PLAIN:
            gemma = self._family in (GEMMA_4, GEMMA_4_OLD) and prompt.endswith("<turn|>\n")
            turn = ("<|turn>model\n" if gemma else "") + begun_turn(self._family, opening, message, thinking=thinking)
            n_head = n_shared(opening, turn)
            return turn[:n_head], turn[n_head:]
        thoughts, turn = self.thoughts, ""
        if thoughts.start:
            opening = opening.partition(thoughts.start)[0]
            turn = thoughts.start + message.get("reasoning_content", "") + ("" if thinking else thoughts.end)
        return opening, turn if thinking else turn + joined_parts(message["content"], "\n\n")


def n_shared(left: str, right: str) -> int:
    """How many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
