"""One server of tiny random weights for most tests, some of the demo model for those that need words; a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from tests.server.live import Live, live, settings
from tests.server.web_page import Page, Staged, leave
from tests.server.web_stub import WebStub, running_stub


@pytest.fixture(scope="session")
def tiny(target: str) -> Iterator[Live]:
    with live(settings(target, n_ctx=1024, spec_types=("ngram-simple",))) as server:
        yield server


@pytest.fixture(scope="session")
def talking(demo: str) -> Iterator[Live]:
    """Two slots of the demo model, drafting from its own text."""
    with live(settings(demo, n_threads=2, spec_types=("ngram-simple",), exact=True)) as server:
        yield server


@pytest.fixture(scope="session")
def drafting(demo: str) -> Iterator[Live]:
    """The demo model, which drafts whenever its text offers something."""
    options = settings(demo, n_ctx=4096, n_threads=2, spec_types=("suffix",), spec_policy="fixed")
    with live(options) as server:
        yield server


# -- the browser


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


@pytest.fixture
def page(driver: Chrome, drafting: Live) -> Iterator[Page]:
    """The page of a real server with a real model."""
    page = Page(driver, drafting.url)
    page.open()
    page.set(temperature="0", max_tokens="160")
    yield page
    leave(page)


@pytest.fixture(scope="session")
def stub() -> Iterator[WebStub]:
    with running_stub() as server:
        yield server


@pytest.fixture
def staged(driver: Chrome, stub: WebStub) -> Iterator[Staged]:
    page = Staged(driver, stub)
    page.open()
    yield page
    leave(page)
