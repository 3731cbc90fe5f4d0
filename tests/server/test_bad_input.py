"""Whatever is sent, the answer is 4xx and says what to change; and every slot is free afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.live import Live

pytestmark = pytest.mark.model

CHAT, TEXT, NATIVE = "/v1/chat/completions", "/v1/completions", "/completion"
HI = [{"role": "user", "content": "Hi"}]
DEEP = "[" * 100_000 + "]" * 100_000
TOOL = {"type": "function", "function": {"name": "f"}}


def chat(**body: Any) -> tuple[str, Any]:
    return CHAT, {"messages": HI, "max_tokens": 4, **body}


def text(**body: Any) -> tuple[str, Any]:
    return TEXT, {"prompt": "Hi", "max_tokens": 4, **body}


def native(**body: Any) -> tuple[str, Any]:
    return NATIVE, {"prompt": "Hi", "n_predict": 4, **body}


RAW = [
    (b"", "body"),
    (b"{", "not JSON"),
    (b"nonsense", "not JSON"),
    (b'{"messages": [}', "not JSON"),
    (b"[]", "body"),
    (b"7", "body"),
    (b"null", "body"),
    (b'"text"', "body"),
    (b"\xff\xfe{}", "not JSON"),
    (b'{"messages": ' + DEEP.encode() + b"}", "not JSON"),
    (b'{"seed": ' + b"9" * 5000 + b"}", "not JSON"),
]

WRONG: list[tuple[tuple[str, Any], str]] = [
    ((CHAT, {}), "messages"),
    (chat(messages=[]), "messages"),
    (chat(messages="Hi"), "messages"),
    (chat(messages=[{"content": "no role"}]), "role"),
    (chat(messages=[{"role": "user", "content": 7}]), "content"),
    (chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]), "text only"),
    (chat(messages=[{"role": "user", "content": "a" * 3000}]), "a slot holds"),
    (chat(temperature="hot"), "temperature"),
    (chat(temperature=True), "temperature"),
    (chat(temperature=float("nan")), "temperature"),
    (chat(temperature=1e300), "temperature"),
    (chat(top_p=-1), "top_p"),
    (chat(top_p=3), "top_p"),
    (chat(top_k=2**70), "top_k"),
    (chat(max_tokens=-5), "max_tokens"),
    (chat(max_tokens=1e18), "max_tokens"),
    (chat(max_tokens=1.5), "max_tokens"),
    (chat(max_tokens="many"), "max_tokens"),
    (chat(n=0), "n"),
    (chat(n=10**9), "n"),
    (chat(seed=-5), "seed"),
    (chat(seed=2**70), "seed"),
    (chat(stream="yes"), "stream"),
    (chat(stop=["x"] * 10_000), "stop"),
    (chat(stop=[7]), "stop"),
    (chat(stop="\ud800"), "surrogate"),
    (chat(messages=[{"role": "user", "content": "lone \udfff"}]), "surrogate"),
    (chat(logit_bias={"99999999": 1}), "logit_bias"),
    (chat(logit_bias={"65": "much"}), "logit_bias"),
    (chat(logit_bias=[[65, True]]), "logit_bias"),
    (chat(logit_bias=[[65, 10**400]]), "logit_bias"),
    (chat(repeat_penalty=0), "repeat_penalty"),
    (chat(samplers=["magic"]), "sampler"),
    (chat(mirostat=7), "mirostat"),
    (chat(id_slot=55), "no slot 55"),
    (chat(logprobs=True, top_logprobs=999), "top_logprobs"),
    (chat(response_format={"type": "xml"}), "response_format"),
    (chat(response_format={"type": "json_schema"}), "needs json_schema.schema"),
    (chat(response_format={"type": "json_schema", "json_schema": {"schema": {"type": "wrong"}}}), "grammar"),
    (chat(response_format={"type": "json_object"}, grammar='root ::= "a"'), "one of"),
    (chat(grammar="root ::= ("), "grammar"),
    (chat(grammar="x" * 300_000), "grammar"),
    (chat(tools=[{"type": "function"}]), "function"),
    (chat(tools=[{"type": "function", "function": {"name": ""}}]), "name"),
    (chat(tools=[TOOL] * 1000), "tools"),
    (chat(tool_choice="required"), "no tools"),
    (chat(tool_choice="sometimes"), "tool_choice"),
    (chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}}), "'g'"),
    (
        chat(
            tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": 5}}}], tool_choice="required"
        ),
        "",
    ),
    (chat(chat_template_kwargs={"messages": []}), "messages"),
    (chat(chat_template_kwargs=[]), "chat_template_kwargs"),
    (chat(reasoning_format="loud"), "reasoning_format"),
    (chat(speculative={"n_max": -3}), "n_max"),
    (chat(**{"speculative.types": "crystal-ball"}), "crystal-ball"),
    (text(prompt=None), "prompt"),
    (text(prompt=[]), "prompt"),
    (text(prompt=""), "empty"),
    (text(prompt={"a": 1}), "prompt"),
    (text(prompt=[1.5]), "prompt"),
    (text(prompt=[10**9]), "outside the vocabulary"),
    (text(prompt=[-1]), "outside the vocabulary"),
    (text(prompt=["a"] * 1000), "too many"),
    (text(prompt="\ud800"), "UTF-8"),
    (text(suffix="after"), "suffix"),
    (text(best_of=3), "best_of"),
    (text(logprobs=50), "logprobs"),
    (native(n_probs=10**9), "n_probs"),
    (native(n_probs=-1), "n_probs"),
    (native(prompt=[[[1]]]), "prompt"),
    (native(json_schema={"type": "wrong"}), "grammar"),
    (native(json_schema=7), "json_schema"),
    (native(json_schema=False), "allows nothing"),
    (native(dry_sequence_breakers=["x"] * 5000), "dry_sequence_breakers"),
    (native(prompt={"prompt_string": "a", "multimodal_data": ["x"]}), "text only"),
    (native(samplers="magic"), "letter"),
    (native(response_fields=["content"] * 1000), "response_fields"),
    (native(adaptive_decay=2), "adaptive_decay"),
    (("/tokenize", {"content": "\ud800"}), "surrogate"),
    (("/tokenize", {"content": 5}), "content"),
    (("/detokenize", {"tokens": [-1]}), "token ids"),
    (("/detokenize", {"tokens": ["a"]}), "tokens"),
    (("/apply-template", {"messages": 5}), "messages"),
    (("/infill", {"input_prefix": "a"}), "input_suffix"),
    (("/slots/0?action=dance", {}), "action"),
    (("/slots/x?action=erase", {}), "id_slot"),
    (("/v1/embeddings", {"input": "x"}), "embeddings"),
]


def check(status: int, body: Any, words: str) -> None:
    assert 400 <= status < 500 or status == 501, body
    error = body["error"]
    assert set(error) >= {"message", "type", "code", "param"}
    assert words in error["message"], error["message"]


@pytest.mark.parametrize("path", [CHAT, TEXT, NATIVE, "/tokenize", "/infill"])
@pytest.mark.parametrize(("data", "words"), RAW, ids=range(len(RAW)))
def test_broken_bodies(tiny: Live, path: str, data: bytes, words: str) -> None:
    reply = tiny.http.post(path, content=data)
    check(reply.status_code, reply.json(), words)


@pytest.mark.parametrize(("sent", "words"), WRONG, ids=[f"{i}-{path}" for i, ((path, _), _) in enumerate(WRONG)])
def test_wrong_bodies(tiny: Live, sent: tuple[str, Any], words: str) -> None:
    path, body = sent
    reply = tiny.http.post(path, content=json.dumps(body).encode())
    check(reply.status_code, reply.json(), words)
    if "stream" not in body:
        streamed = tiny.http.post(path, content=json.dumps({**body, "stream": True}).encode())
        check(streamed.status_code, streamed.json(), words)


def test_huge_bodies(tiny: Live) -> None:
    limit = tiny.service.params.max_body
    reply = tiny.http.post(CHAT, content=b"x" * (limit + 1))
    check(reply.status_code, reply.json(), "larger than")
    assert reply.status_code == 413
    unannounced = tiny.http.post(CHAT, content=(b"x" * 2**20 for _ in range(limit // 2**20 + 2)))
    check(unannounced.status_code, unannounced.json(), "larger than")


def test_addresses_and_methods(tiny: Live) -> None:
    for path in ("/no/such/thing", "/" + "x" * 300, "/" + "y" * 5000, "/%ff%00"):
        reply = tiny.http.get(path)
        assert reply.status_code == 404
        check(reply.status_code, reply.json(), "nothing at this address")
    reply = tiny.http.get(CHAT)
    assert reply.status_code == 405
    check(reply.status_code, reply.json(), "another method")


def test_what_is_fine_is_let_through(tiny: Live) -> None:
    fine: list[tuple[str, Any]] = [
        chat(model="", user="me", unknown_field=[1, {"a": 2}], metadata={}),
        chat(model="gpt-4o"),
        chat(temperature=None, stop=None, tools=None, response_format=None, n=None),
        chat(max_tokens=4.0, top_k=-1, seed=2**32 - 1),
        chat(tools=[], tool_choice="auto"),
        chat(response_format={"type": "text"}),
        native(id_slot=-1, n_predict=-1, max_tokens=3),
        native(logit_bias=[["hello", -1.5], [65, False]]),
        native(n_predict=0),
        native(model="gpt-4o", samplers="kpt", n_probs=2, post_sampling_probs=True),
        native(samplers=["Top-K", "topP", "temp", "nucleus"]),
        ("/tokenize", {}),
        ("/detokenize", {}),
    ]
    for path, body in fine:
        assert tiny.http.post(path, content=json.dumps(body).encode()).status_code == 200, body
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert tiny.http.post(NATIVE, content=b'{"prompt": "Hi", "n_predict": 1}', headers=form).status_code == 200


def test_no_slot_is_lost(tiny: Live) -> None:
    assert tiny.idle()
    assert not tiny.service.running
    replies = [tiny.post(NATIVE, prompt="Hi", n_predict=2) for _ in range(4)]
    assert [reply.status_code for reply in replies] == [200] * 4
