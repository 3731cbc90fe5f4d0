"""What a server's slots hold: parts of the context, texts longer than those, and prompts of earlier."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline.server.params import ServerParams
from tests.server.live import Live, live, settings

CHAT = "A long enough prompt to be worth remembering. " * 3
TITLE = "Find a title for all that was said so far here. " * 3


@pytest.fixture(scope="module")
def server(target: str) -> Iterator[Live]:
    with live(settings(target, n_ctx=256, context_shift=True, cache_ram=10, spec_types=("suffix",))) as server:
        yield server


def ask(server: Live, prompt: str, **body: Any) -> dict[str, Any]:
    reply = server.post("/completion", prompt=prompt, temperature=0, **{"n_predict": 8, **body})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def test_everybody_says_what_one_slot_holds(server: Live) -> None:
    assert server.http.get("/props").json()["default_generation_settings"]["n_ctx"] == 256
    assert [slot["n_ctx"] for slot in server.http.get("/slots").json()] == [256, 256]
    reply = server.post("/completion", prompt="a" * 400)
    assert reply.status_code == 400
    assert "exceeds the available context size" in reply.json()["error"]["message"]
    assert "256" in reply.json()["error"]["message"]


@pytest.mark.parametrize("n_keep", [None, 0, 10, -1])
def test_a_text_may_be_longer_than_its_slot(server: Live, n_keep: int | None) -> None:
    reply = ask(server, "The cat", n_predict=400, ignore_eos=True, n_keep=n_keep)
    assert reply["tokens_predicted"] == reply["timings"]["predicted_n"] == 400
    assert reply["truncated"] is True
    assert ask(server, "The cat")["truncated"] is False


def test_a_chat_is_remembered_beside_other_questions(server: Live) -> None:
    """More questions than slots, and then the chat again."""
    chat = ask(server, CHAT)
    for other in ("", "And again. ", "And once more. "):
        ask(server, other + TITLE)
    again = ask(server, CHAT + chat["content"] + " Go on.")
    assert again["timings"]["cache_n"] >= chat["timings"]["prompt_n"]
    fresh = ask(server, CHAT, cache_prompt=False)
    assert (fresh["content"], fresh["timings"]["cache_n"]) == (chat["content"], 0)


def test_the_folder_for_slots_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "slots"
    ServerParams(slot_save_path=str(folder))
    assert folder.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="slots cannot be saved in"):
        ServerParams(slot_save_path=str(tmp_path / "file"))
