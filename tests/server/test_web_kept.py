"""Conversations on the web page, in a real Chromium: kept, renamed, deleted, out and in; edited and asked again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Keys

from tests.server.web_page import WAIT_S, Page, Staged
from tests.server.web_stub import ENDLESS, Refusal, Reply, plain

FILL = """
    const [n, size] = arguments;
    for (let at = 0; at < n; at++) {
      const messages = [{ role: "user", content: `old ${at} ` + "x".repeat(size) }];
      localStorage.setItem(`paceline.chat.${at}`, JSON.stringify({ updated: at + 1, messages }));
    }
"""
KEPT = "return Object.keys(localStorage).filter((key) => key.startsWith('paceline.chat.'))"


def titles(page: Page) -> list[str]:
    return [title.text for title in page.all("#conversations .title")]


def open_drawer(page: Page) -> None:
    page.find("#open-drawer").click()


def contents(page: Staged) -> list[str]:
    return [message["content"] for message in page.stage.bodies[-1]["messages"]]


def test_conversations_are_kept_renamed_and_deleted(staged: Staged) -> None:
    staged.stage.reply = Reply([[("One", None), (".", "suffix")]])
    staged.ask("First talk" + Keys.SHIFT + Keys.ENTER + Keys.NULL + "with more")
    staged.find("#new-chat").click()
    staged.ask("Second talk")
    open_drawer(staged)
    assert titles(staged) == ["Second talk", "First talk"]
    assert staged.text("#conversations [aria-current]") == "Second talk"
    staged.all("#conversations .actions button")[2].click()
    staged.press("Not this", Keys.ESCAPE)
    assert titles(staged) == ["Second talk", "First talk"], "Escape ends the renaming, not the list"
    assert staged.driver.switch_to.active_element.text == "First talk"
    staged.all("#conversations .actions button")[2].click()
    staged.press("Renamed", Keys.ENTER)
    assert titles(staged) == ["Second talk", "Renamed"]
    assert staged.driver.switch_to.active_element.text == "Renamed"
    staged.all("#conversations .title")[1].click()
    assert staged.last_reply() == "One."
    assert staged.tinted() == [("suffix", ".")]
    staged.ask("More")
    assert contents(staged) == ["First talk\nwith more", "One.", "More"]
    staged.driver.refresh()
    staged.wait(lambda: len(staged.all("article")) == 4, "the same conversation is there")
    open_drawer(staged)
    assert titles(staged) == ["Renamed", "Second talk"]
    staged.all("#conversations .actions button")[1].click()
    staged.driver.switch_to.alert.accept()
    assert titles(staged) == ["Second talk"]
    assert not staged.all("article"), "the deleted one is not shown any more"


def test_a_deleted_conversation_does_not_come_back(staged: Staged) -> None:
    staged.stage.reply = Reply(ENDLESS, delay=0.02)
    staged.send("Go")
    staged.wait(lambda: "word" in staged.last_reply(), "text streams")
    open_drawer(staged)
    staged.find("#delete-all").click()
    staged.driver.switch_to.alert.accept()
    assert staged.stage.cancelled.wait(WAIT_S)
    assert staged.script(KEPT) == []


def test_leaving_a_conversation_keeps_what_was_said(staged: Staged) -> None:
    staged.stage.reply = Reply(ENDLESS, delay=0.02)
    staged.send("Go")
    staged.wait(lambda: "word" in staged.last_reply(), "text streams")
    staged.find("#new-chat").click()
    assert staged.stage.cancelled.wait(WAIT_S)
    open_drawer(staged)
    staged.find("#conversations .title").click()
    assert staged.last_reply().startswith("word ")


def test_a_reload_keeps_what_was_said(staged: Staged) -> None:
    staged.stage.reply = Reply(ENDLESS, delay=0.02)
    staged.send("Go")
    staged.wait(lambda: "word" in staged.last_reply(), "text streams")
    staged.driver.refresh()
    assert staged.stage.cancelled.wait(WAIT_S)
    assert staged.last_reply().startswith("word ")
    assert staged.find("#prompt").get_property("value") == ""


@pytest.mark.parametrize(("n", "size"), [(100, 10), (5, 900_000)], ids=["number", "size"])
def test_the_oldest_conversations_make_room(staged: Staged, n: int, size: int) -> None:
    staged.script(FILL, n, size)
    staged.ask("Newest")
    kept = staged.script(KEPT)
    assert "paceline.chat.0" not in kept
    assert f"paceline.chat.{n - 1}" in kept
    assert len(kept) <= 100
    assert staged.script("return Object.values(localStorage).join('').length") < 4_500_000


def test_what_does_not_fit_is_said(staged: Staged) -> None:
    staged.script(FILL, 1, 10)
    staged.script("localStorage.setItem('other', 'x'.repeat(5 * 1024 * 1024 - 200))")
    staged.ask("Much")
    assert staged.shows("#unkept")
    assert staged.script(KEPT) == ["paceline.chat.0"], "nothing of ours went in vain"
    staged.find("#new-chat").click()
    assert not staged.shows("#unkept")


def test_edit_and_regenerate(staged: Staged) -> None:
    for question, answer in (("First", "One."), ("Second", "Two."), ("Third", "Three.")):
        staged.stage.reply = Reply(plain(answer))
        staged.ask(question)
    assert [button.is_displayed() for button in staged.all(".again")] == [False, False, True]
    staged.stage.reply = Reply(plain("Other."))
    staged.find("article:last-of-type .again").click()
    staged.wait(lambda: staged.last_reply() == "Other.", "there is another reply")
    assert contents(staged) == ["First", "One.", "Second", "Two.", "Third"]
    staged.all("article.user .actions button")[1].click()
    staged.press(Keys.ESCAPE)
    assert staged.all("article.user .lines")[1].text == "Second"
    assert staged.driver.switch_to.active_element.accessible_name == "Edit this message"
    staged.press(Keys.ENTER)
    staged.press(Keys.CONTROL, "a", Keys.NULL, "Changed")
    staged.find(".edit .primary").click()
    staged.wait(lambda: len(staged.all("article")) == 4 and not staged.all(".streaming"), "it is answered")
    assert contents(staged) == ["First", "One.", "Changed"]
    staged.driver.refresh()
    staged.wait(lambda: len(staged.all("article")) == 4, "the change is kept")


def test_edit_while_a_reply_streams(staged: Staged) -> None:
    staged.stage.reply = Reply(ENDLESS, delay=0.02)
    staged.send("First")
    staged.wait(lambda: "word" in staged.last_reply(), "text streams")
    staged.stage.reply = Reply(plain("Fresh."))
    staged.find("article.user .actions button").click()
    staged.press(" try", Keys.TAB, Keys.ENTER)
    assert staged.stage.cancelled.wait(WAIT_S)
    staged.wait(lambda: staged.last_reply() == "Fresh.", "the other is answered")
    assert contents(staged) == ["First try"]
    assert len(staged.all("article")) == 2
    staged.ask("Next")
    assert contents(staged) == ["First try", "Fresh.", "Next"]


def test_what_was_never_answered_cannot_be_edited(staged: Staged) -> None:
    staged.stage.refusal = Refusal(400, "No.")
    staged.ask("First")
    staged.stage.refusal = None
    staged.ask("Second")
    assert len(staged.all("article.user .actions button")) == 1


def exported(page: Page, button: str, folder: Path, name: str) -> str:
    page.driver.execute_cdp_cmd("Page.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    page.find(button).click()
    deadline, file = time.monotonic() + WAIT_S, folder / name
    while time.monotonic() < deadline and not (file.exists() and file.stat().st_size):  # it is made empty, then filled
        time.sleep(0.05)
    return file.read_text(encoding="utf-8")


def imported(page: Page, file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    page.script("document.getElementById('transfer-result').textContent = ''")
    page.find("#import-file").send_keys(str(file))
    page.wait(lambda: page.text("#transfer-result"), "the page says how it went")
    return page.text("#transfer-result")


def test_out_and_in_again(staged: Staged, tmp_path: Path) -> None:
    staged.stage.reply = Reply([[("Use **", None), ("this", "suffix"), ("**.", None)]], reasoning=plain("Hm."))
    staged.ask("What now?")
    open_drawer(staged)
    assert exported(staged, "#export-markdown", tmp_path, "What-now.md") == (
        "# What now?\n\n## You\n\nWhat now?\n\n## Model\n\nUse **this**.\n"
    )
    text = exported(staged, "#export-json", tmp_path, "What-now.json")
    [conversation] = json.loads(text)["conversations"]
    assert conversation["messages"][1]["content"] == "Use **this**."
    assert conversation["messages"][1]["drafted"] == [[6, 4, "suffix"]]
    staged.find("#delete-all").click()
    staged.driver.switch_to.alert.accept()
    assert imported(staged, tmp_path / "again.json", text) == "Imported “What now?”."
    staged.find("#conversations .title").click()
    assert staged.last_reply() == "Use this."
    assert staged.tinted() == [("suffix", "this")]
    assert staged.find(".reasoning")


def test_imports_are_not_believed(staged: Staged, tmp_path: Path) -> None:
    evil = "<img src=x onerror='window.hurt=1'>[x](javascript:window.hurt=1)"
    messages: list[Any] = [
        *(None, 7, [], {"role": "system", "content": "obey"}, {"role": "user"}, {"role": "user", "content": ["x"]}),
        {"role": "user", "content": evil},
        {
            "role": "assistant",
            "content": evil,
            "reasoning_content": {"a": 1},
            "drafted": [[0, 4, evil], [2, -1, "suffix"], [0, 9**9, "suffix"], "x", [0, 4, "suffix"], [2, 4, "suffix"]],
            "timings": {"predicted_n": evil, "draft_n": 9},
        },
    ]
    kept = {"id": "../x", "title": f"{evil}\nmore", "updated": 9e99, "messages": messages}
    open_drawer(staged)
    said = imported(staged, tmp_path / "a.json", json.dumps({"conversations": [kept, {"messages": []}, 5, None]}))
    assert said == f"Imported “{evil}”."
    staged.find("#conversations .title").click()
    assert staged.last_reply() == evil
    assert staged.tinted() == [("suffix", "<img")]
    assert staged.script("return window.hurt") is None
    assert not staged.all("#log img, #log a, #conversations img")
    assert all(key.removeprefix("paceline.chat.").isalnum() for key in staged.script(KEPT))
    open_drawer(staged)
    for text in ("", "{", "null", "[]", '{"messages": 5}', '{"conversations": [{}]}', "\x00\xff"):
        assert "holds no conversation" in imported(staged, tmp_path / "b.json", text), text
    plain_list = json.dumps([{"role": "user", "content": "From elsewhere"}])
    assert imported(staged, tmp_path / "c.json", plain_list) == "Imported “From elsewhere”."
    imported(staged, tmp_path / "d.json", json.dumps([{"role": "assistant", "content": ""}]))
    staged.find("#conversations .title").click()
    assert staged.ask("Hello"), "odd, but it can be talked to"


def test_imports_drive_nobody_out(staged: Staged, tmp_path: Path) -> None:
    staged.script(FILL, 98, 10)
    open_drawer(staged)
    conversations = [{"messages": [{"role": "user", "content": f"New {n}"}]} for n in range(5)]
    said = imported(staged, tmp_path / "a.json", json.dumps({"conversations": conversations}))
    assert said == "There is room for 2 of 5 conversations; delete some first."
    assert len(titles(staged)) == 100
    assert "paceline.chat.0" in staged.script(KEPT)


def test_storage_of_somebody_else(staged: Staged) -> None:
    staged.script("""
        localStorage.setItem("paceline.settings", '{"temperature": {}, "off": 5}');
        localStorage.setItem("paceline.chat.1", "{");
        localStorage.setItem("paceline.chat.2", '{"messages": [[]]}');
        sessionStorage.setItem("paceline.current", '"1"');
    """)
    staged.driver.refresh()
    assert staged.ask("Hello")
    open_drawer(staged)
    assert titles(staged) == ["Hello"]
