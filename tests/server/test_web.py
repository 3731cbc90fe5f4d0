"""The web page in a real Chromium.

Tests that take `page` hold for any server at `base_url`; those that take `staged` script what the server does.
With PACELINE_SCREENSHOTS=folder the pictures are kept there.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.server.web_stub import FIBONACCI, STATS, WEB, Refusal, Reply, Stage, Step, WebStub, plain, running_stub

WAIT_S = 30
AA_TEXT = 4.5
AA_GRAPHICS = 3.0
ALL_DRAFTERS = [
    *("draft-simple", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"),
    *("suffix", "grammar", "from-the-future"),
]


class Page:
    """What a user does and sees."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self) -> None:
        self.driver.get(self.url)

    def script(self, code: str, *args: object) -> Any:
        return self.driver.execute_script(code, *args)

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return str(self.script("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def shows(self, selector: str) -> bool:
        return any(element.is_displayed() for element in self.all(selector))

    def wait(self, condition: Callable[[], object], why: str) -> None:
        WebDriverWait(self.driver, WAIT_S, poll_frequency=0.05).until(lambda _: condition(), why)

    def focused(self) -> str:
        return str(self.script("return document.activeElement.id"))

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def send(self, text: str) -> None:
        self.wait(lambda: self.find("#send").is_enabled(), "the page is ready to send")
        self.find("#prompt").send_keys(text, Keys.ENTER)

    def set(self, **settings: str) -> None:
        self.find("#open-settings").click()
        for name, value in settings.items():
            self.find(f"#{name.replace('_', '-')}").send_keys(value)
        self.find("#settings button").click()
        self.find("#prompt").click()

    def ask(self, text: str) -> str:
        n_replies = len(self.all("article.reply"))
        self.send(text)
        self.wait(lambda: len(self.all("article.reply")) > n_replies, "a reply has begun")
        self.wait(lambda: not self.all("article.streaming"), "the reply is complete")
        return self.last_reply()

    def last_reply(self) -> str:
        return str(self.script("return [...document.querySelectorAll('article.reply > .body')].at(-1).textContent"))

    def tinted(self) -> list[tuple[str, str]]:
        read = "return [...document.querySelectorAll('#log .tint')].map((t) => [t.dataset.source, t.textContent])"
        return [(source, text) for source, text in self.script(read)]

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def contrast(self, selector: str, foreground: str) -> float:
        return float(self.script(CONTRAST, selector, foreground))


# The canvas turns any CSS colour into bytes; the background is the nearest opaque one.
CONTRAST = """
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const bytes = (colour) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const linear = (byte) => byte / 255 <= 0.04045 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const behind = (node) => {
      for (; node; node = node.parentElement) {
        const colour = bytes(getComputedStyle(node).backgroundColor);
        if (colour[3] === 255) return colour;
      }
      return [255, 255, 255];
    };
    const nodes = [...document.querySelectorAll(arguments[0])].filter((node) => node.checkVisibility());
    return Math.min(...nodes.map((node) => {
      return ratio(light(bytes(getComputedStyle(node)[arguments[1]])), light(behind(node)));
    }));
"""


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("needs Chromium: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = chromium
    profile = tmp_path_factory.mktemp("chromium")
    for flag in (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--window-size=1280,800", "--force-color-profile=srgb", f"--user-data-dir={profile}"),
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with Chrome(options, ChromeService(chromedriver)) as chrome:
        yield chrome


@pytest.fixture(scope="session")
def stub() -> Iterator[WebStub]:
    with running_stub() as server:
        yield server


@pytest.fixture
def base_url(stub: WebStub) -> str:
    stub.stage = Stage()
    return stub.url


@pytest.fixture
def page(driver: Chrome, base_url: str) -> Iterator[Page]:
    page = Page(driver, base_url)
    page.open()
    page.set(temperature="0", max_tokens="160")
    yield page
    leave(page)


class Staged(Page):
    """The page on the stub. Set the stage first, then open."""

    def __init__(self, driver: Chrome, stub: WebStub) -> None:
        super().__init__(driver, stub.url)
        self.stub = stub
        stub.stage = Stage()

    @property
    def stage(self) -> Stage:
        return self.stub.stage


@pytest.fixture
def staged(driver: Chrome, stub: WebStub) -> Iterator[Staged]:
    page = Staged(driver, stub)
    page.open()
    yield page
    leave(page)


def leave(page: Page) -> None:
    """No script error, and nothing of one test left for the next."""
    log = page.driver.get_log("browser")  # type: ignore[no-untyped-call]
    errors = [entry["message"] for entry in log if entry["source"] == "javascript"]
    page.script("localStorage.clear(); sessionStorage.clear();")
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    page.prefer("light")
    page.driver.get("about:blank")
    assert errors == []


def test_streams_tints_and_measures(page: Page) -> None:
    reply = page.ask("Write these words ten times: the quick brown fox jumps over the lazy dog.")
    assert reply
    assert page.text("article.user .lines").startswith("Write these words")
    assert any(text.strip() for _, text in page.tinted())
    assert {source for source, _ in page.tinted()} <= {chip.text for chip in page.all("#legend .tint")}
    assert float(page.text("#speed")) > 0
    assert re.fullmatch(r"\d+ %", page.text("#accepted"))
    assert re.match(r"[\d,]+ tokens · [\d.]+ tokens/s", page.text(".footnote"))


def test_statistics_of_the_server(page: Page) -> None:
    page.ask("Write these words ten times: the quick brown fox jumps over the lazy dog.")
    page.wait(lambda: page.shows("#drafters .positions"), "acceptance by position is shown")
    assert page.shows("#slots li")
    assert page.text("#model")
    assert re.search(r"[\d,]+ of [\d,]+ tokens accepted", page.text("#drafters"))
    assert page.find(".positions").get_attribute("aria-label")


def test_asks_nobody_else(page: Page) -> None:
    page.ask("Hello")
    asked = page.script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert any(name.endswith("/app.js") for name in asked)
    assert [name for name in asked if not name.startswith((page.url, "data:"))] == []


def test_new_chat(page: Page) -> None:
    page.ask("Hello")
    page.find("#new-chat").click()
    assert not page.all("article")
    assert page.focused() == "prompt"


def test_figures_by_drafter(staged: Staged) -> None:
    staged.ask("Write fibonacci")
    assert staged.text("#speed") == "64.3"
    assert staged.text("#accepted") == "50 %"
    staged.wait(lambda: staged.text("#speedup") == "1.43×", "the estimated speed-up is shown")
    assert staged.text("#model") == "SmolLM2-135M-Instruct.Q8_0.gguf"
    rows = [row.text for row in staged.all(".drafter .head")]
    assert rows == ["suffix\n80 %", "draft-simple\n57 %", "ngram-simple\n63 %"]
    heights = staged.script("return [...document.querySelectorAll('.positions span')].map((bar) => bar.offsetHeight)")
    assert heights[0] > heights[7] > 0
    assert "6: –" in (staged.all(".positions")[2].get_attribute("aria-label") or "")
    assert [row.text for row in staged.all("#slots .head")] == ["0 · busy\n812 / 2,048", "1 · free\n0 / 2,048"]


def test_text_code_and_tints_survive_rendering(staged: Staged) -> None:
    staged.ask("Write fibonacci")
    code = staged.text("pre code")
    assert code.startswith("def fibonacci(n: int")
    assert code.endswith("return cache[n]")
    assert staged.find("pre").get_attribute("data-language") == "python"
    assert "```" not in staged.last_reply()
    assert ("suffix", "in cache:\n        return cache[n]\n") in staged.tinted()
    assert [block.tag_name for block in staged.all("article.reply > .body > *")] == ["div", "pre", "div"]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("a `b` c\n\n``d``", [("div", "a `b` c\n\n``d``")]),
        ("```\nx\n```", [("pre", "x")]),
        ("```\nnever closed", [("pre", "never closed")]),
        ("````md\n```\nx\n```\n````\nend", [("pre", "```\nx\n```"), ("div", "end")]),
        ("one\n  ```js\n  y\n  ```\ntwo", [("div", "one"), ("pre", "  y"), ("div", "two")]),
        ("```one line```", [("div", "```one line```")]),
        ("a\n``", [("div", "a\n``")]),
    ],
)
def test_fences_however_they_are_cut(staged: Staged, text: str, blocks: list[tuple[str, str]]) -> None:
    read = "return [...document.querySelectorAll('article.reply > .body > *')].map((b) => [b.localName, b.textContent])"
    for size in (1, 3, len(text)):
        staged.stage.reply = Reply(plain(*(text[at : at + size] for at in range(0, len(text), size))))
        staged.find("#new-chat").click()
        staged.ask("Go")
        assert [tuple(block) for block in staged.script(read)] == blocks, size


def test_model_text_is_never_markup(staged: Staged) -> None:
    evil = "<img src=x onerror='window.hurt=1'><script>window.hurt=1</script>"
    staged.stage.reply = Reply([[(evil, "suffix")], [("\n```<b>\n", None)], [(evil, None)]], reasoning=plain(evil))
    staged.stage.stats = {**STATS, "model": evil}
    staged.ask(evil)
    assert staged.last_reply() == evil + evil
    assert staged.text("article.user .lines") == evil
    assert not staged.all("main img, main script, header img")
    assert staged.script("return window.hurt") is None


@pytest.mark.parametrize(
    ("steps", "texts", "tinted"),
    [
        ([[("other", "suffix")]], ["said"], []),
        ([[("b", "suffix")]], ["ab"], [("suffix", "b")]),
        (
            [[("a<", "suffix")], [("b", None)], [("c", "grammar")]],
            ["a", "<b", "c"],
            [("suffix", "a<"), ("grammar", "c")],
        ),
        ([[("<think>", "grammar")], [("x", None), ("y", "suffix")]], ["", "xy"], [("suffix", "y")]),
    ],
    ids=["wrong", "lost", "held back", "cut out"],
)
def test_text_wins_over_pieces(
    staged: Staged, steps: list[Step], texts: list[str], tinted: list[tuple[str, str]]
) -> None:
    staged.stage.reply = Reply(steps, texts=texts)
    assert staged.ask("Go") == "".join(texts)
    assert staged.tinted() == tinted


def test_history_settings_and_reload(staged: Staged) -> None:
    staged.set(system="Be brief.", temperature="0.25", max_tokens="99")
    staged.stage.reply = Reply([[("One", None), (".", "suffix")]])
    staged.ask("First")
    staged.driver.refresh()
    assert staged.last_reply() == "One."
    assert staged.tinted() == [("suffix", ".")]
    assert staged.text("#announcer") == ""
    staged.ask("Second")
    body = staged.stage.bodies[-1]
    roles = [(message["role"], message["content"]) for message in body["messages"]]
    assert roles == [("system", "Be brief."), ("user", "First"), ("assistant", "One."), ("user", "Second")]
    assert (body["temperature"], body["max_tokens"]) == (0.25, 99)
    assert body["stream"] is True
    assert body["timings_per_token"] is True
    staged.find("#new-chat").click()
    staged.ask("Third")
    assert [message["content"] for message in staged.stage.bodies[-1]["messages"]] == ["Be brief.", "Third"]


def test_an_unanswered_message_comes_back_after_a_reload(staged: Staged) -> None:
    staged.stage.refusal = Refusal(503, "Busy.")
    staged.ask("My long question")
    staged.driver.refresh()
    assert staged.find("#prompt").get_property("value") == "My long question"
    assert not staged.all("article")


def test_defaults_are_the_servers(staged: Staged) -> None:
    staged.ask("Hello")
    assert set(staged.stage.bodies[-1]) == {"messages", "stream", "timings_per_token"}


def test_keyboard(staged: Staged) -> None:
    staged.stage.reply = Reply(plain(*["word "] * 500), delay=0.02)
    staged.send("one" + Keys.SHIFT + Keys.ENTER + Keys.NULL + "two")
    assert staged.text("article.user .lines") == "one\ntwo"
    staged.wait(lambda: "word" in staged.last_reply(), "text streams")
    assert staged.shows("#stop")
    staged.press(Keys.ESCAPE)
    staged.wait(lambda: not staged.shows("#stop"), "the reply stops")
    assert staged.stage.cancelled.wait(WAIT_S), "the server hears of it"
    assert staged.text(".footnote").startswith("stopped · ")
    assert staged.focused() == "prompt"
    staged.stage.reply = Reply(plain("Yes."))
    assert staged.ask("Still there?") == "Yes."
    assert "word" in staged.stage.bodies[-1]["messages"][1]["content"]


def test_every_control_shows_its_focus_and_has_a_name(staged: Staged) -> None:
    staged.ask("Hello")
    controls = {control.id for control in staged.all("button, summary, #tint, #prompt, #log, pre") if shown(control)}
    seen: set[str] = set()
    for _ in range(2 * len(controls)):
        staged.press(Keys.TAB)
        active = staged.driver.switch_to.active_element
        if active.tag_name == "body":
            continue  # past the last control
        assert active.value_of_css_property("outline-style") != "none", active.get_attribute("outerHTML")
        assert active.accessible_name, active.get_attribute("outerHTML")
        seen.add(active.id)
    assert seen >= controls


def shown(element: WebElement) -> bool:
    return element.is_displayed() and element.is_enabled()


def test_stop_button(staged: Staged) -> None:
    staged.stage.reply = Reply(plain(*["word "] * 500), delay=0.02)
    staged.send("Go")
    staged.wait(lambda: "word" in staged.last_reply(), "text streams")
    staged.find("#stop").click()
    staged.wait(lambda: staged.shows("#send"), "the reply stops")
    assert staged.focused() == "prompt"


def test_new_chat_while_streaming(staged: Staged) -> None:
    staged.stage.reply = Reply(plain(*["word "] * 500), delay=0.02)
    staged.send("Go")
    staged.wait(lambda: "word" in staged.last_reply(), "text streams")
    staged.find("#new-chat").click()
    assert staged.stage.cancelled.wait(WAIT_S)
    assert not staged.all("article")
    staged.stage.reply = Reply(plain("Fresh."))
    assert staged.ask("Again") == "Fresh."
    assert len(staged.stage.bodies[-1]["messages"]) == 1


def test_announces_each_sentence_once(staged: Staged) -> None:
    staged.script("""
        window.said = [];
        const keep = (changes) => changes.forEach((c) => c.addedNodes.forEach((n) => said.push(n.textContent)));
        new MutationObserver(keep).observe(document.getElementById("announcer"), { childList: true, subtree: true });
    """)
    staged.stage.reply = Reply(plain("First", " one", ". ", "Then", " two", "!\n```\nAnd", " a rest"))
    staged.ask("Go")
    assert staged.script("return said") == ["First one.", "Then two!", "And a rest"]
    assert staged.find("#announcer").get_attribute("aria-live") == "polite"
    assert not staged.all("#log [aria-live], #log[aria-live]")


def test_reasoning_folds_away(staged: Staged) -> None:
    thinking = [[("Let me", None), (" see", "suffix")], *plain("\n", "Right.")]
    staged.stage.reply = Reply(plain("Four."), reasoning=thinking, delay=0.3)
    staged.send("2 + 2?")
    staged.wait(lambda: staged.shows(".reasoning[open]"), "thoughts are seen while they come")
    staged.wait(lambda: not staged.all(".streaming"), "the reply is complete")
    assert staged.last_reply() == "Four."
    assert not staged.find(".reasoning").get_attribute("open")
    staged.find(".reasoning summary").click()
    assert staged.find(".reasoning .body").text == "Let me see\nRight."
    assert staged.tinted() == [("suffix", "see")]
    staged.ask("Sure?")
    assert staged.stage.bodies[-1]["messages"][1] == {"role": "assistant", "content": "Four."}


def test_tint_toggle(staged: Staged) -> None:
    staged.ask("Hello")
    tint = staged.find("#log .tint")
    before = tint.value_of_css_property("background-color")
    staged.find("#tint").click()
    assert tint.value_of_css_property("background-color") == "rgba(0, 0, 0, 0)"
    staged.driver.refresh()
    assert not staged.find("#tint").is_selected()
    staged.find("#tint").click()
    assert staged.find("#log .tint").value_of_css_property("background-color") == before


def test_limit_of_tokens_is_said(staged: Staged) -> None:
    staged.stage.reply = Reply(FIBONACCI, finish_reason="length")
    staged.ask("Hello")
    assert staged.text(".footnote").startswith("stopped at the limit of tokens · ")


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (Refusal(400, "prompt has 9000 tokens, slot holds 2048"), "prompt has 9000 tokens, slot holds 2048."),
        (Refusal(503, "All slots are busy.", retry_after=3), "All slots are busy. Try again in 3 s."),
        (Refusal(500, ""), "The server answered 500 Internal Server Error."),
    ],
)
def test_refusals_in_words(staged: Staged, refusal: Refusal, words: str) -> None:
    staged.stage.refusal = refusal
    staged.ask("Hello")
    assert staged.text(".error p") == words
    staged.stage.refusal = None
    staged.stage.reply = Reply(plain("Now it works."))
    staged.find(".error button").click()
    staged.wait(lambda: staged.last_reply() == "Now it works.", "trying again works")
    assert len(staged.stage.bodies[-1]["messages"]) == 1


