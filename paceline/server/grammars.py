"""Grammars that requests ask for. Knows where each API puts its schema; compiling them is the engine's business."""

from __future__ import annotations

import json
from typing import Any

from paceline.engine.request import Grammar
from paceline.errors import ConfigError
from paceline.server.schema import ResponseFormat, SamplingBody
from paceline.text.schemas import closed

ANY_OBJECT = {"type": "object"}


class Grammars:
    """The command line's, for requests that bring none."""

    def __init__(self, gbnf: str | None = None, json_schema: str | None = None) -> None:
        schema = json.loads(json_schema) if json_schema else None
        self._default = SamplingBody.model_validate({"grammar": gbnf, "json_schema": schema})

    def of(self, body: SamplingBody) -> Grammar | None:
        """llama-server's two fields, in any kind of request."""
        if not body.grammar and body.json_schema is None:
            body = self._default
        if body.json_schema is not None and body.grammar:
            raise ConfigError("give either grammar or json_schema, not both")
        if body.json_schema is not None:
            return self.json_schema(body.json_schema)
        return Grammar.gbnf(body.grammar) if body.grammar else None

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
        """As in llama-server, an empty schema stands for any object, and objects have the keys they name."""
        try:
            return Grammar.json_schema(closed(schema) if schema or schema is False else ANY_OBJECT)
        except RecursionError:
            raise ConfigError("the JSON schema is nested too deeply") from None
