from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.text.reasoning import ReasoningParser, opens_thoughts

PARTS = st.sampled_from(["<think>", "</think>", "<", "</", "think>", "<thi", "a", "b c", " ", "\n", "</think"])
TEXT = st.lists(PARTS, max_size=8).map("".join)


def split(pushes: list[str], *, opened: bool = False) -> tuple[str, str]:
    parser = ReasoningParser(opened=opened)
    parts = [parser.push(text) for text in pushes] + [parser.flush()]
    return "".join(part.reasoning for part in parts), "".join(part.content for part in parts)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("plain", "", "plain"),
        ("  plain ", "", "  plain "),
        ("<think>\nhm, two\n</think>\n\nThree.\n", "hm, two", "Three.\n"),
        ("\n<think>a</think>b", "a", "b"),
        ("<think></think>b", "", "b"),
        ("<think>a < b </thin </think> c", "a < b </thin", "c"),
        ("<think>never ends ", "never ends", ""),
        ("say <think>no</think>", "", "say <think>no</think>"),
        ("<thinking>", "", "<thinking>"),
        ("<thi", "", "<thi"),
        ("</think>b", "", "b"),
        ("<think>a</think>b</think>", "a", "b</think>"),
        ("", "", ""),
    ],
)
def test_thoughts_and_answer(text: str, reasoning: str, content: str) -> None:
    assert split([text]) == (reasoning, content)


def test_the_template_may_have_opened_the_tag() -> None:
    assert opens_thoughts("<|im_start|>assistant\n<think>\n")
    assert not opens_thoughts("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert split(["\nso</th", "ink>\nyes"], opened=True) == ("so", "yes")


@given(TEXT, st.data(), st.booleans())
@example("<think> a </think> b", None, False)
def test_the_cutting_does_not_matter(text: str, data: st.DataObject | None, opened: bool) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8))) if data else range(len(text))
    edges = [0, *cuts, len(text)]
    pushes = [text[a:b] for a, b in pairwise(edges)]
    assert split(pushes, opened=opened) == split([text], opened=opened)


@given(TEXT)
def test_nothing_but_tags_and_white_space_is_lost(text: str) -> None:
    reasoning, content = split(list(text))
    both = "".join((reasoning + content).split())
    without_end = text.replace("</think>", "", 1)
    without = (text, without_end, without_end.replace("<think>", "", 1), text.replace("<think>", "", 1))
    assert both in ["".join(each.split()) for each in without]
    if "<think>" not in text and not text.lstrip().startswith("</think>"):
        assert content == text


def test_text_is_shown_as_soon_as_it_is_certain() -> None:
    parser = ReasoningParser()
    assert parser.push("Hello").content == "Hello"
    parser = ReasoningParser()
    assert parser.push("<think>one two <").reasoning == "one two"
    assert parser.push("3").reasoning == " <3"