def test_an_unanswered_message_is_not_sent_again(staged: Staged) -> None:
    staged.stage.refusal = Refusal(400, "No.")
    staged.ask("First")
    staged.stage.refusal = None
    staged.ask("Second")
    assert [message["content"] for message in staged.stage.bodies[-1]["messages"]] == ["Second"]
    assert not staged.all(".error button")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(plain("Half"), error="the context is full"), "the context is full"),
        (Reply(plain("Half"), breaks_off=True), "The connection broke off before the reply was complete."),
    ],
)
def test_failures_on_the_way_keep_the_text(staged: Staged, reply: Reply, words: str) -> None:
    staged.stage.reply = reply
    assert staged.ask("Hello") == "Half"
    assert staged.text(".error p") == words


def test_server_gone(driver: Chrome) -> None:
    with running_stub() as stub:
        page = Page(driver, stub.url)
        page.open()
        page.ask("Hello")
    page.send("Anybody?")
    page.wait(lambda: page.shows(".error"), "the error is shown")
    assert page.text(".error p") == "The server cannot be reached. Is paceline serve still running?"
    page.wait(lambda: page.shows("#offline"), "the banner is shown")
    leave(page)


def test_model_loading(staged: Staged) -> None:
    staged.stage.progress = 0.4
    staged.driver.refresh()
    staged.wait(lambda: staged.text("#loading-text") == "Loading the model… 40 %", "the progress is shown")
    assert staged.find("#progress").get_property("value") == 0.4
    assert not staged.find("#send").is_enabled()
    staged.stage.progress = None
    staged.wait(lambda: not staged.shows("#loading"), "the bar goes away")
    assert staged.ask("Hello")


