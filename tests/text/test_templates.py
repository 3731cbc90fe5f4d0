"""Every chat template of llama.cpp renders as llama-server renders it: `templates/make.py` says how that was found."""

from __future__ import annotations

import json
import lzma
from dataclasses import asdict
from datetime import datetime
from functools import cache
from typing import Any

import pytest

from paceline.errors import PacelineError
from paceline.server.dialogue import Manner, converse
from paceline.server.schema import TemplateBody
from paceline.text import chat, jinja
from paceline.text.chat import ChatTemplate
from tests.text.templates.cases import CASES
from tests.text.templates.make import DATA

BOS, EOS = "<|start|>", "<|end|>"


@cache
def made() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(lzma.decompress(DATA.read_bytes()))
    return data


@pytest.fixture(autouse=True)
def that_day(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (chat, jinja):
        monkeypatch.setattr(module, "now", lambda: datetime.fromisoformat(made()["day"]))


def prompt(template: ChatTemplate, case: dict[str, Any]) -> str | None:
    """None is a refusal."""
    try:
        return converse(template, TemplateBody.model_validate(case), Manner()).prompt
    except PacelineError:
        return None


@pytest.mark.parametrize("name", made()["templates"])
def test_a_template_renders_as_llama_server_renders_it(name: str) -> None:
    expected = made()["templates"][name]
    template = ChatTemplate(expected["source"], BOS, EOS)
    assert asdict(template.capabilities) == expected["caps"]
    rendered = {case: prompt(template, body) for case, body in CASES.items()}
    assert rendered == expected["rendered"]


def test_all_templates_and_cases_are_there() -> None:
    assert len(made()["templates"]) == 70
    assert all(set(each["rendered"]) == set(CASES) for each in made()["templates"].values())
