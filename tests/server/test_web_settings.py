"""The switches of the web page, in a real Chromium: what they send, and what the figures say."""

from __future__ import annotations

from threading import Event

from tests.server.web_page import Page, Staged, off_screen
from tests.server.web_stub import STATS, Reply, Step, plain


def options(page: Staged) -> dict[str, object]:
    """What the last request held beside the messages."""
    known = {"messages", "stream", "timings_per_token"}
    return {name: value for name, value in page.stage.bodies[-1].items() if name not in known}


def test_sampling(staged: Staged) -> None:
    staged.wait(lambda: staged.find("#top-k").get_attribute("placeholder") == "40", "the server's own are shown")
    assert staged.find("#max-tokens").get_attribute("placeholder") == "no limit"
    staged.set(temperature="0.5", top_k="7", top_p="0.9", min_p="0.1", repeat_penalty="1.1", seed="42", max_tokens="9")
    staged.ask("Hello")
    given = {
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.9,
        "min_p": 0.1,
        "repeat_penalty": 1.1,
        "seed": 42,
        "max_tokens": 9,
    }
    assert options(staged) == given
    staged.driver.refresh()
    staged.set(top_p="1")  # 0.91 stands there now
    staged.ask("Hello")
    assert options(staged) == {**given, "top_p": 0.91}
    staged.find("#open-settings").click()
    staged.find("#reset-settings").click()
    staged.find("#top-p").send_keys("2")  # more than there is: not sent
    staged.find("#close-settings").send_keys("\n")
    staged.script("document.getElementById('settings').close()")
    staged.ask("Hello")
    assert options(staged) == {}


def test_speculation(staged: Staged) -> None:
    staged.wait(lambda: len(staged.all("#drafter-boxes input")) == 3, "the server's drafters are offered")
    staged.set(n_max="8", n_min="1", p_min="0.25")
    staged.find("#open-settings").click()
    staged.find("#drafter-boxes [value=draft-simple]").click()
    staged.find("#close-settings").click()
    staged.ask("Hello")
    lengths = {"speculative.n_max": 8, "speculative.n_min": 1, "speculative.p_min": 0.25}
    assert options(staged) == {**lengths, "speculative.types": "suffix,ngram-simple"}
    staged.driver.refresh()
    staged.wait(lambda: len(staged.all("#drafter-boxes input")) == 3, "the server's drafters are offered")
    staged.ask("Hello")
    assert options(staged) == {**lengths, "speculative.types": "suffix,ngram-simple"}
    staged.find("#draft").click()
    assert not staged.find("#n-max").is_enabled()
    staged.ask("Hello")
    assert options(staged) == {"speculative.types": "none"}
    staged.find("#draft").click()
    staged.find("#open-settings").click()
    for box in staged.all("#drafter-boxes input"):
        if box.is_selected():
            box.click()
    staged.find("#close-settings").click()
    staged.ask("Hello")
    assert options(staged) == {**lengths, "speculative.types": "none"}


def test_figures_are_measured_until_they_mean_something(staged: Staged) -> None:
    few = {
        **STATS,
        "n_predicted": 199,
        "drafters": [{"name": "suffix", "n_tokens": 29, "n_accepted": 29, "n_calls": 9}],
    }
    staged.stage.stats = few
    guessed: list[Step] = [[("word ", "suffix"), ("more ", None)]]
    steps, few_seen, enough_seen = guessed * 2 + plain(*["slow "] * 14) + guessed * 12, Event(), Event()
    staged.stage.reply = Reply(steps, holds={17: few_seen, 1 + len(steps): enough_seen})  # 18 tokens; all of them
    staged.send("Go")
    staged.wait(lambda: staged.text("#speed") == "measuring", "too few tokens for a speed")
    few_seen.set()
    staged.wait(lambda: staged.text("#speed") == "64.3", "enough for a speed")
    assert staged.text("#accepted") == "measuring"
    enough_seen.set()
    staged.wait(lambda: not staged.all(".streaming"), "the reply is complete")
    assert staged.text("#accepted") == "–"
    assert staged.text(".footnote") == "42 tokens · 64.3 tokens/s · 14 of 28 drafted accepted"
    staged.wait(lambda: staged.text("#speedup") == "measuring", "too few tokens for a speed-up")
    assert staged.text(".drafter strong") == "measuring"
    staged.stage.stats = {**few, "n_predicted": 200, "drafters": [{**few["drafters"][0], "n_tokens": 30}]}
    staged.wait(lambda: staged.text("#speedup") == "1.43×", "enough for a speed-up")
    assert staged.text(".drafter strong") == "97 %"
    staged.stage.reply = Reply(plain("Yes."))
    staged.ask("Short?")
    assert (staged.text("#speed"), staged.text("#accepted")) == ("–", "–")
    assert [note.text for note in staged.all(".footnote")][-1] == "1 tokens"


def test_the_dialogs_fit(staged: Staged) -> None:
    staged.ask("Write fibonacci")
    staged.wait(lambda: len(staged.all("#drafter-boxes input")) == 3, "the server's drafters are offered")
    for width, height in ((360, 740), (1280, 800)):
        staged.resize(width, height)
        for name, parts in (("settings", ["#system", "#temperature"]), ("drawer", ["#close-drawer", "#conversations"])):
            staged.find(f"#open-{name}").click()
            assert off_screen(staged, *parts) == []
            assert fits(staged, name)
            controls = staged.all(f"#{name} :is(button, input:not([type=file]), textarea)")
            assert [control.accessible_name for control in controls].count("") == 0
            staged.find(f"#close-{name}").click()


def fits(page: Page, dialog: str) -> bool:
    """Nothing sticks out sideways, and the last control can be scrolled to."""
    return bool(
        page.script(
            """
            const dialog = document.getElementById(arguments[0]);
            const last = [...dialog.querySelectorAll("button")].at(-1);
            last.scrollIntoView();
            const { bottom } = last.getBoundingClientRect();
            dialog.scrollTop = 0;
            return dialog.scrollWidth <= dialog.clientWidth && bottom <= innerHeight;
            """,
            dialog,
        )
    )
