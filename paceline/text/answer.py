"""An answer taken apart as it is written: thoughts, text, tool calls. Knows a family's style; nothing of tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.text.formats import STYLES, USUAL, Style
from paceline.text.reasoning import ReasoningParser, Split, without_start_of
from paceline.text.tools import CallPart, Tool, ToolParser

PLAIN_STYLE = STYLES[-1]
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>(\w+)")
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|eom|>", "<|eot|>", "<|start|>")


@dataclass(frozen=True, slots=True)
class Said:
    """A stretch of an answer: what of it was thought, said, called."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[CallPart, ...] = ()

    def __add__(self, other: Said) -> Said:
        return Said(self.reasoning + other.reasoning, self.content + other.content, self.calls + other.calls)


class AnswerParser:
    """Takes one answer apart. `prompt` is what came before it; `opened`: it ends within thoughts. Without `thoughts`
    they stay in the content as they are, without tools calls do."""

    def __init__(
        self,
        style: Style = PLAIN_STYLE,
        tools: Sequence[Tool] = (),
        prompt: str = "",
        *,
        opened: bool = False,
        thoughts: bool = True,
    ) -> None:
        opened = opened or style.opens_thoughts(prompt)
        self._channels = Channels() if style.harmony else None
        formats = (*style.calls, *USUAL) if tools else ()
        ends = [mark for form in style.calls for mark in form.openers] if tools and style.calls_end_thoughts else []
        self._reasoning = None
        if thoughts and not style.harmony:
            self._reasoning = ReasoningParser(style.think, opened=opened, ends=ends)
        self._thoughts = thoughts
        dropped = [mark for mark in style.dropped if thoughts or style.think[1] not in mark]
        self._tools = ToolParser(tools, formats, dropped) if tools or dropped else None
        self._tag = (
            "" if thoughts or not style.opens_thoughts(prompt) else prompt[prompt.rfind(style.think[0].rstrip()) :]
        )
        if self._tools and style.prompted and prompt.endswith(style.prompted):
            self._tools.push(style.prompted)

    @property
    def n_calls(self) -> int:
        return (self._tools.n_calls if self._tools else 0) + (self._channels.n_calls if self._channels else 0)

    def push(self, text: str) -> Said:
        """What became certain with this text."""
        if self._channels:
            return self._routed(self._channels.push(text))
        split = self._reasoning.push(text) if self._reasoning else Split(content=self._with_tag(text))
        return Said(split.reasoning) + self._content(split.content)

    def flush(self) -> Said:
        """The end of the text."""
        if self._channels:
            return self._routed(self._channels.flush()) + self._content("", last=True)
        split = self._reasoning.flush() if self._reasoning else Split()
        return Said(split.reasoning) + self._content(split.content, last=True)

    def _with_tag(self, text: str) -> str:
        """The tag that the prompt has opened stands before thoughts that stay."""
        tag, self._tag = (self._tag, "") if text else ("", self._tag)
        return tag + text

    def _routed(self, said: Said) -> Said:
        content = said.content if self._thoughts else said.reasoning + said.content
        return Said(said.reasoning if self._thoughts else "", "", said.calls) + self._content(content)

    def _content(self, text: str, *, last: bool = False) -> Said:
        if not self._tools:
            return Said(content=text)
        found = self._tools.push(text) + (self._tools.flush() if last else [])
        content = "".join(item for item in found if isinstance(item, str))
        return Said("", content, tuple(item for item in found if isinstance(item, CallPart)))


class Channels:
    """Messages with headers, as gpt-oss writes them: `<|channel|>analysis<|message|>…<|end|>` are thoughts,
    `to=functions.name` is a call, what is for other recipients is left out."""

    def __init__(self) -> None:
        self._held = ""
        self._header = True
        self._recipient = self._channel = ""
        self._begun = False
        self.n_calls = 0

    def push(self, text: str) -> Said:
        self._held += text
        said = Said()
        while True:
            n_held, header = len(self._held), self._header
            said += self._read_header() if header else self._read_body()
            if len(self._held) == n_held and self._header == header:
                return said

    def flush(self) -> Said:
        held, self._held = self._held, ""
        if self._header:
            plain = not self._begun and "<|" not in held
            return Said(content=held) if plain else Said()
        return self._route(held)

    def _read_header(self) -> Said:
        header, mark, rest = self._held.partition("<|message|>")
        if not mark:
            return self._without_header()
        recipient, channel = _RECIPIENT.findall(header), _CHANNEL.findall(header)
        self._recipient = recipient[-1] if recipient else ""
        self._channel = channel[-1] if channel else ""
        if self._recipient == "assistant":
            self._recipient = ""
        self._held, self._header, self._begun = rest, False, True
        if self._recipient.startswith("functions."):
            self.n_calls += 1
            return Said(calls=(CallPart(self.n_calls - 1, "", self._recipient.removeprefix("functions.")),))
        return Said()

    def _without_header(self) -> Said:
        """A text that begins like none is content."""
        text = self._held.lstrip()
        if self._begun or not text or text.startswith(("<|", "to=")) or "<|channel|>".startswith(text) or text in "to=":
            return Said()
        self._channel, self._header, self._begun = "final", False, True
        return Said()

    def _read_body(self) -> Said:
        found = min(((at, mark) for mark in _ENDS if (at := self._held.find(mark)) >= 0), default=None)
        if found:
            body, self._held, self._header = self._held[: found[0]], self._held[found[0] + len(found[1]) :], True
            return self._route(body)
        certain = min((without_start_of(mark, self._held) for mark in _ENDS), key=len)
        self._held = self._held[len(certain) :]
        return self._route(certain)

    def _route(self, text: str) -> Said:
        if not text:
            return Said()
        if self._recipient.startswith("functions."):
            return Said(calls=(CallPart(self.n_calls - 1, text),))
        if self._recipient == "self" or (self._channel == "analysis" and not self._recipient):
            return Said(text)
        if self._recipient in ("", "user") or not self._channel:
            return Said(content=text)
        return Said()
