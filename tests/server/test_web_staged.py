"""The web page in a real Chromium, before a server that does what the test scripts: failures, cuts, odd texts."""

from __future__ import annotations

from threading import Event

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.server.web_page import WAIT_S, Page, Staged, leave, off_screen
from tests.server.web_stub import ENDLESS, FIBONACCI, Refusal, Reply, Step, plain, running_stub

AA_TEXT = 4.5
AA_GRAPHICS = 3.0
CONTROLS = ("button:not(:disabled)",)
MARKDOWN = (".body a", ".body blockquote", ".body code", ".language", "th", "td")
ALL_DRAFTERS = [
    *("draft-simple", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"),
    *("draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"),
    *("suffix", "grammar", "from-the-future"),
]


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
    assert staged.text("figcaption .language") == "python"
    assert "```" not in staged.last_reply()
    assert ("suffix", "in cache:\n        return cache[n]\n") in staged.tinted()
    assert [block.tag_name for block in staged.all("article.reply > .body > *")] == ["p", "figure", "p"]


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
    staged.stage.reply = Reply(ENDLESS, delay=0.02)
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
    staged.stage.reply = Reply(ENDLESS, delay=0.02)
    staged.send("Go")
    staged.wait(lambda: "word" in staged.last_reply(), "text streams")
    staged.find("#stop").click()
    staged.wait(lambda: staged.shows("#send"), "the reply stops")
    assert staged.focused() == "prompt"


def test_new_chat_while_streaming(staged: Staged) -> None:
    staged.stage.reply = Reply(ENDLESS, delay=0.02)
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
    seen = Event()
    staged.stage.reply = Reply(plain("Four."), reasoning=thinking, holds={4: seen})
    staged.send("2 + 2?")
    staged.wait(lambda: staged.shows(".reasoning[open]"), "thoughts are seen while they come")
    seen.set()
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
    staged.script("return new Promise((done) => setTimeout(done, 2000))")  # what was asked before comes in
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
    markdown = "\n\n> quote\n\n[link](https://x.org) `code`\n```py\nx\n```\n| a |\n|---|\n| 1 |"
    tints: list[Step] = [[(f" {name}", name)] for name in ALL_DRAFTERS]
    staged.stage.reply = Reply([*tints, *plain(markdown)], reasoning=[[("Hm", "suffix")]])
    staged.ask("Hello")
    staged.find(".reasoning summary").click()
    staged.stage.refusal = Refusal(500, "It broke")
    staged.ask("Hello")
    staged.wait(lambda: staged.shows("#drafters .positions"), "statistics are shown")
    for selector in (*(".tint", "p", "dt", "dd", "summary", "#legend", "label", "h2", ".quiet"), *CONTROLS, *MARKDOWN):
        assert staged.contrast(f"body {selector}", "color") >= AA_TEXT, selector
    for dialog in ("settings", "drawer"):
        staged.find(f"#open-{dialog}").click()
        words = ", ".join(f"#{dialog} {selector}" for selector in ("p", "h2", "label", *CONTROLS))
        assert staged.contrast(words, "color") >= AA_TEXT, dialog
        staged.find(f"#close-{dialog}").click()
    assert staged.contrast("#log .tint", "textDecorationColor") >= AA_GRAPHICS
    assert staged.contrast("#prompt", "borderTopColor") >= AA_GRAPHICS
    fills = {tint.value_of_css_property("background-color") for tint in staged.all("#log .body .tint")}
    assert len(fills) == len(ALL_DRAFTERS)


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
