"""Anthropic's API, through its own Python client where that is installed, by hand where details matter."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest

from paceline.server.anthropic import MessagesBody, as_chat
from paceline.server.anthropic_reply import WORDING
from paceline.server.errors import ApiError
from tests.server.live import Live

pytestmark = pytest.mark.model

HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather in a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
DEEP: Any = "x"
for _ in range(200):
    DEEP = [{"type": "tool_result", "content": DEEP}]
FORCED = {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "get_weather"}}


def events_of(server: Live, **body: Any) -> list[dict[str, Any]]:
    """Each event's name is its type."""
    reply = server.post("/v1/messages", stream=True, **body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    blocks = [block.split("\n") for block in reply.text.strip().split("\n\n")]
    events = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [name.removeprefix("event: ") for name, _ in blocks] == [event["type"] for event in events]
    return events


def folded(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content that a client puts together."""
    content: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(content)
            content.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            key = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "json"}[delta["type"]]
            content[event["index"]][key] += delta.get("partial_json", delta.get("text", delta.get("thinking")))
    for block in content:
        arguments = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(arguments)
    return content


def test_a_message_and_its_stream_say_the_same(tiny: Live) -> None:
    body = {"max_tokens": 12, "temperature": 0, "messages": HELLO, "system": [{"type": "text", "text": "Be brief."}]}
    whole = tiny.post("/v1/messages", **body).json()
    assert whole["id"].startswith("msg_")
    assert (whole["type"], whole["role"], whole["model"]) == ("message", "assistant", "target")
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("max_tokens", None)
    assert whole["usage"]["output_tokens"] == 12
    assert "timings" not in whole
    events = events_of(tiny, **body)
    assert [event["type"] for event in events[:2]] == ["message_start", "content_block_start"]
    assert [event["type"] for event in events[-3:]] == ["content_block_stop", "message_delta", "message_stop"]
    assert folded(events) == whole["content"]
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["usage"]["input_tokens"] > 0
    assert events[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == 12
    n_read = whole["usage"]["input_tokens"] + whole["usage"]["cache_read_input_tokens"]
    counted = tiny.post("/v1/messages/count_tokens", messages=HELLO, system="Be brief.").json()
    assert counted == {"input_tokens": n_read}


def test_a_stop_sequence_is_named(tiny: Live) -> None:
    body = {"max_tokens": 40, "temperature": 0, "messages": HELLO}
    (block,) = tiny.post("/v1/messages", **body).json()["content"]
    word = block["text"][20:24]
    stopped = tiny.post("/v1/messages", **body, stop_sequences=[word]).json()
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", word)
    assert stopped["content"][0]["text"] == block["text"].partition(word)[0]


def test_a_tool_is_used(tiny: Live) -> None:
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    body = {"max_tokens": 200, "temperature": 0, "messages": asked, **FORCED}
    whole = tiny.post("/v1/messages", **body).json()
    (use,) = whole["content"]
    assert (whole["stop_reason"], use["type"], use["name"]) == ("tool_use", "tool_use", "get_weather")
    assert list(use["input"]) == ["city"]
    (streamed,) = folded(events_of(tiny, **body))
    assert streamed["input"] == use["input"]
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": [{"type": "text", "text": "Sunny."}]}
    conversation = [*asked, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    answer = tiny.post("/v1/messages", max_tokens=8, messages=conversation, tools=[WEATHER])
    assert answer.status_code == 200


def test_the_client_of_its_makers(tiny: Live) -> None:
    anthropic: Any = import_module("anthropic")  # whose types want more than a test has to say
    client = anthropic.Anthropic(base_url=tiny.url, api_key="none", max_retries=0)
    message = client.messages.create(model=tiny.service.model_name, max_tokens=16, messages=HELLO)
    assert message.content[0].text
    with client.messages.stream(model=tiny.service.model_name, max_tokens=16, messages=HELLO) as stream:
        assert "".join(stream.text_stream)
        assert stream.get_final_message().usage.output_tokens <= 16
    called = client.messages.create(
        model=tiny.service.model_name,
        max_tokens=200,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        **FORCED,
    )
    assert called.content[0].input["city"]
    assert client.messages.count_tokens(model=tiny.service.model_name, messages=HELLO).input_tokens > 5
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        client.messages.create(
            model=tiny.service.model_name, max_tokens=3, messages=HELLO, extra_body={"temperature": "hot"}
        )


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 400, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, 500, "image input is not"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, 400, "of type 'video'"),
        ({"messages": HELLO, "tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, 400, "not among"),
        ({"messages": HELLO, "temperature": "hot"}, 400, "temperature"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": DEEP}]}]}, 400, "content"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, 400, "tokens"),
    ],
)
def test_errors_have_anthropics_shape(tiny: Live, body: dict[str, Any], status: int, words: str) -> None:
    reply = tiny.post("/v1/messages", **body)
    assert (reply.status_code, reply.json()["type"]) == (status, "error")
    assert words in reply.json()["error"]["message"]


def test_an_error_in_the_middle_of_a_stream_is_an_event() -> None:
    name, data, *_ = WORDING.error(ApiError(503, "gone", "unavailable_error")).decode().split("\n")
    assert name == "event: error"
    told = json.loads(data.removeprefix("data: "))
    assert (told["type"], told["error"]["message"]) == ("error", "gone")


def test_no_messages_are_an_empty_one(tiny: Live) -> None:
    assert tiny.post("/v1/messages", max_tokens=3, messages=[]).status_code == 200


# -- as a chat


def chat_of(**body: Any) -> dict[str, Any]:
    return as_chat(MessagesBody.model_validate(body)).model_dump(exclude_none=True)


def test_turns_become_messages_in_their_order() -> None:
    tool_use = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
    chat = chat_of(
        system=[{"type": "text", "text": "One. "}, {"type": "text", "text": "Two.", "cache_control": {}}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, tool_use]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "42"},
                    {"type": "tool_result", "tool_use_id": "t2"},
                    {"type": "document", "source": {"type": "text", "data": "a note"}},
                ],
            },
        ],
    )
    assert chat["max_tokens"] == 4096
    assert chat["messages"] == [
        {"role": "system", "content": "One. Two."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "42"},
        {"role": "tool", "tool_call_id": "t2", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "a note"}]},
    ]


def test_options_pass() -> None:
    chat = chat_of(
        messages=HELLO,
        max_tokens=7,
        top_k=5,
        seed=3,
        stop_sequences=["x"],
        tools=[WEATHER],
        tool_choice={"type": "any"},
        thinking={"type": "disabled"},
        metadata={"user_id": "somebody"},
    )
    assert (chat["max_tokens"], chat["top_k"], chat["seed"], chat["stop"]) == (7, 5, 3, ["x"])
    assert chat["tool_choice"] == "required"
    assert chat["tools"][0]["function"]["parameters"] == WEATHER["input_schema"]
    assert chat["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_stamp_that_changes_with_every_request_does_not_spoil_the_prefix() -> None:
    stamped = "x-anthropic-billing-header: cc_version=2.1; cch={};You are helpful. cch=12345;"
    first, second = (chat_of(messages=HELLO, system=stamped.format(stamp)) for stamp in ("a5145", "00b1f"))
    assert first["messages"] == second["messages"]
    assert first["messages"][0]["content"].endswith("You are helpful. cch=12345;")


def test_an_image_in_a_tools_result_is_refused() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {}}]}
    with pytest.raises(ApiError, match="image input is not supported"):
        chat_of(messages=[{"role": "user", "content": [result]}])
