"""The web page of a real server, in a real Chromium. With PACELINE_SCREENSHOTS=folder the pictures are kept there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.server.web_page import Page, off_screen

pytestmark = pytest.mark.model


def test_streams_tints_and_measures(page: Page) -> None:
    reply = page.ask("Write a Python class for a bank account, then explain each method.")
    assert reply
    assert page.text("article.user .lines").startswith("Write a Python class")
    assert any(text.strip() for _, text in page.tinted())
    assert {source for source, _ in page.tinted()} <= {chip.text for chip in page.all("#legend .tint")}
    assert float(page.text("#speed")) > 0
    assert re.fullmatch(r"\d+ %", page.text("#accepted"))
    assert re.search(r"[\d,]+ tokens · [\d.]+ tokens/s", page.text(".footnote"))


def test_statistics_of_the_server(page: Page) -> None:
    page.ask("Write these words ten times: the quick brown fox jumps over the lazy dog.")
    page.wait(lambda: page.shows("#drafters .positions"), "acceptance by position is shown")
    page.wait(lambda: page.shows("#slots li"), "the slots are shown")
    assert page.text("#model")
    assert re.search(r"[\d,]+ of [\d,]+ tokens accepted", page.text("#drafters"))
    assert page.find(".positions").get_attribute("aria-label")


def test_asks_nobody_else(page: Page) -> None:
    page.ask("Hello")
    asked = page.script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert any(name.endswith("/app.js") for name in asked)
    assert [name for name in asked if not name.startswith((page.url, "data:"))] == []


def test_the_server_takes_every_setting(page: Page) -> None:
    words = "Write these words ten times: the quick brown fox jumps over the lazy dog."
    assert page.find("#top-k").get_attribute("placeholder") == "40"
    page.set(top_k="40", top_p="0.9", min_p="0.1", repeat_penalty="1.0", seed="7", n_max="4", n_min="1", p_min="0.1")
    assert page.ask(words)
    assert page.tinted()
    assert not page.all(".error")
    page.find("#new-chat").click()
    page.find("#draft").click()
    assert page.ask(words)
    assert page.tinted() == []
    assert "drafted" not in page.text(".footnote")


def test_new_chat(page: Page) -> None:
    page.ask("Hello")
    page.find("#new-chat").click()
    assert not page.all("article")
    assert page.focused() == "prompt"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("device", "width", "height"), [("desktop", 1280, 800), ("phone", 360, 740)])
def test_fits(page: Page, tmp_path: Path, scheme: str, device: str, width: int, height: int) -> None:
    page.prefer(scheme)
    page.resize(width, height)
    page.driver.refresh()
    page.ask("Write a fibonacci function with a cache.")
    page.wait(lambda: page.text("#model"), "statistics are there")
    assert page.script("return document.documentElement.scrollWidth") <= width
    assert off_screen(page, "#prompt", "#send", "#speed", "#theme", "#legend") == []
    folder = Path(os.environ.get("PACELINE_SCREENSHOTS", tmp_path))
    assert page.driver.save_screenshot(str(folder / f"web-{device}-{scheme}.png"))
    page.find("#open-settings").click()
    assert page.driver.save_screenshot(str(folder / f"web-settings-{device}-{scheme}.png"))
    page.find("#close-settings").click()
