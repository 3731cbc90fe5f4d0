"""LoRA adapters that count as much as each request, or the server, says. Texts are compared with those of engines that
were started so; exactly, for they are computed exactly."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline import Engine
from paceline.cli.flags import parse
from paceline.cli.serve import defaults_of
from paceline.config import ModelParams, Settings
from paceline.server.params import ServerParams
from tests.server.live import Live, live, settings
from tests.tiny import write_adapter

PROMPT = "the cat and the dog"
SCALES = (0.0, 0.3, 1.0)


@pytest.fixture(scope="module")
def model(target: str, tmp_path_factory: pytest.TempPathFactory) -> ModelParams:
    folder = tmp_path_factory.mktemp("adapters")
    entries = {"task_name": "rhyme", "prompt_prefix": "In verse: "}
    paths = [
        write_adapter(folder / f"{i}.gguf", strength=3.0 * (i + 1), entries=entries if i else {}) for i in range(2)
    ]
    return ModelParams(path=target, adapters=((paths[0], 1.0), (paths[1], 0.0)))


def with_model(model: ModelParams) -> Settings:
    options = settings(model.path, n_ctx=6144, n_slots=3, exact=True, spec_types=("suffix",))
    return replace(options, model=model)


@pytest.fixture(scope="module")
def texts(model: ModelParams) -> dict[float, str]:
    """By the scale of the first adapter at the start."""
    found = {}
    for scale in SCALES:
        started = replace(model, adapters=((model.adapters[0][0], scale),))
        with Engine.from_settings(with_model(started)) as engine:
            found[scale] = engine.generate(PROMPT, max_tokens=24, temperature=0).text()
    assert len(set(found.values())) == len(SCALES)
    return found


@pytest.fixture(scope="module")
def server(model: ModelParams) -> Iterator[Live]:
    with live(with_model(model), ServerParams(port=0, shutdown_timeout=1)) as server:
        yield server


def ask(server: Live, scale: float | None = None, **more: Any) -> dict[str, Any]:
    lora = {} if scale is None else {"lora": [{"id": 0, "scale": scale}]}
    reply = server.post("/completion", prompt=PROMPT, n_predict=24, temperature=0, **lora, **more)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def test_requests_side_by_side_have_their_own(server: Live, texts: dict[float, str]) -> None:
    wanted = [*SCALES, *reversed(SCALES), *SCALES]
    with ThreadPoolExecutor(len(wanted)) as askers:
        answers = list(askers.map(lambda scale: ask(server, scale), wanted))
    assert [answer["content"] for answer in answers] == [texts[scale] for scale in wanted]


def test_what_was_read_with_one_is_not_reused_with_another(server: Live) -> None:
    long = "the cat and the dog " * 60

    def cached(scale: float) -> int:
        lora = [{"id": 0, "scale": scale}]
        reply = server.post("/completion", prompt=long, n_predict=1, lora=lora, id_slot=0).json()
        return int(reply["timings"]["cache_n"])

    cached(0.3)
    assert cached(0.3) > 0
    assert cached(0.7) == 0
    assert cached(0.7) > 0


def test_the_server_can_be_told_for_all(server: Live, model: ModelParams, texts: dict[float, str]) -> None:
    def scales() -> list[float]:
        return [adapter["scale"] for adapter in server.http.get("/lora-adapters").json()]

    assert scales() == [1.0, 0.0]
    assert ask(server)["content"] == texts[1.0]
    assert server.http.post("/lora-adapters", json=[{"id": 0, "scale": 0.3}]).json() == {"success": True}
    assert scales() == [0.3, 0.0]
    assert ask(server)["content"] == texts[0.3]
    assert ask(server, 0.0)["content"] == texts[0.0], "a request that says wins"
    server.http.post("/lora-adapters", json=[{"id": 0, "scale": 1}])
    assert scales() == [1.0, 0.0]
    listed = server.http.get("/lora-adapters").json()
    assert [adapter["path"] for adapter in listed] == [path for path, _ in model.adapters]
    assert [(adapter["task_name"], adapter["prompt_prefix"]) for adapter in listed] == [
        ("", ""),
        ("rhyme", "In verse: "),
    ]


def test_a_request_that_names_none_has_the_servers(server: Live, texts: dict[float, str]) -> None:
    reply = ask(server, lora=[])
    assert reply["content"] == texts[1.0]
    assert reply["generation_settings"]["lora"] == []
    settings = ask(server, 0.3)["generation_settings"]
    assert settings["lora"] == [{"id": 0, "scale": 0.3}, {"id": 1, "scale": 0.0}]
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 8, "temperature": 0}
    plain, other = (
        server.post("/v1/chat/completions", **chat, **more).json()["choices"][0]["message"]["content"]
        for more in ({}, {"lora": [{"id": 0, "scale": 0.0}]})
    )
    assert plain != other


@pytest.mark.parametrize(
    "lora", [[{"id": 2, "scale": 1}], [{"id": -1, "scale": 1}], [{"id": 0, "scale": 1e9}], [{}], 3]
)
def test_what_is_no_adapter_is_400(server: Live, lora: object) -> None:
    for path, body in (("/lora-adapters", lora), ("/completion", {"prompt": "x", "n_predict": 1, "lora": lora})):
        reply = server.http.post(path, json=body)
        assert reply.status_code == 400
        assert reply.json()["error"]["message"]


@pytest.mark.parametrize("scale", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_scale_that_is_no_number_is_400(server: Live, scale: str) -> None:
    lora = f'[{{"id": 0, "scale": {scale}}}]'
    for path, body in (("/lora-adapters", lora), ("/completion", f'{{"prompt": "x", "n_predict": 1, "lora": {lora}}}')):
        reply = server.http.post(path, content=body, headers={"content-type": "application/json"})
        assert reply.status_code == 400
        assert reply.json()["error"]["message"]
    assert [adapter["scale"] for adapter in server.http.get("/lora-adapters").json()] == [1.0, 0.0]


def test_they_may_wait_to_be_asked_for(model: ModelParams) -> None:
    words = [word for path, _ in model.adapters for word in ("--lora", path)]
    parsed = parse(["-m", model.path, *words, "--lora-init-without-apply"], "serve")
    params = ServerParams(**parsed.under("server"))
    loaded = ModelParams(**parsed.under("model"))
    assert loaded.adapters == tuple((path, 1.0) for path, _ in model.adapters)
    assert defaults_of(parsed, params, loaded).adapter == "0.0,0.0"
    assert defaults_of(parse(words, "serve"), ServerParams(), loaded).adapter is None


def test_a_slot_of_other_adapters_is_not_saved(model: ModelParams, tmp_path: Path) -> None:
    with Engine.from_settings(with_model(model)) as engine:
        engine.generate(PROMPT, max_tokens=2, adapter="0.5,0.0", slot=0).text()
        with pytest.raises(Exception, match="other adapters"):
            engine.save_slot(0, str(tmp_path / "slot"))
