"""Grammars that requests ask for, compiled one at a time and kept. Knows where each API puts its schema."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from paceline.errors import ConfigError
from paceline.server.schema import ResponseFormat, SamplingBody
from paceline.text.grammar import Grammar, GrammarCompiler

N_KEPT = 64
ANY_OBJECT = {"type": "object"}


class Grammars:
    """A compiler and what it made lately. A hostile grammar can take a minute; others wait, nobody else does."""

    def __init__(
        self, compiler: Callable[[], GrammarCompiler], gbnf: str | None = None, json_schema: str | None = None
    ) -> None:
        self._compiler = compiler
        schema = json.loads(json_schema) if json_schema else None
        self._default = SamplingBody.model_validate({"grammar": gbnf, "json_schema": schema})
        self._kept: OrderedDict[str, Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def wanted(self, body: SamplingBody) -> bool:
        """Whether this request may need one compiled."""
        default = self._default
        fields = (body, "grammar"), (body, "json_schema"), (body, "response_format"), (body, "tool_choice")
        return bool(default.grammar or default.json_schema) or any(getattr(*field, None) for field in fields)

    def of(self, body: SamplingBody) -> Grammar | None:
        """llama-server's two fields, in any kind of request; the command line's when there is none."""
        if not body.grammar and body.json_schema is None:
            body = self._default
        if body.json_schema is not None and body.grammar:
            raise ConfigError("give either grammar or json_schema, not both")
        if body.json_schema is not None:
            return self.json_schema(body.json_schema)
        return self._keep(f"gbnf:{body.grammar}", lambda c: c.gbnf(body.grammar or "")) if body.grammar else None

    def of_format(self, form: ResponseFormat | None) -> Grammar | None:
        """OpenAI's response_format."""
        if form is None or form.type == "text":
            return None
        schema = form.schema_
        if form.type == "json_schema" and schema is None:
            schema = (form.json_schema or {}).get("schema")
            if schema is None:
                raise ConfigError("response_format of type json_schema needs json_schema.schema")
        return self.json_schema(ANY_OBJECT if schema is None else schema)

    def json_schema(self, schema: Any) -> Grammar:
        """As in llama-server, an empty schema stands for any object."""
        schema = schema if schema or schema is False else ANY_OBJECT
        try:
            key = json.dumps(schema, sort_keys=True)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"the JSON schema cannot be read: {error}") from None
        return self._keep(f"json:{key}", lambda c: c.json_schema(schema))

    def _keep(self, key: str, make: Callable[[GrammarCompiler], Grammar]) -> Grammar:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make(self._compiler())
                while len(self._kept) > N_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]
