"""Markdown on the web page, in a real Chromium: what it becomes, however it is cut; what it must never become."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.server.web_page import WAIT_S, Page, Staged
from tests.server.web_stub import Reply, plain

# Draws at each piece instead of once a frame, so that every cut is seen.
DRAW = """
    const [texts, size] = arguments;
    const done = arguments[arguments.length - 1];
    import("./text.js").then(({ TextView }) => {
      window.requestAnimationFrame = (draw) => { draw(); return 0; };
      const outline = (node) => {
        if (node.nodeType === Node.TEXT_NODE) return node.data;
        if (node.localName === "figcaption") return node.firstChild.textContent + ":";
        const name = [node.localName, ...["start", "href"].filter((a) => node.hasAttribute(a)).map((a) => node[a])];
        return name.join("=") + "(" + [...node.childNodes].map(outline).join("") + ")";
      };
      done(texts.map((text) => {
        const root = document.createElement("div");
        const view = new TextView(root);
        const began = performance.now();
        const step = size || text.length;
        for (let at = 0; at < text.length; at += step) view.push(text.slice(at, at + step));
        view.finish();
        return [[...root.childNodes].map(outline).join(""), performance.now() - began];
      }));
    });
"""

CASES = {
    "one\ntwo\n\nthree": "p(one\ntwo)p(three)",
    "a `b` c\n\n``d ` e``": "p(a code(b) c)p(code(d ` e))",
    "`never closed": "p(`never closed)",
    "``` one line ```": "p(code(one line))",
    "```\nx\n```": "figure(:pre(code(x)))",
    "```py\nx = '*a*'\n\ny\n```\nend": "figure(py:pre(code(x = '*a*'\n\ny)))p(end)",
    "~~~\nx\n```\n~~~": "figure(:pre(code(x\n```)))",
    "```\nnever closed": "figure(:pre(code(never closed)))",
    "````md\n```\nx\n```\n````\nend": "figure(md:pre(code(```\nx\n```)))p(end)",
    "one\n  ```js\n  y\n    z\n  ```\ntwo": "p(one)figure(js:pre(code(y\n  z)))p(two)",
    "a\n``": "p(a\n``)",
    "**a** *b* ***c*** ~~d~~ __e__ _f_": "p(strong(a) em(b) em(strong(c)) s(d) strong(e) em(f))",
    "**a *b* c**": "p(strong(a em(b) c))",
    "2 * 3 * 4, snake_case_name, a*, **b": "p(2 * 3 * 4, snake_case_name, a*, **b)",
    r"\*not\* \_it\_ \(x^2\)": r"p(*not* _it_ \(x^2\))",
    "# One\n### Three ###\ntext\n#no": "h4(One)h6(Three)p(text\n#no)",
    "a\n\n---\n\n***\nb": "p(a)hr()hr()p(b)",
    "- a\n- b\n\n- c\n\nend": "ul(li(p(a))li(p(b))li(p(c)))p(end)",
    "1. a\n2. b\n   - c\n     - d\n3. e": "ol(li(p(a))li(p(b)ul(li(p(c)ul(li(p(d))))))li(p(e)))",
    "1. a\n  * b\n\n  c": "ol(li(p(a)ul(li(p(b)))p(c)))",
    "7) x": "ol=7(li(p(x)))",
    "- a\n  ```sh\n  ls\n  ```\n- b\ngoes on": "ul(li(p(a)figure(sh:pre(code(ls))))li(p(b\ngoes on)))",
    "In\n1986. A year": "p(In\n1986. A year)",
    "text\n- a": "p(text)ul(li(p(a)))",
    "> a\n> > b\n>\n> - c\n\nd": "blockquote(p(a)blockquote(p(b))ul(li(p(c))))p(d)",
    "| a | b |\n|:-:|--:|\n| `1` | 2 \\| 3 |\n| 4 |\nend": (
        "div(table(thead(tr(th(a)th(b)))tbody(tr(td(code(1))td(2 | 3))tr(td(4)td()))))p(end)"
    ),
    "no | table\nat | all": "p(no | table\nat | all)",
    "[a **b**](https://x.org/p_(q)?r=1) ![pic](http://y.org/z.png)": (
        "p(a=https://x.org/p_(q)?r=1(a strong(b)) a=http://y.org/z.png(pic))"
    ),
    "See https://x.org/a_b_c, <https://y.org/>.": "p(See a=https://x.org/a_b_c(https://x.org/a_b_c), a=https://y.org/(https://y.org/).)",
    "<b>x</b> &amp; <br>": "p(<b>x</b> &amp; <br>)",
    "": "",
}

FRAGMENTS = (
    *(
        "word ",
        "two words",
        "\n",
        "\n",
        "\n\n",
        "- ",
        "1. ",
        "2. ",
        "   ",
        "  ",
        "> ",
        "# ",
        "```",
        "```py\n",
        "`",
        "``",
    ),
    *(
        "*",
        "**",
        "_",
        "~~",
        "| a | b |\n",
        "|---|---|\n",
        "|",
        "[a](https://x.org)",
        "https://x.org",
        "\\",
        "---\n",
        "\t",
    ),
    *("~~~", "1", "+ ", "<b>", "é\U0001f600"),
)

SCRIPT = "<script>window.hurt=1</script><img src=x onerror=window.hurt=1><svg onload=window.hurt=1>"
PAYLOADS = (
    SCRIPT,
    f"```{SCRIPT}\n{SCRIPT}\n```",
    f'```"onmouseover="window.hurt=1\n{SCRIPT}',
    f"# {SCRIPT}\n> {SCRIPT}\n- {SCRIPT}",
    f"| {SCRIPT} | b |\n|---|---|\n| {SCRIPT} | `{SCRIPT}` |",
    "[click](javascript:window.hurt=1) [x](JaVaScRiPt:window.hurt=1) [y](\tjavascript:window.hurt=1)",
    "[x](data:text/html,<script>window.hurt=1</script>) [y](vbscript:x)",
    "[z](file:///etc/passwd) <javascript:window.hurt=1>",
    '[x](https://e.org/"onclick="window.hurt=1) [y](https://e.org "onclick=window.hurt=1") https://e.org/"onclick=hurt',
    "![x](https://e.org/spy.png) ![y](javascript:window.hurt=1) ![z](data:image/svg+xml,<svg/onload=window.hurt=1>)",
    "[a]: javascript:window.hurt=1\n\n[a]\n\n<a href='javascript:window.hurt=1'>x</a>",
    "<iframe src='javascript:window.hurt=1'></iframe><base href='https://e.org'><style>*{display:none}</style>",
    "<form id=composer><input name=hurt></form><a id=prompt name=log></a>",
)


def draw(page: Page, texts: list[str], size: int = 0) -> list[tuple[str, float]]:
    """Each text as an outline, and the milliseconds it took; drawn after every `size` characters, or at once."""
    page.driver.set_script_timeout(WAIT_S)
    drawn: list[tuple[str, float]] = page.driver.execute_async_script(DRAW, texts, size)
    return drawn


def test_markdown_however_it_is_cut(staged: Staged) -> None:
    for size in (0, 1, 3):
        outlines = [outline for outline, _ in draw(staged, list(CASES), size)]
        assert dict(zip(CASES, outlines, strict=True)) == CASES, size


def test_any_text_ends_up_the_same_streamed_or_not(staged: Staged) -> None:
    """What is shown on the way is never kept by mistake."""
    dice = random.Random(7)
    texts = ["".join(dice.choices(FRAGMENTS, k=dice.randint(1, 40))) for _ in range(200)]
    whole = [outline for outline, _ in draw(staged, texts)]
    for size in (1, 3):
        for text, expected, (outline, _) in zip(texts, whole, draw(staged, texts, size), strict=True):
            assert outline == expected, (size, text)


def test_no_text_takes_long(staged: Staged) -> None:
    n = 20_000
    units = (
        "[",
        "![",
        "[a](",
        "*a ",
        "*a",
        "**a _b ",
        "_",
        "`a``b```c",
        "> ",
        "- ",
        "|",
        "|a|\n|-|\n",
        "# \n",
        "https://",
        "1.\n  ",
    )
    texts = [(unit * n)[:n] for unit in units] + ["".join("`" * k + " " for k in range(300))]
    for text, (outline, ms) in zip(texts, draw(staged, texts), strict=True):
        assert outline
        assert ms < 5000, text[:20]


def test_model_text_is_never_markup(staged: Staged) -> None:
    staged.stage.reply = Reply([[(f"{payload}\n\n", "suffix")] for payload in PAYLOADS], reasoning=plain(*PAYLOADS))
    staged.stage.stats = {**staged.stage.stats, "model": SCRIPT, "drafters": [{"name": SCRIPT, "n_tokens": 9}]}
    staged.ask(SCRIPT)
    check_harmless(staged)
    assert staged.text("article.user .lines") == SCRIPT
    assert staged.last_reply().count(SCRIPT) >= 7
    staged.driver.refresh()
    staged.wait(lambda: staged.last_reply().count(SCRIPT) >= 7, "it is shown again")
    check_harmless(staged)
    staged.find("#open-drawer").click()
    check_harmless(staged)


def check_harmless(page: Page) -> None:
    inside = "#log, #stats, header, #conversations"
    assert page.script("return window.hurt") is None
    found: dict[str, Any] = json.loads(page.script(FOREIGN, inside))
    assert found["tags"] == []
    assert found["handlers"] == []
    assert all(link.startswith(("https://", "http://", "mailto:")) for link in found["links"]), found["links"]


FOREIGN = """
    const roots = [...document.querySelectorAll(arguments[0])];
    const nodes = roots.flatMap((root) => [...root.querySelectorAll("*")]);
    const known = new Set(("h1 h3 h4 h5 h6 p div span a code pre figure figcaption button ul ol li blockquote table " +
      "thead tbody tr th td hr em strong s article details summary section h2 dl dt dd strong svg circle path time " +
      "dialog").split(" "));
    return JSON.stringify({
      tags: nodes.map((node) => node.localName).filter((name) => !known.has(name)),
      handlers: nodes.flatMap((node) => node.getAttributeNames()).filter((name) => name.startsWith("on")),
      links: nodes.filter((node) => node.localName === "a").map((node) => node.href),
    });
