"""llama-server's API on tiny random weights: its names, its shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.server.params import ServerParams
from tests.server.live import Live, live, settings

pytestmark = pytest.mark.model


def events(response: httpx.Response) -> list[str]:
    return [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]


def test_health(tiny: Live) -> None:
    assert tiny.http.get("/health").json() == {"status": "ok"}


def test_health_while_loading(target: str) -> None:
    with live(settings(target), load=False) as server:
        server.service.progress = 0.25
        reply = server.http.get("/health")
        assert reply.status_code == 503
        assert reply.headers["retry-after"]
        error = reply.json()["error"]
        assert error["message"] == "Loading model"
        assert error["type"] == "unavailable_error"
        assert (error["status"], error["progress"]) == ("loading model", 0.25)
        assert server.post("/completion", prompt="x").status_code == 503
        server.service.load()
        assert server.http.get("/health").json() == {"status": "ok"}


def test_completion_has_llama_servers_fields(tiny: Live) -> None:
    reply = tiny.post("/completion", prompt="The cat", n_predict=8, temperature=0, seed=1).json()
    assert reply["stop"] is True
    assert reply["tokens_predicted"] == 8
    assert reply["tokens_evaluated"] == 7
    assert reply["stop_type"] == "limit"
    assert reply["stopping_word"] == ""
    assert reply["prompt"] == "The cat"
    assert reply["tokens"] == []
    assert reply["truncated"] is False
    assert reply["id_slot"] in (0, 1)
    assert reply["generation_settings"]["temperature"] == 0
    assert reply["generation_settings"]["n_predict"] == 8
    assert {"adaptive_target", "samplers", "lora", "grammar_lazy", "n_probs"} <= set(reply["generation_settings"])
    timings = reply["timings"]
    assert timings["predicted_n"] == 8
    assert timings["prompt_n"] + timings["cache_n"] == 7
    assert timings["draft_n"] == timings["draft_n_accepted"] == 0
    assert all(value >= 0 for value in timings.values())


def test_speeds_do_not_count_the_token_that_comes_with_the_prompt(tiny: Live) -> None:
    one = tiny.post("/completion", prompt="The cat", n_predict=1).json()["timings"]
    assert (one["predicted_per_second"], one["predicted_per_token_ms"]) == (0, 0)
    six = tiny.post("/completion", prompt="The cat", n_predict=6, ignore_eos=True).json()["timings"]
    assert six["predicted_per_second"] == pytest.approx(5e3 / six["predicted_ms"])
    assert six["predicted_per_token_ms"] == pytest.approx(six["predicted_ms"] / 5)


def test_drafters_are_named_where_something_was_drafted(tiny: Live) -> None:
    reply = tiny.post("/completion", prompt="abcdefghijklmnop" * 8, n_predict=30, temperature=0, ignore_eos=True).json()
    timings = reply["timings"]
    assert bool(timings["draft_n"]) == ("drafters" in timings)


def test_a_stream_joined_is_the_whole_reply(tiny: Live) -> None:
    body = {"prompt": "on and on and on", "n_predict": 30, "temperature": 0, "return_tokens": True}
    whole = tiny.post("/completion", **body).json()
    with tiny.http.stream("POST", "/completion", json={**body, "stream": True, "timings_per_token": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        parts = [json.loads(data) for data in events(response)]
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert [token for part in parts for token in part["tokens"]] == whole["tokens"]
    assert [part["stop"] for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1]["timings"]["predicted_n"] == 30
    assert parts[1]["timings"]["prompt_n"] >= 1
    assert "".join(piece["text"] for part in parts[:-1] for piece in part["paceline"]["pieces"]) == whole["content"]


def test_speculation_per_request_in_both_spellings(tiny: Live) -> None:
    prompt = "abcabcabcabcabcabcabcabcabcabcabcabc" * 4
    off: list[Any] = [{"speculative.n_max": 0}, {"speculative": {"n_max": 0}}, {"speculative.types": "none"}]
    wrong: list[Any] = [
        {"speculative.types": ["crystal-ball"]},
        {"speculative": {"p_min": 7}},
        {"speculative.n_max": -1},
    ]
    for body in off:
        reply = tiny.post("/completion", prompt=prompt, n_predict=5, temperature=0, **body).json()
        assert reply["timings"]["draft_n"] == 0
    for body in wrong:
        assert tiny.post("/completion", prompt=prompt, **body).status_code == 400


def test_several_prompts_and_kinds_of_prompts(tiny: Live) -> None:
    both = tiny.post("/completion", prompt=["The cat", [84, 104, 101]], n_predict=3, temperature=0).json()
    assert [reply["index"] for reply in both] == [0, 1]
    assert both[1]["prompt"] == "The"
    mixed = tiny.post("/completion", prompt=[84, "he", 32], n_predict=1).json()
    assert mixed["prompt"] == "The "
    assert tiny.post("/completion", prompt={"prompt_string": "The"}, n_predict=1).json()["prompt"] == "The"
    assert len(tiny.post("/completion", prompt="The", n_predict=1, n_cmpl=3).json()) == 3


def test_stops_and_probabilities(tiny: Live) -> None:
    whole = tiny.post("/completion", prompt="The cat", n_predict=40, temperature=0).json()["content"]
    stop = whole[10:14]
    reply = tiny.post("/completion", prompt="The cat", n_predict=40, temperature=0, stop=[stop], n_probs=3).json()
    assert reply["content"] == whole[: whole.index(stop)]
    assert (reply["stop_type"], reply["stopping_word"]) == ("word", stop)
    first = reply["completion_probabilities"][0]
    assert first["logprob"] <= 0
    assert len(first["top_logprobs"]) == 3
    assert bytes(first["bytes"]).decode(errors="replace") == first["token"]


def test_grammar_and_schema(tiny: Live) -> None:
    reply = tiny.post("/completion", prompt="x", n_predict=20, grammar='root ::= "yes" | "no"').json()
    assert reply["content"] in ("yes", "no")
    reply = tiny.post("/completion", prompt="x", n_predict=20, json_schema={"enum": [7, 8]}).json()
    assert json.loads(reply["content"]) in (7, 8)
    assert tiny.post("/completion", prompt="x", n_predict=4, json_schema=True).status_code == 200


def test_response_fields(tiny: Live) -> None:
    fields = ["content", "timings/predicted_n", "no/such"]
    reply = tiny.post("/completion", prompt="x", n_predict=2, response_fields=fields).json()
    assert set(reply) == {"content", "timings/predicted_n"}
    assert tiny.post("/completion", prompt="x", n_predict=0, response_fields=[""]).json() == {}


def test_cached_prompts_and_slots(tiny: Live) -> None:
    prompt = "A long enough prompt to be remembered " * 4
    for id_slot in (0, 1):
        tiny.post("/completion", prompt=prompt, n_predict=1, id_slot=id_slot)
    again = tiny.post("/completion", prompt=prompt, n_predict=1, id_slot=1).json()
    assert again["id_slot"] == 1
    assert again["timings"]["cache_n"] == again["tokens_evaluated"] - 1
    fresh = tiny.post("/completion", prompt=prompt, n_predict=1, id_slot=1, cache_prompt=False).json()
    assert fresh["timings"]["cache_n"] == 0
    assert tiny.post("/completion", prompt=prompt, id_slot=9).status_code == 400


def test_tokens_and_back(tiny: Live) -> None:
    assert tiny.post("/tokenize", content="héllo").json()["tokens"] == list("héllo".encode())
    pieces = tiny.post("/tokenize", content="é!", with_pieces=True).json()["tokens"]
    assert pieces == [{"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}, {"id": 33, "piece": "!"}]
    assert tiny.post("/detokenize", tokens=list("héllo".encode())).json() == {"content": "héllo"}
    assert tiny.post("/detokenize", tokens=[10**6]).status_code == 400
    assert tiny.post("/tokenize", content=["a", 98, "c"]).json()["tokens"] == [97, 98, 99]
    assert tiny.post("/tokenize", content=[-1], with_pieces=True).status_code == 400


def test_apply_template(tiny: Live) -> None:
    reply = tiny.post("/apply-template", messages=[{"role": "user", "content": "Hi"}])
    assert reply.json()["prompt"] == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_props_and_slots(tiny: Live) -> None:
    props = tiny.http.get("/props").json()
    assert props["total_slots"] == 2
    assert props["model_path"].endswith("target.gguf")
    assert props["default_generation_settings"]["n_ctx"] == 1024
    assert {"endpoint_slots", "endpoint_props", "endpoint_metrics", "model_ftype", "build_info"} <= set(props)
    assert tiny.http.post("/props").status_code == 501
    assert tiny.idle()
    slots = tiny.http.get("/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1]
    assert not any(slot["is_processing"] for slot in slots)
    assert [slot["next_token"][0]["n_remain"] for slot in slots] == [-1, -1]
    assert [slot["next_token"][0]["n_decoded"] for slot in slots] == [0, 0]
    assert [slot["next_token"][0]["has_new_line"] for slot in slots] == [False, False]
    assert tiny.http.get("/slots?fail_on_no_slot=1").status_code == 200


def test_the_pages_figures(tiny: Live) -> None:
    stats = tiny.http.get("/paceline/stats").json()
    assert set(stats) >= {"slots", "speed", "drafters", "speedup", "model"}
    assert set(stats["slots"][0]) == {"id", "busy", "n_tokens", "n_ctx"}
    names = {"name", "n_calls", "n_drafts", "n_tokens", "n_accepted", "acceptance_by_position"}
    assert set(stats["drafters"][0]) == names


def test_metrics(tiny: Live) -> None:
    tiny.post("/completion", prompt="The cat and the cat and the cat", n_predict=12)
    assert tiny.idle()
    reply = tiny.http.get("/metrics")
    assert int(reply.headers["process-start-time-unix"]) > 0
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = reply.text
    for name in ("prompt_tokens_total", "tokens_predicted_total", "prompt_tokens_seconds", "n_decode_total"):
        assert f"\nllamacpp:{name} " in text
    for name in ("requests_processing 0", "requests_deferred 0", "tokens_predicted_seconds_total"):
        assert f"\nllamacpp:{name}" in text
    for name in ("n_tokens_max", "n_decode_total", "spec_decode_num_draft_tokens_total"):
        assert f"# TYPE llamacpp:{name} counter\n" in text
    assert "\nllamacpp:spec_decode_num_draft_tokens_total " in text
    assert 'paceline:drafter_draft_tokens_total{drafter="ngram-simple"}' in text
    (busy,) = (line for line in text.splitlines() if line.startswith("llamacpp:n_busy_slots_per_decode "))
    assert 0 < float(busy.split()[1]) <= 2
    for name in ("time_to_first_token_seconds", "time_per_token_seconds", "queue_seconds"):
        assert f"paceline:{name}_bucket" in text


def test_what_is_off_says_how_to_turn_it_on(target: str, tmp_path: Path) -> None:
    with live(settings(target), ServerParams(port=0, slots=False, webui=False)) as server:
        for path, flag in (("/metrics", "--metrics"), ("/slots", "--no-slots")):
            reply = server.http.get(path)
            assert reply.status_code == 501
            assert flag in reply.json()["error"]["message"]
        reply = server.http.post("/slots/0?action=save", json={"filename": "a"})
        assert "--slot-save-path" in reply.json()["error"]["message"]
        assert server.http.get("/").status_code == 404
    with live(settings(target), ServerParams(port=0, slot_save_path=str(tmp_path))) as server:
        for name in ("../a", "/etc/passwd", "a/b", "", ".", ".."):
            assert server.http.post("/slots/0?action=save", json={"filename": name}).status_code == 400
        assert server.http.post("/slots/0?action=restore", json={"filename": "none"}).status_code == 400


def test_a_slot_is_saved_restored_and_erased(target: str, tmp_path: Path) -> None:
    prompt = "A long enough prompt to be worth remembering. " * 4

    def ask(server: Live) -> tuple[str, int]:
        reply = server.post("/completion", prompt=prompt, n_predict=8, temperature=0, id_slot=0).json()
        return reply["content"], reply["timings"]["cache_n"]

    params = ServerParams(port=0, slot_save_path=str(tmp_path))
    with live(settings(target), params) as server:
        text, _ = ask(server)
        saved = server.http.post("/slots/0?action=save", json={"filename": "kept.bin"}).json()
        n_prompt = len(server.post("/tokenize", content=prompt).json()["tokens"])
        assert saved["n_saved"] >= n_prompt
        assert saved["n_written"] == (tmp_path / "kept.bin").stat().st_size
        assert saved["timings"]["save_ms"] > 0
        assert server.http.post("/slots/0?action=erase").json()["n_erased"] == saved["n_saved"]
        assert server.http.post("/slots/0?action=erase", json={}).status_code == 200
        assert ask(server) == (text, 0)
        server.http.post("/slots/0?action=erase")
        restored = server.http.post("/slots/0?action=restore", json={"filename": "kept.bin"}).json()
        assert restored["n_restored"] == saved["n_saved"]
        assert restored["n_read"] == saved["n_written"]
        again, n_cached = ask(server)
        assert again == text
        assert n_cached == n_prompt - 1
        (tmp_path / "broken.bin").write_bytes(b"nonsense")
        broken = server.http.post("/slots/0?action=restore", json={"filename": "broken.bin"})
        assert 400 <= broken.status_code < 500
        assert server.http.post("/slots/7?action=erase").status_code == 400
        assert ask(server)[0] == text


def test_infill_needs_a_model_that_can(tiny: Live) -> None:
    reply = tiny.post("/infill", input_prefix="def f(", input_suffix="return 1")
    assert reply.status_code == 501
    assert "no tokens for filling gaps" in reply.json()["error"]["message"]


def test_a_prefix_for_everything(target: str) -> None:
    with live(settings(target), ServerParams(port=0, api_prefix="/llm")) as server:
        assert httpx.get(f"{server.url}/health", timeout=60).json() == {"status": "ok"}
        assert httpx.get(f"{server.url.removesuffix('/llm')}/health", timeout=60).status_code == 404


def test_heads(tiny: Live) -> None:
    for path in ("/health", "/v1/models", "/props"):
        reply = tiny.http.head(path)
        assert (reply.status_code, reply.content) == (200, b"")


def test_headers_are_spelled_as_llama_servers(tiny: Live) -> None:
    reply = tiny.http.get("/metrics", headers={"origin": "http://localhost"})
    names = {name.decode() for name, _ in reply.headers.raw}
    assert {"Content-Type", "Process-Start-Time-Unix", "Access-Control-Allow-Origin"} <= names


def test_a_prompt_that_is_too_long_says_how_long(tiny: Live) -> None:
    error = tiny.post("/completion", prompt="x" * 3000).json()["error"]
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (3000, 1024)
    assert "exceeds the available context size" in error["message"]


def test_probabilities_after_the_filters(tiny: Live) -> None:
    body: dict[str, Any] = {"prompt": "The cat", "n_predict": 6, "n_probs": 5, "post_sampling_probs": True, "seed": 3}
    reply = tiny.post("/completion", **body, top_k=3, top_p=1, min_p=0).json()
    assert reply["generation_settings"]["post_sampling_probs"] is True
    for entry in reply["completion_probabilities"]:
        assert set(entry) == {"id", "token", "bytes", "prob", "top_probs"}
        assert sum(top["prob"] for top in entry["top_probs"]) == pytest.approx(1)
        assert len(entry["top_probs"]) == 3
        assert entry["prob"] == next(top["prob"] for top in entry["top_probs"] if top["id"] == entry["id"])
    certain = tiny.post("/completion", **body, temperature=0).json()["completion_probabilities"]
    assert [(entry["prob"], len(entry["top_probs"])) for entry in certain] == [(1.0, 1)] * 6
    plain = tiny.post("/completion", **{**body, "post_sampling_probs": False}).json()["completion_probabilities"]
    assert [len(entry["top_logprobs"]) for entry in plain] == [5] * 6


def test_how_far_a_prompt_is_read(tiny: Live) -> None:
    prompt = "".join(chr(33 + i * i % 90) for i in range(700))
    body = {"prompt": prompt, "n_predict": 2, "stream": True, "return_progress": True, "timings_per_token": True}
    with tiny.http.stream("POST", "/completion", json={**body, "cache_prompt": False}) as response:
        parts = [json.loads(data) for data in events(response)]
    told = [part for part in parts if "prompt_progress" in part]
    assert [part["prompt_progress"]["processed"] for part in told] == [0, 512, 700]
    assert {part["prompt_progress"]["total"] for part in told} == {700}
    assert (told[0]["timings"]["prompt_n"], told[0]["timings"]["prompt_ms"]) == (0, 0)
    assert told[1]["timings"]["prompt_ms"] > 0
    assert not any(part["content"] or part["tokens"] for part in told)
    assert "prompt_progress" not in tiny.post("/completion", **{**body, "stream": False}).json()
    with tiny.http.stream("POST", "/v1/completions", json={**body, "cache_prompt": False, "echo": True}) as response:
        chunks = [json.loads(data) for data in events(response) if data != "[DONE]"]
    progress = [chunk["prompt_progress"]["processed"] for chunk in chunks if "prompt_progress" in chunk]
    assert progress == [0, 512, 700]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks).startswith(prompt)


def test_a_prompt_is_read_for_the_next_one_to_ask(tiny: Live) -> None:
    prompt = "This will be asked for soon, and should be there by then. " * 3
    first = tiny.post("/completion", prompt=prompt, n_predict=0, id_slot=0, cache_prompt=False).json()
    n = first["tokens_evaluated"]
    assert (first["content"], first["tokens_predicted"], first["timings"]["prompt_n"]) == ("", 0, n)
    assert first["timings"]["prompt_ms"] > 0
    assert first["stop_type"] == "limit"
    second = tiny.post("/completion", prompt=f"{prompt}And?", n_predict=1, id_slot=0).json()
    assert second["timings"]["cache_n"] == n


def test_other_names_of_the_model(tiny: Live, target: str) -> None:
    assert tiny.post("/completion", prompt="x", n_predict=1, model="gpt-4o").json()["model"] == "target"
    params = ServerParams(port=0, alias="small,fim", tags=("code", "chat"), strict_model=True)
    with live(settings(target), params) as server:
        (model,) = server.http.get("/v1/models").json()["data"]
        assert (model["id"], model["aliases"], model["tags"]) == ("fim", ["fim", "small"], ["chat", "code"])
        for name in ("fim", "small", "target", ""):
            assert server.post("/completion", prompt="x", n_predict=1, model=name).json()["model"] == "fim"
        for path in ("/completion", "/v1/completions"):
            assert server.post(path, prompt="x", model="gpt-4o").status_code == 404
        messages = [{"role": "user", "content": "Hi"}]
        assert server.post("/v1/chat/completions", messages=messages, model="gpt-4o").status_code == 404


def test_defaults_can_be_changed(target: str) -> None:
    with live(settings(target), ServerParams(port=0, props=True)) as server:
        assert server.http.post("/props").json() == {"success": True}
        assert server.post("/props", temperature=0, n_predict=3, top_k=7, ignore_eos=True).json() == {"success": True}
        changed = server.http.get("/props").json()["default_generation_settings"]["params"]
        assert (changed["temperature"], changed["n_predict"], changed["top_k"]) == (0, 3, 7)
        replies = [server.post("/completion", prompt="The cat").json() for _ in range(2)]
        assert replies[0]["content"] == replies[1]["content"]
        assert replies[0]["tokens_predicted"] == 3
        wrong: list[dict[str, Any]] = [{"top_p": 7}, {"colour": "red"}]
        for body in wrong:
            assert server.post("/props", **body).status_code == 400
