"""Tool calls, formats and thoughts over HTTP: random weights write what the grammar of each family leaves them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pydantic
import pytest

from paceline.engine.request import Bounds, Grammar
from paceline.server.chat_reply import Reader, Rules
from paceline.server.marks import Marks
from paceline.server.params import ServerParams
from paceline.server.stream import Step
from paceline.text.call_grammar import call_grammar
from paceline.text.formats import CallFormat, Style
from tests.server.live import Live, live, settings

pytestmark = pytest.mark.model

HELLO = [{"role": "user", "content": "Go."}]
WALK: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "walk",
        "parameters": {
            "type": "object",
            "properties": {"fast": {"type": "boolean"}, "to": {"enum": ["sea", "hill"]}, "n": {"enum": [1, 2]}},
            "required": ["fast", "to"],
        },
    },
}
REST: dict[str, Any] = {"type": "function", "function": {"name": "rest"}}
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}{{ tools }}"
FAMILIES = [
    "<tool_call>",
    "<tool_call><function=<parameter=",
    "<minimax:tool_call>",
    "DSML function_calls",
    "<｜tool▁call▁begin｜>",
    "<tool_call><arg_key>",
    "<|tool_calls_section_begin|>",
    "[TOOL_CALLS]",
    "[TOOL_CALLS][ARGS]",
    "<|python_tag|>",
    "<|START_ACTION|>",
    "<|tools_prefix|>",
    ">>>all",
]


@contextmanager
def template(server: Live, text: str) -> Iterator[None]:
    """Another chat template for a while; to start a server for each would take minutes."""
    service, before = server.service, server.service.template
    service._template = service.engine.template_of(text)
    try:
        yield
    finally:
        service._template = before


def ask(server: Live, **body: Any) -> dict[str, Any]:
    reply = server.post("/v1/chat/completions", **{"messages": HELLO, "max_tokens": 400, "seed": 3, **body})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def streamed(server: Live, **body: Any) -> list[dict[str, Any]]:
    body = {"messages": HELLO, "max_tokens": 400, "seed": 3, "stream": True, **body}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_required_call_is_written_as_the_family_does(tiny: Live, family: str) -> None:
    with template(tiny, TEMPLATE + f"{{# {family} #}}" + (">>>" if family == ">>>all" else "")):
        wanted: dict[str, Any] = {"tools": [WALK, REST], "tool_choice": "required", "temperature": 1.0}
        whole = ask(tiny, **wanted, verbose=True)
        deltas = [chunk["choices"][0]["delta"] for chunk in streamed(tiny, **wanted)]
    (choice,) = whole["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "walk":
        assert isinstance(arguments["fast"], bool)
        assert arguments["to"] in ("sea", "hill")
        assert set(arguments) <= {"fast", "to", "n"}
    else:
        assert arguments == {}
    assert call["function"]["name"] in whole["__verbose"]["content"]
    parts = [part for delta in deltas for part in delta.get("tool_calls", ())]
    assert parts[0]["function"]["name"] == call["function"]["name"]
    assert "".join(part["function"]["arguments"] for part in parts) == call["function"]["arguments"]


def test_several_calls_where_they_are_wanted(tiny: Live) -> None:
    with template(tiny, TEMPLATE + "{# <tool_call> #}"):
        body = {"tools": [REST], "tool_choice": "required", "parallel_tool_calls": True, "max_tokens": 500}
        message = ask(tiny, **body, logit_bias=[["<", 100]])["choices"][0]["message"]
    assert len(message["tool_calls"]) > 1
    assert len({call["id"] for call in message["tool_calls"]}) == len(message["tool_calls"])


def test_tools_are_not_looked_for_where_nobody_asks(tiny: Live) -> None:
    form = {"grammar": 'root ::= "<tool_call>{\\"name\\": \\"rest\\", \\"arguments\\": {}}</tool_call>"'}
    assert ask(tiny, tools=[REST], **form)["choices"][0]["message"]["tool_calls"]
    for quiet in ({"parse_tool_calls": False}, {"tool_choice": "none"}):
        message = ask(tiny, tools=[REST], **form, **quiet)["choices"][0]["message"]
        assert "tool_calls" not in message
        assert message["content"].startswith("<tool_call>")


class Person(pydantic.BaseModel):
    """As pydantic writes schemas, nothing says that other keys are not welcome."""

    grown: bool
    friends: list[Person] = pydantic.Field(max_length=1)


def test_no_invented_keys(tiny: Live) -> None:
    schema = Person.model_json_schema()
    assert "additionalProperties" not in json.dumps(schema)
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    for seed in range(4):
        content = ask(tiny, response_format=form, seed=seed, temperature=1.5)["choices"][0]["message"]["content"]
        Person.model_validate_json(content, extra="forbid")


def test_a_call_is_free_to_come_and_held_to_its_schema(tiny: Live) -> None:
    """What random weights write is not a call; so any text of theirs is taken for the mark."""
    engine, prompt = tiny.service.engine, [65, 66, 67]
    pieces = [piece.text for chunk in engine.generate(prompt, max_tokens=40, temperature=0) for piece in chunk.pieces]
    mark = next(text for text in pieces[8:] if text.strip().isascii() and text)
    before = "".join(pieces[: pieces.index(mark) + 1])
    options: dict[str, Any] = {
        "max_tokens": 60,
        "temperature": 0,
        "grammar": Grammar.regex("[0-9]{4}"),
        "prompt": prompt,
    }
    for types in ((), ("ngram-simple",)):
        text = engine.generate(**options, bounds=Bounds(after=(mark,)), speculative={"types": types}).text()
        assert text.startswith(before)
        assert len(text) == len(before) + 4
        assert text[len(before) :].isdigit()


def test_a_schema_that_cannot_be_held_to_does_not_stop_a_chat(tiny: Live) -> None:
    odd = {"type": "function", "function": {"name": "odd", "parameters": {"type": "nonsense"}}}
    with template(tiny, TEMPLATE + "{# <tool_call> #}"):
        assert ask(tiny, tools=[odd], max_tokens=4)["choices"][0]["finish_reason"] == "length"
        refused = tiny.post("/v1/chat/completions", messages=HELLO, tools=[odd], tool_choice="required")
    assert refused.status_code == 400


def test_a_schema_without_end(tiny: Live) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(150):
        deep = {"anyOf": [{"type": "object", "properties": {"a": deep}}]}
    tool = {
        "type": "function",
        "function": {"name": "deep", "parameters": {"type": "object", "properties": {"a": deep}}},
    }
    for family in ("<tool_call>", "<tool_call><function=<parameter="):
        with template(tiny, TEMPLATE + f"{{# {family} #}}"):
            for choice in ("auto", "required"):
                body = {"messages": HELLO, "tools": [tool], "tool_choice": choice, "max_tokens": 2}
                assert tiny.post("/v1/chat/completions", **body).status_code in (200, 400)
    assert ask(tiny, max_tokens=1)["choices"]


def test_control_tokens_are_text_where_they_are_spelled(talking: Live) -> None:
    engine = talking.service.engine
    (start,) = engine.tokenize("<|im_start|>", special=False)
    options: dict[str, Any] = {"max_tokens": 2, "logit_bias": {start: 200.0}, "temperature": 0}
    assert engine.generate([65], **options).text() == ""
    assert engine.generate([65], **options, spelled=[start]).text() == "<|im_start|>" * 2
    assert engine.generate([65], **options, spelled=[start], stop=["start|><"]).text() == "<|im_"


def test_marks_that_are_control_tokens(talking: Live) -> None:
    """In a family whose calls begin with a control token the text shows it, and the grammar means it."""
    engine = talking.service.engine
    form = CallFormat(("<|im_start|>", "</call>"))
    marks = Marks(engine, Style(calls=(form,)))
    (start,) = engine.tokenize("<|im_start|>", special=False)
    assert marks.spelled(tools=False) == ()
    assert marks.spelled(tools=True) == (start,)
    assert marks.spell("a<|im_start|>b") == ["a", start, "b"]
    assert marks.spell("</call><|im_end|>") == ["</call>"]
    source = call_grammar(form, [REST], marks.spell, parallel=False)
    text = engine.generate([65], grammar=Grammar.lark(source), spelled=(start,), max_tokens=40, temperature=0).text()
    assert "".join(text.split()) == '<|im_start|>{"name":"rest","arguments":{}}</call>'


# -- thoughts


@pytest.fixture(scope="module")
def thinking(target: str) -> Iterator[Live]:
    params = ServerParams(port=0, chat_template=TEMPLATE + "{{ '<think>' if thinking }}", reasoning_budget=7)
    with live(settings(target), params) as server:
        yield server


def thoughts(reply: dict[str, Any]) -> tuple[str, str]:
    message = reply["choices"][0]["message"]
    return message.get("reasoning_content", ""), message["content"]


def test_thoughts_end_with_their_budget(thinking: Live) -> None:
    body: dict[str, Any] = {"chat_template_kwargs": {"thinking": True}, "temperature": 0, "max_tokens": 40}
    free = thoughts(ask(thinking, **body, reasoning_budget_tokens=1000, verbose=True))
    assert free[1] == ""
    raw = ask(thinking, **body, verbose=True)["__verbose"]["content"]
    assert raw.index("</think>") <= 7
    reasoning, content = thoughts(ask(thinking, **body))
    assert free[0].startswith(reasoning)
    assert content
    none = ask(thinking, **body, thinking_budget_tokens=0, reasoning_budget_message=" Enough.", verbose=True)
    assert none["__verbose"]["content"].startswith(" Enough.</think>")
    assert thoughts(none)[0] == "Enough."


def test_a_schema_counts_after_the_thoughts(thinking: Live) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no"]}}}
    body: dict[str, Any] = {"chat_template_kwargs": {"thinking": True}, "response_format": form}
    reasoning, content = thoughts(ask(thinking, **body, reasoning_budget_tokens=5))
    assert json.loads(content) in ("yes", "no")
    assert len(reasoning) <= 20
    chunks = streamed(thinking, **body, reasoning_budget_tokens=5)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == reasoning
    assert "".join(delta.get("content") or "" for delta in deltas) == content


def test_where_thoughts_go(thinking: Live) -> None:
    body: dict[str, Any] = {"chat_template_kwargs": {"thinking": True}, "grammar": 'root ::= "hm</think>Yes."'}
    assert thoughts(ask(thinking, **body)) == ("hm", "Yes.")
    assert thoughts(ask(thinking, **body, reasoning_format="none")) == ("", "<think>hm</think>Yes.")
    assert thoughts(ask(thinking, **body, reasoning_format="deepseek-legacy")) == ("hm", "<think>hm</think>Yes.")
    chunks = streamed(thinking, **body, reasoning_format="deepseek-legacy")
    assert not any("reasoning_content" in chunk["choices"][0]["delta"] for chunk in chunks)


def test_a_server_that_takes_nothing_apart(thinking: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinking.service, "params", replace(thinking.service.params, skip_chat_parsing=True))
    text = '<think>hm</think><tool_call>{\\"name\\": \\"rest\\", \\"arguments\\": {}}</tool_call>'
    reply = ask(thinking, tools=[REST], grammar=f'root ::= "{text}"')
    assert thoughts(reply) == ("", text.replace("\\", ""))


# -- shapes


def test_how_many_tokens_a_chat_has(tiny: Live) -> None:
    counted = tiny.post("/chat/completions/input_tokens", messages=HELLO).json()
    usage = ask(tiny, max_tokens=1)["usage"]
    assert counted["input_tokens"] == usage["prompt_tokens"]


def test_what_the_model_really_read(tiny: Live) -> None:
    assert "__verbose" not in ask(tiny, max_tokens=2)
    verbose = ask(tiny, max_tokens=2, verbose=True)["__verbose"]
    assert "<|im_start|>user" in verbose["prompt"]
    assert verbose["generation_settings"]["n_predict"] == 2
    assert streamed(tiny, max_tokens=2, verbose=True)[-1]["__verbose"]["prompt"] == verbose["prompt"]


def test_every_chunk_of_a_stream_has_its_logprobs(tiny: Live) -> None:
    chunks = streamed(tiny, max_tokens=12, logprobs=True, top_logprobs=2)
    choices = [chunk["choices"][0] for chunk in chunks[1:]]
    assert all("content" in choice["logprobs"] for choice in choices if not choice["finish_reason"])
    assert chunks[0]["system_fingerprint"].startswith("b")


def test_budgets_are_checked(tiny: Live) -> None:
    refused: httpx.Response = tiny.post("/v1/chat/completions", messages=HELLO, reasoning_budget_tokens=-2)
    assert refused.status_code == 400


def test_what_was_begun_is_part_of_the_answer() -> None:
    rules = Rules(prompt="Go.\n<think>hm", begun="<think>hm")
    reader = Reader(rules)
    begun = reader.begin(0, rules.begun)
    more = reader.read(Step(0, " hm</think>Yes."))
    assert (begun.reasoning, more.reasoning, more.content) == ("hm", " hm", "Yes.")
