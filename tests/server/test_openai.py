"""OpenAI's API: through its own Python client where that is what people use, by hand where details matter."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from paceline.server.params import ServerParams
from tests.server.live import Live, live, settings

pytestmark = pytest.mark.model

HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "get_time"}}


def client_of(server: Live, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


@pytest.fixture(scope="module")
def client(tiny: Live) -> Any:
    """Typed loosely: its parameters are typed dictionaries, which plain ones are not."""
    return client_of(tiny)


def test_models(client: Any) -> None:
    (model,) = client.models.list()
    assert model.id == "target"
    assert client.models.retrieve("target").object == "model"
    with pytest.raises(openai.NotFoundError, match="this server has 'target'"):
        client.models.retrieve("gpt-9")


def test_chat(client: Any) -> None:
    reply = client.chat.completions.create(model="target", messages=HELLO, max_tokens=9, temperature=0)
    assert reply.object == "chat.completion"
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[0].message.role == "assistant"
    assert reply.usage
    assert reply.usage.completion_tokens == 9
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 9
    assert reply.model_extra
    assert reply.model_extra["timings"]["predicted_n"] == 9


def test_a_chat_streamed_is_the_same_chat(client: Any) -> None:
    whole = client.chat.completions.create(model="target", messages=HELLO, max_tokens=25, seed=5)
    stream = client.chat.completions.create(
        model="target", messages=HELLO, max_tokens=25, seed=5, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage
    assert whole.usage
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({c.id for c in chunks}) == 1


def test_chunks_tell_who_wrote_what_when_asked(tiny: Live) -> None:
    body = {"messages": HELLO, "max_tokens": 12, "stream": True, "timings_per_token": True, "ignore_eos": True}
    with tiny.http.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    with_pieces = [chunk for chunk in chunks if "paceline" in chunk]
    assert with_pieces
    assert all(chunk["timings"]["prompt_n"] >= 0 for chunk in with_pieces)
    pieces = [piece for chunk in with_pieces for piece in chunk["paceline"]["pieces"]]
    assert len(pieces) == 12
    assert all(set(piece) == {"text", "source"} for piece in pieces)


def test_choices_have_their_own_texts(client: Any) -> None:
    extra = {"ignore_eos": True}

    def texts(seed: int) -> list[str | None]:
        reply = client.chat.completions.create(
            model="target", messages=HELLO, max_tokens=9, n=3, seed=seed, extra_body=extra
        )
        assert reply.usage
        assert reply.usage.completion_tokens == 27
        assert [choice.index for choice in reply.choices] == [0, 1, 2]
        return [choice.message.content for choice in reply.choices]

    first = texts(11)
    assert len(set(first)) == 3
    assert texts(11) == first
    stream = client.chat.completions.create(
        model="target", messages=HELLO, max_tokens=9, n=3, seed=11, stream=True, extra_body=extra
    )
    joined = ["", "", ""]
    for chunk in stream:
        joined[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert joined == first


def test_logprobs(client: Any) -> None:
    reply = client.chat.completions.create(
        model="target", messages=HELLO, max_tokens=6, logprobs=True, top_logprobs=4, temperature=0
    )
    assert reply.choices[0].logprobs
    content = reply.choices[0].logprobs.content
    assert content
    assert len(content) == 6
    assert all(len(entry.top_logprobs) == 4 for entry in content)
    assert content[0].logprob == max(top.logprob for top in content[0].top_logprobs)
    assert b"".join(bytes(entry.bytes or ()) for entry in content).decode(errors="replace")
    with pytest.raises(openai.BadRequestError, match="needs logprobs"):
        client.chat.completions.create(model="target", messages=HELLO, top_logprobs=4)


def test_completions(client: Any) -> None:
    reply = client.completions.create(
        model="target", prompt="The cat", max_tokens=7, logprobs=2, echo=True, temperature=0
    )
    choice = reply.choices[0]
    assert choice.text.startswith("The cat")
    assert choice.logprobs
    assert choice.logprobs.tokens
    assert len(choice.logprobs.tokens) == 7
    assert choice.logprobs.text_offset
    assert choice.logprobs.text_offset[0] == 7
    many = client.completions.create(model="target", prompt=["The cat", "The dog"], n=2, max_tokens=3)
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    assert many.usage
    assert many.usage.prompt_tokens == 14
    stream = client.completions.create(model="target", prompt="The cat", max_tokens=7, temperature=0, stream=True)
    assert "The cat" + "".join(chunk.choices[0].text for chunk in stream) == choice.text


def test_stop_seed_bias_and_penalties(client: Any) -> None:
    def ask(**options: Any) -> str:
        reply = client.chat.completions.create(model="target", messages=HELLO, max_tokens=30, **options)
        return reply.choices[0].message.content or ""

    whole = ask(temperature=0)
    assert ask(temperature=0, stop=whole[9:12]) == whole[: whole.index(whole[9:12])]
    assert ask(seed=3) == ask(seed=3)
    assert ask(temperature=0, logit_bias={"65": 100}) == "A" * 30
    assert ask(temperature=0, presence_penalty=2, frequency_penalty=2) != whole


def test_json_schema(client: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"enum": ["yes", "no"]}, "n": {"type": "integer", "maximum": 9, "minimum": 0}},
        "required": ["answer", "n"],
        "additionalProperties": False,
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    reply = client.chat.completions.create(model="target", messages=HELLO, response_format=form, max_tokens=60)
    answer = json.loads(reply.choices[0].message.content or "")
    assert answer["answer"] in ("yes", "no")
    assert 0 <= answer["n"] <= 9
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="target", messages=HELLO, response_format=form)


@pytest.mark.parametrize("stream", [False, True])
def test_a_forced_tool_call(client: Any, stream: bool) -> None:
    choice: Any = {"type": "function", "function": {"name": "get_weather"}}
    options: dict[str, Any] = {"model": "target", "messages": HELLO, "tools": [CLOCK, WEATHER], "tool_choice": choice}
    options["logit_bias"] = {"34": 50, "125": 50}  # random words would go on for long: quotes and braces end them
    if stream:
        chunks = [c.choices[0] for c in client.chat.completions.create(**options, stream=True, max_tokens=120, seed=1)]
        deltas = [call for c in chunks for call in c.delta.tool_calls or ()]
        assert "".join(c.delta.content or "" for c in chunks) == ""
        reason, function = chunks[-1].finish_reason, deltas[0].function
        assert len(deltas) > 2
        assert {delta.index for delta in deltas} == {0}
        assert [delta.id for delta in deltas[1:]] == [None] * (len(deltas) - 1)
        function.arguments = "".join(delta.function.arguments for delta in deltas)
    else:
        reply = client.chat.completions.create(**options, max_tokens=120, seed=1).choices[0]
        assert reply.message.tool_calls
        reason, function = reply.finish_reason, reply.message.tool_calls[0].function
    assert reason == "tool_calls"
    assert function
    assert function.name == "get_weather"
    assert isinstance(json.loads(function.arguments or "")["city"], str)


def test_a_required_tool_call_picks_one(client: Any) -> None:
    reply = client.chat.completions.create(
        model="target", messages=HELLO, tools=[CLOCK], tool_choice="required", max_tokens=200, logit_bias={"125": 50}
    ).choices[0]
    assert reply.message.tool_calls
    assert reply.message.tool_calls[0].function.name == "get_time"
    assert reply.message.content is None


def test_a_conversation_with_tool_results(client: Any) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What time is it?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "noon"},
    ]
    reply = client.chat.completions.create(model="target", messages=messages, tools=[CLOCK], max_tokens=5)
    assert reply.choices[0].message.content is not None


def test_thoughts_come_apart(target: str) -> None:
    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}{{ '<think>' if thinking }}\n"
    params = ServerParams(port=0, chat_template=template, chat_template_kwargs='{"thinking": true}')
    with live(settings(target), params) as server:
        body = {"messages": HELLO, "max_tokens": 60, "grammar": 'root ::= "hm \\n</think>\\n\\nYes."'}
        message = server.post("/v1/chat/completions", **body).json()["choices"][0]["message"]
        assert message["reasoning_content"] == "hm"
        assert message["content"] == "Yes."
        whole = server.post("/v1/chat/completions", **body, reasoning_format="none").json()["choices"][0]["message"]
        assert whole["content"] == "<think>hm \n</think>\n\nYes."
        off = server.post("/v1/chat/completions", **body, chat_template_kwargs={"thinking": False}).json()
        assert off["choices"][0]["message"]["content"] == "hm \n</think>\n\nYes."


def test_the_whole_of_it_with_words(talking: Live) -> None:
    client = client_of(talking)
    name = client.models.list().data[0].id
    reply = client.chat.completions.create(
        model=name,
        messages=[{"role": "user", "content": "What is the capital city of France? Answer in one sentence."}],
        temperature=0,
        max_tokens=30,
    )
    assert "Paris" in (reply.choices[0].message.content or "")
    assert reply.choices[0].finish_reason == "stop"


def test_every_way_to_ask_gives_the_same_text(talking: Live) -> None:
    """Issue 4/4: the library, /completion and /v1/chat/completions in exact mode."""
    messages = [{"role": "user", "content": "List three colours, then list them again."}]
    prompt = talking.service.engine.chat_template.render(messages)
    ways: list[dict[str, Any]] = [{"temperature": 0.0}, {"temperature": 0.9, "seed": 4}]
    for options in ways:
        library = talking.service.engine.generate(prompt, max_tokens=40, **options).text()
        native = talking.post("/completion", prompt=prompt, n_predict=40, **options).json()["content"]
        chat = talking.post("/v1/chat/completions", messages=messages, max_tokens=40, **options).json()
        assert native == library
        assert chat["choices"][0]["message"]["content"] == library
