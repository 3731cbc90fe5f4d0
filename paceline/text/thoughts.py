"""Where a template's model thinks: the tags around its thoughts, found by trying. Nothing of what models write.

A template shows them in two places: around an earlier turn's thoughts, and at the end of a prompt, which another
`enable_thinking` opens or closes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from paceline.errors import PromptError

ASKED = {"role": "user", "content": "U_ASKED Hello END_U"}
SAID = {"role": "assistant", "content": "A_SAID I can help END_A"}
THOUGHT = "T_THOUGHT I am thinking END_T"
TAG = r"(?:<[^>]*>|\[[^\]]*\])"
N_ANCHOR = 64

Render = Callable[[Sequence[Mapping[str, Any]], bool, bool], str]
"""Messages, whether to add a generation prompt, whether to think."""


@dataclass(frozen=True, slots=True)
class Thoughts:
    """The tags as the template writes them, white space and all. Without an `end` nothing is known of thinking."""

    start: str = ""
    end: str = ""
    supported: bool = False


def thoughts_of(source: str, render: Render) -> Thoughts:
    found = in_the_past(render) or Thoughts()
    found = at_the_end(render, found)
    return known(source, found)


def attempt(render: Render, messages: Sequence[Mapping[str, Any]], opening: bool, thinking: bool) -> str | None:
    with suppress(PromptError):
        return render(messages, opening, thinking)
    return None


def in_the_past(render: Render) -> Thoughts | None:
    """Around the thoughts of an answer that was given."""
    if attempt(render, [ASKED, SAID], False, True) is None:
        return None
    prompt = attempt(render, [ASKED, {**SAID, "reasoning_content": THOUGHT}], False, True) or ""
    thought = re.escape(THOUGHT)
    around = re.search(rf"({TAG}\s*){thought}(\s*{TAG}\s*)", prompt)
    if around:
        return Thoughts(around[1], around[2], True)
    after = re.search(rf"{thought}\s*({TAG}\s*)", prompt)
    return Thoughts("", after[1], True) if after else None


def at_the_end(render: Render, found: Thoughts) -> Thoughts:
    """What a prompt ends with when the model shall think, and when it shall not."""
    off, on = (attempt(render, [ASKED], True, thinking) for thinking in (False, True))
    if off is None or on is None or off == on:
        return found
    if off.startswith(on):
        return closed_when_off(off, off.removeprefix(on), found)
    if on.startswith(off):
        return found if found.start else replace(found, start=on.removeprefix(off), supported=True)
    return extended(off, on, found)


def closed_when_off(off: str, closing: str, found: Thoughts) -> Thoughts:
    if found.end or not closing.strip():
        return found
    tags = re.findall(TAG, closing)
    if len(tags) == 2:
        return Thoughts(tags[0], tags[1], True)
    *_, before, last = ["", "", *re.findall(TAG, off)]
    start = before if last == closing.strip() else found.start
    return Thoughts(start, closing, True)


def extended(off: str, on: str, found: Thoughts) -> Thoughts:
    """The prompts differ elsewhere too: the end of one may still be in the other, with a pair of tags after it."""
    for base, other in ((on, off), (off, on)):
        anchor = base[-N_ANCHOR:]
        _, there, more = other.rpartition(anchor)
        tags = re.findall(TAG, more)
        if there and len(tags) == 2 and "".join(more.split()) == "".join("".join(tags).split()):
            return Thoughts(found.start or tags[0], found.end or tags[1], True)
    return found


def known(source: str, found: Thoughts) -> Thoughts:
    """Templates that do not show how their models think."""
    old_qwen = "content.split('</think>')" in source and not re.search("reasoning_content|<SPECIAL_12>", source)
    if (old_qwen and not found.supported) or "<response></response>" in source:
        return Thoughts("<think>", "</think>", True)
    if "<SPECIAL_12>" in source and "<TOOL_RESPONSE>" in source:
        return Thoughts("<think>\n", "</think>", True)
    if "laguna_glm_thinking" in source:
        return replace(found, start=found.start.strip(), end=found.end.strip())
    return found
