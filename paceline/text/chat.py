"""Chat templates: messages to a prompt. Knows jinja2 as Hugging Face sets it up; nothing of tokens or HTTP.

A template comes with the model file, so it is a stranger's program. It runs in jinja2's sandbox: no underscore
attributes, no change to what it is given, no `range` beyond 100,000; and here its output is bounded. Not bounded are
time and memory without output: nested loops that print nothing, macros that call themselves twice, 'x' * 10**10.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from paceline.errors import ConfigError, PromptError
from paceline.text.vocabulary import Vocabulary

MAX_CHARS = 64 * 2**20

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""


class ChatTemplate:
    """One model's template, compiled once; `render` may be called from any thread.

    A model without a template gets `ChatTemplate(CHATML, bos, eos)`. Where the tokenizer begins every prompt with BOS
    (`adds_bos`), one that the template writes is left off, or it would be there twice.
    """

    def __init__(self, source: str, bos: str, eos: str, *, adds_bos: bool = False) -> None:
        self.source = source
        self._redundant = bos if adds_bos else ""
        self._special_tokens = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = _ENVIRONMENT.from_string(source)
        except TemplateSyntaxError as error:
            raise ConfigError(f"the chat template is broken in line {error.lineno}: {_one_line(error)}") from error
        except Exception as error:  # too deep, too large: Python's compiler has errors of its own
            raise ConfigError(f"the chat template is broken: {_one_line(error)}") from error

    @classmethod
    def of(cls, source: str | None, vocab: Vocabulary) -> ChatTemplate:
        """With a model's special tokens; the usual one where there is none."""
        bos, eos = (vocab.render(t, special=True).decode() if t >= 0 else "" for t in (vocab.bos, vocab.eos))
        return cls(source or CHATML, bos, eos, adds_bos=vocab.add_bos)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> str:
        """The prompt for these messages. `extra` are more variables, as in `chat_template_kwargs`."""
        if "messages" in extra:
            raise PromptError("the variable 'messages' of a chat template cannot be set apart from the messages")
        variables = {"documents": None, **self._special_tokens, **extra}
        variables |= {"messages": list(messages), "tools": tools, "add_generation_prompt": add_generation_prompt}
        try:
            return self._generate(variables).removeprefix(self._redundant)
        except _Refusal as error:
            raise PromptError(f"the chat template refuses these messages: {_one_line(error)}") from error
        except SecurityError as error:
            raise PromptError(f"the chat template tries what it must not: {_one_line(error)}") from error
        except Exception as error:  # a template is a program: whatever it stumbles over ends this request only
            raise PromptError(f"the chat template failed on these messages: {_one_line(error)}") from error

    def _generate(self, variables: dict[str, Any]) -> str:
        n_chars, parts = 0, []
        for part in self._template.generate(variables):
            n_chars += len(part)
            if n_chars > MAX_CHARS:
                raise SecurityError(f"it writes more than {MAX_CHARS} characters")
            parts.append(part)
        return "".join(parts)


class _Refusal(TemplateError):
    """The template called raise_exception."""


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; for a prompt it is only a scope."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


def _raise_exception(message: str) -> None:
    raise _Refusal(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: jinja2's own filter escapes <, >, & and ' for HTML, which no model was trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, LoopControlExtension]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment


_ENVIRONMENT = _environment()
