from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import openai
import pytest

from paceline.server.params import ServerParams
from tests.server.live import Live, live, settings
from tests.server.test_openai import client_of


@pytest.fixture(scope="module")
def server(target: str) -> Iterator[Live]:
    with live(settings(target, n_ctx=1024), ServerParams(port=0, shutdown_timeout=1, embeddings=True)) as server:
        yield server


def test_the_openai_client_gets_vectors_of_length_one(server: Live) -> None:
    client = client_of(server)
    reply = client.embeddings.create(model="target", input=["hello", "world"])
    vectors = [np.array(item.embedding) for item in reply.data]
    assert [item.index for item in reply.data] == [0, 1]
    assert [round(float(np.linalg.norm(v)), 5) for v in vectors] == [1.0, 1.0]
    assert reply.usage.prompt_tokens == reply.usage.total_tokens == 10
    plain = client.embeddings.create(model="target", input="hello", encoding_format="float").data[0].embedding
    assert np.allclose(plain, vectors[0], atol=1e-6)
    assert not np.allclose(vectors[0], vectors[1], atol=1e-2)


def test_a_text_and_its_tokens_are_the_same(server: Live) -> None:
    tokens = server.post("/tokenize", content="hello").json()["tokens"]
    by_text = server.post("/v1/embeddings", input="hello").json()["data"][0]["embedding"]
    by_tokens = server.post("/v1/embeddings", input=[tokens]).json()["data"][0]["embedding"]
    assert by_text == by_tokens


def test_its_tokens_are_counted(server: Live) -> None:
    def n_read() -> float:
        totals = server.service.metrics.totals
        return totals["prompt_n"]

    before = n_read()
    n = server.post("/v1/embeddings", input=["hello", "a longer text"]).json()["usage"]["prompt_tokens"]
    assert n_read() == before + n


def test_llama_server_s_own_address(server: Live) -> None:
    whole = server.post("/v1/embeddings", input="hello").json()["data"][0]["embedding"]
    assert server.post("/embedding", content="hello").json() == [{"index": 0, "embedding": [whole]}]
    assert server.post("/embeddings", input=["hello"]).json() == [{"index": 0, "embedding": [whole]}]


def test_writing_goes_on_beside_it_with_the_same_text(server: Live) -> None:
    body = {"prompt": "abc", "n_predict": 40, "temperature": 0, "ignore_eos": True}
    alone = server.post("/completion", **body).json()["content"]
    with server.http.stream("POST", "/completion", json=body | {"stream": True}) as reply:
        lines = reply.iter_lines()
        next(lines)
        assert server.post("/v1/embeddings", input="hello").status_code == 200
        assert sum(line.startswith("data:") for line in lines) > 1
    assert server.post("/completion", **body).json()["content"] == alone


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": ""}, "nothing to embed"),
        ({"input": []}, "empty"),
        ({"input": [[100000]]}, "tokens that the model does not"),
        ({"input": "x" * 600}, "512 can be embedded at once; raise -ub"),
        ({"input": "x", "dimensions": 3}, "64 dimensions"),
        ({"input": "x", "encoding_format": "int8"}, "encoding_format"),
        ({"input": ["x"] * 3000}, "2048"),
        ({}, "input"),
    ],
)
def test_bad_input_says_what_to_change(server: Live, body: dict[str, object], words: str) -> None:
    reply = server.post("/v1/embeddings", **body)
    assert 400 <= reply.status_code < 500
    assert words in reply.json()["error"]["message"]
    assert server.post("/embedding").status_code == 400


def test_without_the_flag_the_client_hears_why(tiny: Live) -> None:
    with pytest.raises(openai.InternalServerError, match="--embeddings"):
        client_of(tiny).embeddings.create(model="target", input="hello")
