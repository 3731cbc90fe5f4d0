"""OpenAI's Responses API, through its own Python client where that is what people use."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel, Field

from paceline.server.responses import ResponsesBody, as_chat
from tests.server.live import Live
from tests.server.test_openai import client_of

pytestmark = pytest.mark.model

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def client(tiny: Live) -> Any:
    """Typed loosely: its parameters are typed dictionaries, which plain ones are not."""
    return client_of(tiny)


@pytest.fixture(scope="module")
def model(tiny: Live) -> str:
    return tiny.service.model_name


def test_a_response(client: Any, model: str) -> None:
    reply = client.responses.create(model=model, input="Say hello.", instructions="Be brief.", max_output_tokens=40)
    assert reply.id.startswith("resp_")
    assert reply.output[0].id.startswith("msg_")
    assert reply.output_text
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    assert reply.instructions == "Be brief."
    cut = client.responses.create(model=model, input="Tell a long story.", max_output_tokens=3)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_a_stream_amounts_to_the_response(client: Any, model: str) -> None:
    body = {"model": model, "input": "Name a colour.", "max_output_tokens": 24, "temperature": 0}
    events = list(client.responses.create(**body, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    final = events[-1].response
    assert final.output_text == text == client.responses.create(**body).output_text
    assert {event.item_id for event in events if hasattr(event, "item_id")} == {final.output[0].id}
    assert events[0].response.id == final.id


def test_the_stream_helper_of_the_client(client: Any, model: str) -> None:
    with client.responses.stream(model=model, input="Say hello.", max_output_tokens=16) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text


def test_a_tool_is_called_and_its_output_read(client: Any, model: str) -> None:
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    choice = {"type": "function", "name": "get_weather"}
    body = {"model": model, "tools": [WEATHER, {"type": "web_search"}], "temperature": 0, "max_output_tokens": 200}
    events = list(client.responses.create(**body, input=asked, tool_choice=choice, stream=True))
    (call,) = events[-1].response.output
    assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")
    assert json.loads(call.arguments)["city"]
    parts = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(parts) == call.arguments
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    reply = client.responses.create(**body, input=[*asked, call.to_dict(), output])
    assert reply.output


def test_an_answer_of_a_given_shape(client: Any, model: str) -> None:
    class Colour(BaseModel):
        name: str = Field(max_length=12)

    reply = client.responses.parse(model=model, input="Name a colour.", text_format=Colour, max_output_tokens=200)
    assert isinstance(reply.output_parsed, Colour)


def test_prompts_are_counted(tiny: Live) -> None:
    counted = tiny.post("/v1/responses/input_tokens", input="hello").json()
    assert counted["object"] == "response.input_tokens"
    reply = tiny.post("/responses", input="hello", max_output_tokens=2).json()
    assert counted["input_tokens"] == reply["usage"]["input_tokens"] > 5
    assert reply["timings"]["predicted_n"] == 2


def test_timings_on_request(tiny: Live) -> None:
    reply = tiny.post("/responses", input="hello", max_output_tokens=4, stream=True, timings_per_token=True)
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]
    events = [json.loads(line) for line in lines]
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert any("timings" in event for event in deltas)
    assert events[-1]["timings"]["predicted_n"] == 4


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "input"),
        ({"input": []}, "input: the list is empty"),
        ({"input": "x", "previous_response_id": "resp_1"}, "nothing is stored"),
        ({"input": [{"type": "web_search_call"}]}, "'web_search_call'"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "'input_file'"),
        ({"input": "x", "tools": [WEATHER], "tool_choice": {"type": "function", "name": "y"}}, "not among"),
    ],
)
def test_bad_input_says_what_to_change(tiny: Live, body: dict[str, Any], words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        client_of(tiny).post("/responses", body=body, cast_to=object)


def test_an_image_is_refused(tiny: Live) -> None:
    reply = tiny.post("/v1/responses", input=[{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])
    assert (reply.status_code, "image input is not supported" in reply.text) == (500, True)


def test_items_become_messages() -> None:
    body = ResponsesBody.model_validate(
        {
            "instructions": "Be brief.",
            "input": [
                {"role": "developer", "content": "Really."},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"type": "reasoning", "summary": [], "encrypted_content": "..."},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well."}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "1"},
                {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
            ],
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        }
    )
    chat = as_chat(body).model_dump(exclude_none=True)
    assert chat["reasoning_effort"] == "low"
    assert chat["response_format"]["json_schema"] == {"name": "n", "schema": {"type": "object"}}
    assert chat["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Really."},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": "Well.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
    ]
