"""Messages to prompts: what is continued, what the command line says, libllama's own templates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from paceline.errors import ConfigError, PacelineError
from paceline.server.dialogue import Manner, converse
from paceline.server.params import ServerParams
from paceline.server.schema import TemplateBody
from paceline.text.chat import CHATML, ChatTemplate
from tests.server.live import Live, live, settings

ASKED = {"role": "user", "content": "Hi"}
SAID = {"role": "assistant", "content": "It is"}
CALLED = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}
TOOL = {"type": "function", "function": {"name": "f", "description": "What f does"}}
THINKING = """\
{%- for m in messages %}<{{ m.role }}>
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}
{%- endfor %}
{%- if add_generation_prompt %}<assistant>{% if not enable_thinking %}<think></think>{% endif %}{% endif %}
{{- reasoning_effort }}{{ '~' if clear_thinking }}"""


def prompt(source: str, *messages: dict[str, Any], manner: Manner | None = None, **more: Any) -> str:
    body = TemplateBody.model_validate({"messages": list(messages), **more})
    return converse(ChatTemplate(source, "", ""), body, manner or Manner()).prompt


def test_an_answer_that_was_begun_goes_on() -> None:
    user = "<|im_start|>user\nHi<|im_end|>\n"
    assert prompt(CHATML, ASKED, SAID) == user + "<|im_start|>assistant\nIt is"
    whole = prompt(CHATML, ASKED, SAID, manner=Manner(prefill=False))
    assert whole == user + "<|im_start|>assistant\nIt is<|im_end|>\n<|im_start|>assistant\n"
    asked_for = prompt(CHATML, ASKED, add_generation_prompt=False, continue_final_message=True)
    assert asked_for == "<|im_start|>assistant\nHi"


def test_thoughts_that_were_begun_go_on() -> None:
    thought = {**SAID, "content": "", "reasoning_content": "Hm"}
    assert prompt(THINKING, ASKED, thought) == "<user>Hi<assistant><think>Hm"
    assert prompt(THINKING, ASKED, {**thought, "content": "So"}) == "<user>Hi<assistant><think>Hm</think>So"
    body = TemplateBody.model_validate({"messages": [ASKED, thought]})
    assert converse(ChatTemplate(THINKING, "", ""), body, Manner()).begun == "<think>Hm"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"messages": [ASKED, SAID, SAID]}, "two assistant messages"),
        ({"messages": [ASKED, CALLED]}, "tool calls cannot be continued"),
        ({"messages": [ASKED, SAID], "continue_final_message": True}, "add_generation_prompt: false"),
        ({"messages": [ASKED], "chat_template_kwargs": {"enable_thinking": "no"}}, "true or false"),
        ({"messages": [ASKED], "chat_template_kwargs": {"tools": []}}, "'tools'"),
        ({"messages": [ASKED], "chat_template_kwargs": {"continue_final_message": True}}, "field of its own"),
    ],
)
def test_what_cannot_be_is_told(body: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        converse(ChatTemplate(CHATML, "", ""), TemplateBody.model_validate(body), Manner())


def test_arguments_that_are_not_json_are_told_where_the_template_reads_them() -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    bad = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{"}}]}
    with pytest.raises(PacelineError, match="'f' are not JSON"):
        prompt(source, bad, ASKED)


@pytest.mark.parametrize(
    ("flags", "more", "ending"),
    [
        ({}, {}, "<assistant>"),
        ({}, {"chat_template_kwargs": {"enable_thinking": False}}, "<assistant><think></think>"),
        ({}, {"reasoning_effort": "none"}, "<assistant><think></think>"),
        ({}, {"reasoning_effort": "low"}, "<assistant>low"),
        ({}, {"chat_template_kwargs": {"add_generation_prompt": True}}, "<assistant>"),
        ({"reasoning": "off"}, {}, "<assistant><think></think>"),
        ({"reasoning": "off"}, {"chat_template_kwargs": {"enable_thinking": True}}, "<assistant>"),
        ({"reasoning_effort": "high"}, {}, "<assistant>high"),
        ({"reasoning_effort": "high"}, {"reasoning_effort": "low"}, "<assistant>low"),
        ({"reasoning_preserve": False}, {}, "<assistant>~"),
        ({"chat_template_kwargs": '{"reasoning_effort": "medium"}'}, {}, "<assistant>medium"),
    ],
)
def test_thinking_is_chosen_by_flags_and_by_requests(flags: dict[str, Any], more: dict[str, Any], ending: str) -> None:
    manner = Manner(ServerParams(**flags).template_variables())
    assert prompt(THINKING, ASKED, manner=manner, **more) == "<user>Hi" + ending


def test_a_reasoning_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="on, off, auto"):
        ServerParams(reasoning="maybe")


def test_tools_are_described_where_the_template_has_no_place_for_them_on_request() -> None:
    assert "What f does" not in prompt(CHATML, ASKED, tools=[TOOL])
    told = prompt(CHATML, ASKED, tools=[TOOL], manner=Manner(describe_tools=True))
    assert told.startswith("<|im_start|>system\n") and "What f does" in told
    source = "{{ tools | tojson }}{% for m in messages %}{{ m.role }}{% endfor %}"
    assert "system" not in prompt(source, ASKED, tools=[TOOL], manner=Manner(describe_tools=True))


# -- answers that go on


@pytest.fixture(scope="module")
def thinker(target: str) -> Iterator[Live]:
    with live(settings(target, n_slots=1), ServerParams(port=0, shutdown_timeout=1, chat_template=THINKING)) as server:
        yield server


def answer(server: Live, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    reply = server.post("/v1/chat/completions", messages=list(messages), max_tokens=2, temperature=0, **more)
    message: dict[str, Any] = reply.json()["choices"][0]["message"]
    return message


def streamed(server: Live, *messages: dict[str, Any], **more: Any) -> str:
    body = {"messages": list(messages), "max_tokens": 2, "temperature": 0, "stream": True, **more}
    lines = server.http.post("/v1/chat/completions", json=body).text.split("\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def test_an_answer_says_again_what_it_continues(thinker: Live) -> None:
    asked_for = {"continue_final_message": True, "add_generation_prompt": False}
    whole = answer(thinker, ASKED, SAID)["content"]
    assert whole.startswith("It is") and len(whole) > len("It is")
    assert answer(thinker, ASKED, SAID, **asked_for)["content"] == whole
    assert streamed(thinker, ASKED, SAID) == whole
    assert streamed(thinker, ASKED, SAID, **asked_for) == whole.removeprefix("It is")
    assert streamed(thinker, ASKED, SAID, **asked_for, echo=True) == whole


def test_thoughts_that_go_on_stay_thoughts(thinker: Live) -> None:
    thought = {**SAID, "content": "", "reasoning_content": "Hm"}
    assert answer(thinker, ASKED, thought)["reasoning_content"].startswith("Hm")
    both = answer(thinker, ASKED, {**thought, "content": "So"})
    assert both["reasoning_content"] == "Hm"
    assert both["content"].startswith("So")
    assert answer(thinker, ASKED, thought, reasoning_format="none")["content"].startswith("<think>Hm")


# -- libllama's own


@pytest.fixture(scope="module")
def llama3(target: str) -> Iterator[Live]:
    with live(settings(target, n_slots=1), ServerParams(port=0, shutdown_timeout=1, chat_template="llama3")) as server:
        yield server


def test_a_template_by_its_name(llama3: Live) -> None:
    reply = llama3.post("/apply-template", messages=[{"role": "system", "content": "Be brief"}, ASKED])
    assert reply.json()["prompt"] == (
        "<|start_header_id|>system<|end_header_id|>\n\nBe brief<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert llama3.http.get("/props").json()["chat_template"] == "llama3"
    assert llama3.post("/v1/chat/completions", messages=[ASKED], max_tokens=1).status_code == 200


def test_what_libllamas_templates_cannot_do_is_told(llama3: Live) -> None:
    reply = llama3.post("/apply-template", messages=[ASKED], tools=[TOOL])
    assert reply.status_code == 400
    assert "no place for tools" in reply.json()["error"]["message"]
    half = json.dumps({"messages": [{"role": "user", "content": "\ud800"}]})
    assert llama3.http.post("/apply-template", content=half).status_code == 400


def test_texts_in_parts_and_long_ones(llama3: Live) -> None:
    parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": "é" * 5000}]
    reply = llama3.post("/apply-template", messages=[{"role": "user", "content": parts}], add_generation_prompt=False)
    assert reply.json()["prompt"].endswith("\n\nWhat is\n" + "é" * 5000 + "<|eot_id|>")


def test_without_jinja_libllama_recognises_a_template(llama3: Live) -> None:
    engine = llama3.service.engine
    known = engine.template_of("{{ '<|im_start|>' }}", jinja=False)
    assert known.render([ASKED]) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert engine.template_of(None, jinja=False).render([ASKED]) == known.render([ASKED])
    with pytest.raises(ConfigError, match="--no-jinja"):
        engine.template_of("{{ messages[0].content }}", jinja=False)


def test_the_names_are_libllamas(llama3: Live) -> None:
    names = llama3.service.engine.info.builtin_templates
    assert {"chatml", "llama3", "gemma", "command-r"} <= set(names)
    assert llama3.service.engine.template_of("chatml").source == CHATML
