from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from paceline.errors import ConfigError
from paceline.server.params import ServerParams
from paceline.server.vertex import camel_case, configured
from tests.server.live import Live, live, settings

ENVIRONMENT = {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "7070", "AIP_HEALTH_ROUTE": "ping/"}
CHAT: dict[str, Any] = {"max_tokens": 4, "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def vertex(target: str) -> Iterator[Live]:
    params = ServerParams(port=0, shutdown_timeout=1, api_keys=("key",), predict_route="/predict", health_route="/ping")
    with live(settings(target, n_ctx=1024), params) as server:
        server.http.headers["Authorization"] = "Bearer key"
        yield server


def test_the_environment_says_where_to_listen() -> None:
    params = ServerParams(port=1234)
    assert configured(params, {"AIP_HTTP_PORT": "7070"}) is params
    found = configured(params, ENVIRONMENT)
    assert (found.port, found.predict_route, found.health_route) == (7070, "/predict", "/ping")
    with pytest.raises(ConfigError, match="AIP_HTTP_PORT"):
        configured(params, {**ENVIRONMENT, "AIP_HTTP_PORT": "x"})


def test_names_of_addresses() -> None:
    assert camel_case("/v1/chat/completions") == "chatCompletions"
    assert camel_case("/apply-template") == "applyTemplate"
    assert camel_case("/v1/messages/count_tokens") == "messagesCountTokens"


def test_each_instance_is_answered_by_the_address_it_names(vertex: Live) -> None:
    chat, tokens, wrong, unknown = vertex.post(
        "/predict",
        instances=[
            {"@requestFormat": "chatCompletions", **CHAT, "stream": True},
            {"@requestFormat": "/tokenize", "content": "hello"},
            {"@requestFormat": "completions", "prompt": 1.5},
            {"@requestFormat": "no such thing"},
        ],
    ).json()["predictions"]
    assert chat["choices"][0]["message"]["role"] == "assistant"
    assert len(tokens["tokens"]) == 5
    assert wrong["error"]["code"] == 400
    assert "chatCompletions" in unknown["error"]["message"]
    assert vertex.idle()


def test_health_needs_no_key_and_predictions_do(vertex: Live) -> None:
    assert httpx.get(f"{vertex.url}/ping", timeout=60).json() == {"status": "ok"}
    assert httpx.post(f"{vertex.url}/predict", json={"instances": []}, timeout=60).status_code == 401


@pytest.mark.parametrize("body", [{}, {"instances": "x"}, {"instances": [1]}, {"instances": [{}] * 129}])
def test_bodies_that_are_none(vertex: Live, body: dict[str, Any]) -> None:
    assert vertex.post("/predict", **body).status_code == 400