def test_api_key(staged: Staged) -> None:
    staged.stage.api_key = "secret"
    staged.driver.refresh()
    staged.wait(lambda: staged.focused() == "api-key", "the page asks for a key")
    staged.press("wrong", Keys.ENTER)
    staged.wait(lambda: staged.text("#unlock-error") == "The server refused this key.", "a wrong key is named")
    staged.find("#api-key").send_keys("secret", Keys.ENTER)
    staged.wait(lambda: not staged.shows("#unlock"), "the right key is taken")
    assert staged.ask("Hello")


def test_statistics_rest_while_the_tab_is_hidden(staged: Staged) -> None:
    staged.wait(lambda: staged.stage.n_stats >= 2, "statistics are polled")
    staged.script(SET_HIDDEN, True)
    staged.script("return new Promise((done) => setTimeout(done, 300))")
    n_before = staged.stage.n_stats
    staged.script("return new Promise((done) => setTimeout(done, 2500))")
    assert staged.stage.n_stats == n_before
    staged.script(SET_HIDDEN, False)
    staged.wait(lambda: staged.stage.n_stats > n_before, "polling goes on")


SET_HIDDEN = """
    Object.defineProperty(document, "hidden", { value: arguments[0], configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
"""


def test_theme_toggle(staged: Staged) -> None:
    def background() -> str:
        return staged.find("body").value_of_css_property("background-color")

    staged.prefer("light")
    light = background()
    staged.prefer("dark")
    dark = background()
    assert light != dark
    staged.find("#theme").click()
    assert background() == light
    staged.driver.refresh()
    assert background() == light
    staged.find("#theme").click()
    assert background() == dark
    staged.prefer("light")
    assert background() == light, "back with the system"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(staged: Staged, scheme: str) -> None:
    staged.prefer(scheme)
    staged.stage.reply = Reply([[(f" {name}", name)] for name in ALL_DRAFTERS], reasoning=[[("Hm", "suffix")]])
    staged.ask("Hello")
    staged.find(".reasoning summary").click()
    staged.stage.refusal = Refusal(500, "It broke")
    staged.ask("Hello")
    staged.wait(lambda: staged.shows("#drafters .positions"), "statistics are shown")
    for selector in (".tint", "p", "dt", "dd", "summary", "button:not(:disabled)", "#legend", "label", "h2", ".quiet"):
        assert staged.contrast(f"body {selector}", "color") >= AA_TEXT, selector
    assert staged.contrast("#log .tint", "textDecorationColor") >= AA_GRAPHICS
    assert staged.contrast("#prompt", "borderTopColor") >= AA_GRAPHICS
    fills = {tint.value_of_css_property("background-color") for tint in staged.all("#log .body .tint")}
    assert len(fills) == len(ALL_DRAFTERS)


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


