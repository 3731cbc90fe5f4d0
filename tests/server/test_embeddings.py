from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from paceline.config import ContextParams, ModelParams, Settings
from paceline.errors import ModelError
from paceline.process.supervisor import ChildEngine
from paceline.server import embeddings
from paceline.server.params import ServerParams
from paceline.server.service import Service
from tests.server.live import Live, live, settings
from tests.server.test_openai import client_of
from tests.tiny import write_bert


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
        ({"input": "x", "dimensions": 65}, "64 dimensions"),
        ({"input": {"content": [{"type": "image_url"}]}}, "reads text only"),
        ({"input": {"content": []}}, "input"),
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
    with pytest.raises(openai.InternalServerError, match="--embeddings") as refusal:
        client_of(tiny).embeddings.create(model="target", input="hello")
    assert refusal.value.status_code == 501
    refused = tiny.post("/v1/rerank", query="a", documents=["b"])
    assert (refused.status_code, "--reranking" in refused.text) == (501, True)


# -- models that only embed, and models that rank


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_bert(tmp_path_factory.mktemp("bert") / "bert.gguf")
    with live(settings(path), ServerParams(port=0, shutdown_timeout=1, embeddings=True)) as server:
        yield server


def pooled(model: str, pooling: str | None, **params: Any) -> AbstractContextManager[Live]:
    wanted = Settings(model=ModelParams(path=model), context=ContextParams(n_threads=1, pooling=pooling))
    return live(wanted, ServerParams(port=0, shutdown_timeout=1, **params))


def vectors(reply: httpx.Response) -> Any:
    assert reply.status_code == 200, reply.text
    return np.array([item["embedding"] for item in reply.json()["data"]])


def test_a_model_that_only_embeds_serves_that_and_refuses_the_rest(bert: Live) -> None:
    found = client_of(bert).embeddings.create(model="bert", input=["hello", "world", "hello"])
    first, second, third = (np.array(item.embedding) for item in found.data)
    assert first.shape == (32,)
    assert np.array_equal(first, third)
    assert not np.allclose(first, second, atol=1e-2)
    for path, body in (
        ("/completion", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}),
        ("/v1/responses", {"input": "a"}),
    ):
        refused = bert.post(path, **body)
        assert (refused.status_code, refused.json()["error"]["type"]) == (501, "not_supported_error")
    assert bert.http.get("/health").status_code == 200
    assert bert.http.get("/slots").json() == []
    assert bert.http.get("/props").status_code == 200


def test_a_killed_child_is_replaced(bert: Live) -> None:
    before = vectors(bert.post("/v1/embeddings", input="hello"))
    backend = bert.service.engine.backend
    assert isinstance(backend, ChildEngine)
    assert backend.pid
    os.kill(backend.pid, signal.SIGKILL)
    assert np.array_equal(vectors(bert.post("/v1/embeddings", input="hello")), before)
    assert bert.http.get("/health").json()["restarts"] == 1


def test_neighbours_in_a_batch_change_nothing(bert: Live) -> None:
    texts = ["a", "bc" * 20, "def", *("word " * n for n in range(1, 12))]
    together = vectors(bert.post("/v1/embeddings", input=texts))
    alone = np.concatenate([vectors(bert.post("/v1/embeddings", input=text)) for text in texts])
    assert np.allclose(together, alone, atol=1e-3)
    assert not np.allclose(together[0], together[1], atol=1e-2)


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"prompt_string": "hello"}, ["hello"]),
        ({"content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}, ["hello"]),
        (["a", {"prompt_string": "b"}, {"content": [{"type": "text", "text": "c"}]}], ["a", "b", "c"]),
        ([104, 101, "llo"], ["hello"]),
        (["a", [98, "c"]], ["a", "bc"]),
    ],
)
def test_every_shape_of_input(bert: Live, given: Any, same: list[str]) -> None:
    assert np.allclose(
        vectors(bert.post("/v1/embeddings", input=given)), vectors(bert.post("/v1/embeddings", input=same)), atol=1e-5
    )


def test_fewer_dimensions_and_other_norms(bert: Live) -> None:
    whole = vectors(bert.post("/v1/embeddings", input="hello", embd_normalize=-1))[0]
    short = vectors(bert.post("/v1/embeddings", input="hello", dimensions=8))[0]
    assert np.allclose(short, whole[:8] / np.linalg.norm(whole[:8]), atol=1e-5)
    taxicab = vectors(bert.post("/v1/embeddings", input="hello", embd_normalize=1))[0]
    assert np.allclose(taxicab, whole / np.abs(whole).sum(), atol=1e-5)
    largest = vectors(bert.post("/v1/embeddings", input="hello", embd_normalize=0))[0]
    assert np.allclose(largest, 32760 * whole / np.abs(whole).max(), rtol=1e-4)


def test_without_pooling_every_token_has_a_vector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pooled(write_bert(tmp_path / "bert.gguf"), "none", embeddings=True) as server:
        two = server.post("/embeddings", input=["hello", "worlds"]).json()
        assert [len(item["embedding"]) for item in two] == [5, 6]
        (alone,) = server.post("/embeddings", input="worlds").json()
        assert np.allclose(alone["embedding"], two[1]["embedding"], atol=1e-5)
        refused = server.post("/v1/embeddings", input="hello")
        assert (refused.status_code, "--pooling none" in refused.text) == (400, True)
        monkeypatch.setattr(embeddings, "MAX_VALUES", 32 * 10)
        assert server.post("/embedding", content="x" * 10).status_code == 200
        refused = server.post("/embedding", content=["x" * 6, "y" * 5])
        assert (refused.status_code, "11 vectors of 32 numbers" in refused.text) == (400, True)


def test_reranking(tmp_path: Path) -> None:
    documents = ["abc", "hello you", "world and more", "abc"]
    with pooled(write_bert(tmp_path / "ranks.gguf", ranks=True), None, reranking=True) as server:
        reply = server.post("/v1/rerank", query="hi", documents=documents).json()
        scores = [found["relevance_score"] for found in reply["results"]]
        assert scores == sorted(scores, reverse=True)
        assert sorted(found["index"] for found in reply["results"]) == [0, 1, 2, 3]
        assert reply["usage"]["prompt_tokens"] == 4 * 2 + sum(map(len, documents))
        same = {found["relevance_score"] for found in reply["results"] if found["index"] in (0, 3)}
        assert len(same) == 1
        tei = server.post("/rerank", query="hi", texts=documents, top_n=2, return_text=True).json()
        assert [found["score"] for found in tei] == scores[:2]
        assert all(found["text"] == documents[found["index"]] for found in tei)
        for documents_of_sorts in ([], None, 123, [1, 2], ["x"] * 3000):
            assert server.post("/reranking", query="hi", documents=documents_of_sorts).status_code == 400
        assert "too large" in server.post("/v1/reranking", query="q" * 70, documents=["a"] * 9).text
        assert server.post("/v1/embeddings", input="a").status_code == 501


def test_a_server_that_could_not_answer_ends_at_once(tmp_path: Path) -> None:
    bert, ranks = write_bert(tmp_path / "bert.gguf"), write_bert(tmp_path / "ranks.gguf", ranks=True)
    for model, params, words in (
        (bert, ServerParams(port=0), "start it with --embeddings"),
        (ranks, ServerParams(port=0, embeddings=True), "start it with --reranking"),
    ):
        service = Service(settings(model), params, process=False)
        with pytest.raises(ModelError, match=words):
            service.load()
