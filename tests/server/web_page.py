"""The web page as a user meets it, in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.server.web_stub import Stage, WebStub

WAIT_S = 60


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
        try:
            return any(element.is_displayed() for element in self.all(selector))
        except StaleElementReferenceException:  # replaced while we looked
            return False

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
        self.find("#close-settings").click()
        self.find("#prompt").click()

    def ask(self, text: str) -> str:
        n_replies = len(self.all("article.reply"))
        self.send(text)
        self.wait(lambda: len(self.all("article.reply")) > n_replies, "a reply has begun")
        self.wait(lambda: not self.all("article.streaming"), "the reply is complete")
        return self.last_reply()

    def last_reply(self) -> str:
        return str(self.script(LAST_REPLY))

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


# Without the names of languages and the buttons over code.
LAST_REPLY = """
    const body = [...document.querySelectorAll("article.reply > .body")].at(-1).cloneNode(true);
    for (const caption of body.querySelectorAll("figcaption")) caption.remove();
    return body.textContent;
"""

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


class Staged(Page):
    """The page on the stub. Set the stage first, then open."""

    def __init__(self, driver: Chrome, stub: WebStub) -> None:
        super().__init__(driver, stub.url)
        self.stub = stub
        stub.stage = Stage()

    @property
    def stage(self) -> Stage:
        return self.stub.stage


def leave(page: Page) -> None:
    """No script error, and nothing of one test left for the next."""
    log = page.driver.get_log("browser")  # type: ignore[no-untyped-call]
    errors = [entry["message"] for entry in log if entry["source"] == "javascript"]
    page.script("localStorage.clear(); sessionStorage.clear();")
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    page.prefer("light")
    page.driver.get("about:blank")
    assert errors == []


def off_screen(page: Page, *selectors: str) -> list[str]:
    outside = """
        const { left, top, right, bottom } = document.querySelector(arguments[0]).getBoundingClientRect();
        return left < 0 || top < 0 || right > innerWidth || bottom > innerHeight || right === left;
    """
    return [selector for selector in selectors if page.script(outside, selector)]