@pytest.mark.parametrize("width", [360, 1280])
def test_a_long_reply_scrolls_and_follows_unless_the_reader_went_up(staged: Staged, width: int) -> None:
    staged.resize(width, 640)
    staged.stage.reply = Reply(plain(*(f"line {n}\n" for n in range(200))))
    staged.ask("Go")
    assert off_screen(staged, "#stats > summary", "#theme", "#prompt", "#send", "#legend") == []
    below = "const log = document.getElementById('log'); return log.scrollHeight - log.scrollTop - log.clientHeight"
    staged.wait(lambda: staged.script(below) < 2, "the end is in view")
    staged.stage.reply = Reply(plain(*(f"line {n}\n" for n in range(200))), delay=0.01)
    staged.send("More")
    staged.wait(lambda: "line 5" in staged.last_reply(), "text streams")
    staged.script("document.getElementById('log').scrollTop = 0")
    staged.wait(lambda: not staged.all(".streaming"), "the reply is complete")
    assert staged.script("return document.getElementById('log').scrollTop") == 0


def off_screen(page: Page, *selectors: str) -> list[str]:
    outside = """
        const { left, top, right, bottom } = document.querySelector(arguments[0]).getBoundingClientRect();
        return left < 0 || top < 0 || right > innerWidth || bottom > innerHeight || right === left;
    """
    return [selector for selector in selectors if page.script(outside, selector)]


def test_files_call_nobody_and_write_no_markup() -> None:
    for file in WEB.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), file