"""


def test_scripts_cannot_be_added_at_all(staged: Staged) -> None:
    """Were there a hole in the page, the policy would hold."""
    with pytest.raises(Exception, match="TrustedHTML"):
        staged.script("document.body.innerHTML = '<img src=x>'")
    with pytest.raises(Exception, match="TrustedScript"):
        staged.script("document.body.setAttribute('onclick', 'window.hurt = 1')")
    staged.driver.get_log("browser")  # type: ignore[no-untyped-call]


def test_what_is_used_survives_streaming(staged: Staged) -> None:
    staged.stage.reply = Reply(plain("```py\n", *["line\n"] * 40, "```\ndone"), delay=0.02)
    staged.send("Go")
    staged.wait(lambda: staged.shows("button.copy"), "the code has begun")
    staged.script("document.querySelector('button.copy').focus()")
    staged.script("getSelection().selectAllChildren(document.querySelector('pre code'))")
    staged.wait(lambda: not staged.all(".streaming"), "the reply is complete")
    assert staged.script("return document.activeElement.className") == "copy"
    assert staged.script("return String(getSelection())").startswith("line\n")


def test_copies_code_and_replies(staged: Staged) -> None:
    staged.script("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    staged.stage.reply = Reply(plain("Do **this**:\n```py\nx = 1\n", "y = 2\n```"))
    staged.ask("Go")
    staged.find("button.copy").click()
    staged.wait(lambda: staged.text("button.copy") == "Copied", "it says so")
    assert staged.script("return window.copied") == "x = 1\ny = 2"
    staged.find(".reply .actions button").click()
    staged.wait(lambda: staged.script("return window.copied").startswith("Do **this**:\n```py"), "the reply is copied")
