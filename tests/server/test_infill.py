"""Raw /infill traffic as llama.vim sends it, on tiny random weights whose file names its tokens for gaps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.server.live import Live, live, settings
from tests.tiny import write_model

pytestmark = pytest.mark.model

PRE, SUF, MID, REP, SEP = range(266, 271)
FIELDS = [
    "content",
    *(f"timings/prompt_{name}" for name in ("n", "ms", "per_token_ms", "per_second")),
    *(f"timings/predicted_{name}" for name in ("n", "ms", "per_token_ms", "per_second")),
    "truncated",
    "tokens_cached",
]
CHUNKS = [
    {"text": f"def chunk_{i}():\n    return {i}\n", "time": [812, 4711 + i], "filename": f"src/file_{i}.py"}
    for i in range(4)
]


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    fim = {"pre": PRE, "suf": SUF, "mid": MID, "rep": REP, "sep": SEP}
    path = write_model(tmp_path_factory.mktemp("fim") / "fim.gguf", seed=1, n_extra=8, scale=4.0, fim=fim)
    with live(settings(path, n_ctx=2048, n_slots=1, spec_types=("suffix",), spec_policy="fixed")) as server:
        yield server


def completion(**changes: Any) -> dict[str, Any]:
    """What llama.vim asks while somebody types."""
    return {
        "input_prefix": "import os\n\n\ndef main():\n",
        "input_suffix": "\n\nmain()\n",
        "input_extra": CHUNKS,
        "prompt": "    for name in ",
        "n_predict": 24,
        "stop": [],
        "n_indent": 4,
        "top_k": 40,
        "top_p": 0.9,
        "stream": False,
        "samplers": ["top_k", "top_p", "infill"],
        "cache_prompt": True,
        "t_max_prompt_ms": 500,
        "t_max_predict_ms": 250,
        "response_fields": FIELDS,
        **changes,
    }


def warm_up(**changes: Any) -> dict[str, Any]:
    """What it sends ahead, so that other files are read by then."""
    return {
        "input_prefix": "",
        "input_suffix": "",
        "input_extra": CHUNKS,
        "prompt": "",
        "n_predict": 0,
        "temperature": 0.0,
        "stream": False,
        "samplers": [],
        "cache_prompt": True,
        "t_max_prompt_ms": 1,
        "t_max_predict_ms": 1,
        "response_fields": [""],
        **changes,
    }


def ask(editor: Live, body: dict[str, Any]) -> dict[str, Any]:
    """With the header it sends where no key is set."""
    connection = HTTPConnection(editor.url.removeprefix("http://"), timeout=60)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer "}
    connection.request("POST", "/infill", json.dumps(body), headers)
    reply = connection.getresponse()
    found: dict[str, Any] = json.loads(reply.read())
    assert reply.status == 200, found
    connection.close()
    return found


def test_a_suggestion_has_what_the_plugin_shows(editor: Live) -> None:
    reply = ask(editor, completion())
    assert set(reply) == set(FIELDS)
    assert isinstance(reply["content"], str)
    assert reply["timings/predicted_n"] >= 1
    assert reply["truncated"] is False


def test_files_sent_ahead_are_not_read_again(editor: Live) -> None:
    for chunk in CHUNKS:
        chunk["text"] = str(chunk["text"]) + "# other\n"
    n_files = sum(len(str(chunk["text"])) for chunk in CHUNKS)
    assert ask(editor, warm_up()) == {}
    whole = ask(editor, completion(response_fields=["timings/cache_n", "timings/prompt_n"]))
    assert whole["timings/cache_n"] > n_files
    assert whole["timings/prompt_n"] < 80


def test_the_prompt_is_laid_out_around_the_gap(editor: Live) -> None:
    reply = ask(editor, completion(input_extra=[{"text": "x\n", "filename": "a.py"}], response_fields=["prompt"]))
    repo, pre, suf, mid, sep = (f"[unused{token - 266}]" for token in (REP, PRE, SUF, MID, SEP))
    before = f"{repo}myproject\n{sep}a.py\nx\n{sep}filename\n"
    body = completion()
    gap = f"{pre}{body['input_prefix']}{body['prompt']}{suf}{body['input_suffix']}{mid}"
    assert reply["prompt"] == before + gap


def test_whatever_does_not_fit_is_left_out(editor: Live) -> None:
    long = "0123456789" * 40_000
    chunks = [{"text": long, "filename": f"{i}.txt"} for i in range(2)]
    fields = ["tokens_evaluated", "prompt", "truncated"]
    big = completion(input_prefix=long, input_suffix=long, input_extra=chunks, response_fields=fields, n_predict=4)
    reply = ask(editor, big)
    assert 1024 < reply["tokens_evaluated"] < 2000
    assert "9    for name in " in reply["prompt"]
    assert reply["truncated"] is False


def test_the_draw_is_the_same_whatever_drafts(editor: Live) -> None:
    """The sampler `infill` looks at the logits alone."""
    body = completion(seed=7, temperature=1, ignore_eos=True, n_indent=0, t_max_predict_ms=0, n_predict=60)
    body["input_prefix"] = "for name in names: print(name)\n" * 6
    fields = ["content", "timings/draft_n"]
    drafted = ask(editor, {**body, "response_fields": fields})
    plain = ask(editor, {**body, "response_fields": fields, "speculative.n_max": 0})
    assert drafted["content"] == plain["content"]
    assert plain["timings/draft_n"] == 0


@pytest.mark.parametrize("wrong", [{}, {"filename": "ok"}, {"filename": 1, "text": "a"}, {"text": 5}])
def test_broken_files_are_refused(editor: Live, wrong: dict[str, Any]) -> None:
    reply = editor.post("/infill", **completion(input_extra=[wrong]))
    assert reply.status_code == 400
    assert "input_extra" in reply.json()["error"]["message"]
