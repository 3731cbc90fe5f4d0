"""Jinja as chat templates use it, in jinja2's sandbox. Knows programs and variables; nothing of messages or tokens.

A template comes with the model file, so it is a stranger's program. The sandbox allows no underscore attributes, no
change to what it is given, no `range` beyond 100,000; and here its output is bounded. Not bounded are time and memory
without output: nested loops that print nothing, macros that call themselves twice, 'x' * 10**10.

Where llama.cpp's own jinja is milder than jinja2, this one is too, since that is where templates are tried today:
nothing (none or undefined) prints as nothing, is nothing when added to a text, and has attributes that are nothing; a
template may append to lists of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import copy
from datetime import datetime
from typing import Any

from jinja2 import ChainableUndefined, Template, TemplateError, TemplateSyntaxError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from paceline.errors import ConfigError, PromptError

MAX_CHARS = 64 * 2**20


class Program:
    """A template, compiled once; `run` may be called from any thread."""

    def __init__(self, source: str) -> None:
        self.source = source
        try:
            self._code = ENVIRONMENT.compile(source)
        except TemplateSyntaxError as error:
            raise ConfigError(f"the chat template is broken in line {error.lineno}: {one_line(error)}") from error
        except Exception as error:  # too deep, too large: Python's compiler has errors of its own
            raise ConfigError(f"the chat template is broken: {one_line(error)}") from error
        self._template = self._in(ENVIRONMENT)

    def _in(self, environment: Sandbox) -> Template:
        return Template.from_code(environment, self._code, environment.make_globals(None))

    def within(self, environment: Sandbox) -> Program:
        """The same program in another sandbox."""
        program = copy(self)
        program._template = self._in(environment)
        return program

    def run(self, variables: Mapping[str, Any]) -> str:
        try:
            return self._generate(variables)
        except Refusal as error:
            raise PromptError(f"the chat template refuses these messages: {one_line(error)}") from error
        except SecurityError as error:
            raise PromptError(f"the chat template tries what it must not: {one_line(error)}") from error
        except Exception as error:  # a template is a program: whatever it stumbles over ends this request only
            raise PromptError(f"the chat template failed on these messages: {one_line(error)}") from error

    def _generate(self, variables: Mapping[str, Any]) -> str:
        n_chars, parts = 0, []
        for part in self._template.generate({name: given(value) for name, value in variables.items()}):
            n_chars += len(part)
            if n_chars > MAX_CHARS:
                raise SecurityError(f"it writes more than {MAX_CHARS} characters")
            parts.append(part)
        return "".join(parts)


class Sandbox(ImmutableSandboxedEnvironment):
    """Hugging Face's settings. Adding goes through here, since templates add what may be missing."""

    intercepted_binops = frozenset({"+"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=Missing,
            finalize=printed,
            extensions=[GenerationTag, LoopControlExtension],
        )
        self.filters |= {"tojson": tojson, "default": default, "d": default, "safe": text_of}
        self.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return (type(obj) is list and attr in ("append", "pop")) or super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Not one of the things that are only missing."""
        raise SecurityError(f"the attribute {attribute!r} of a {type(obj).__name__} is not for templates")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, str) != isinstance(right, str):
            return text_of(left) + text_of(right)
        return super().call_binop(context, operator, left, right)


class Given(list[Any]):
    """A list from outside, which no template may change."""


def given(value: Any) -> Any:
    """The same value with all its lists marked."""
    if type(value) is list:
        return Given(map(given, value))
    return {name: given(inner) for name, inner in value.items()} if type(value) is dict else value


class Missing(ChainableUndefined):
    """What is not there has no items, and is an empty text to those who ask it for one."""

    def __getattr__(self, name: str) -> Any:
        if name == "items":
            return tuple
        if name in ("strip", "lower", "upper", "title", "capitalize"):
            return str
        return super().__getattr__(name)


class Refusal(TemplateError):
    """The template called raise_exception."""


class GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; for a prompt it is only a scope."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


def now() -> datetime:
    return datetime.now()


def raise_exception(message: str) -> None:
    raise Refusal(message)


def strftime_now(form: str) -> str:
    return now().strftime(form)


def printed(value: Any) -> Any:
    return "" if value is None else value


def text_of(value: Any) -> str:
    return "" if value is None or isinstance(value, Undefined) else str(value)


def default(value: Any, instead: Any = "", boolean: bool = False) -> Any:
    missing = not value if boolean else value is None or isinstance(value, Undefined)
    return instead if missing else value


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: jinja2's own filter escapes <, >, & and ' for HTML, which no model was trained on."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys, default=plain
    )


def plain(value: Any) -> Any:
    """JSON for what is missing, and for what filters such as `map` make."""
    if isinstance(value, Undefined):
        return None
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"there is no JSON for a {type(value).__name__}")


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


ENVIRONMENT = Sandbox()
