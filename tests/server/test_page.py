"""The page's files as they are served: types, headers, and nothing that calls elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from paceline.server.params import ServerParams
from tests.server.live import Live, live, settings
from tests.server.web_stub import WEB

POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')


def test_every_file_is_served_to_be_shown_here_only(tiny: Live) -> None:
    types = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
    for file in WEB.iterdir():
        reply = tiny.http.get(f"/{file.name}")
        assert reply.text == file.read_text(encoding="utf-8")
        assert reply.headers["content-type"].startswith(types[file.suffix])
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-security-policy"] == "frame-ancestors 'self'"
        assert reply.headers["cache-control"] == "no-cache"
    page = tiny.http.get("/")
    again = tiny.http.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"]


def test_a_folder_of_ones_own_has_its_own_rules(target: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>mine")
    with live(settings(target), ServerParams(port=0, static_path=str(tmp_path)), load=False) as server:
        reply = server.http.get("/")
    assert reply.text == "<p>mine"
    assert "content-security-policy" not in reply.headers


def test_scripts_come_from_here_and_make_no_markup() -> None:
    [policy] = POLICY.findall((WEB / "index.html").read_text(encoding="utf-8"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy


def test_files_call_nobody_and_write_no_markup() -> None:
    for file in WEB.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), file


def test_every_script_is_used_and_short() -> None:
    scripts = {file.name: file.read_text(encoding="utf-8") for file in WEB.glob("*.js")}
    page = (WEB / "index.html").read_text(encoding="utf-8")
    used = set(re.findall(r'src="([\w.]+)"', page)) | {
        name for text in scripts.values() for name in re.findall(r'from "\./([\w.]+)"', text)
    }
    assert used == set(scripts)
    assert max(text.count("\n") for text in scripts.values()) <= 200
