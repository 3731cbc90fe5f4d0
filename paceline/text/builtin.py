"""Chat templates that are not jinja: libllama's own. Knows how to ask for one; the formats are libllama's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.errors import ConfigError
from paceline.text.capabilities import Capabilities
from paceline.text.messages import joined_parts
from paceline.text.thoughts import Thoughts

Apply = Callable[[str, list[tuple[bytes, bytes]], bool], bytes]
"""Template, messages of role and content, whether to begin the answer."""


class BuiltinTemplate:
    """A format by its name, or by a jinja text that libllama recognises. Roles and texts are all it knows."""

    capabilities = Capabilities(supports_tools=False, supports_tool_calls=False, supports_parallel_tool_calls=False)
    thoughts = Thoughts()
    thinks = False
    tool_source = None

    def __init__(self, source: str, apply: Apply) -> None:
        self.source = source
        self._apply = apply
        self.render([{"role": "user", "content": "Hello"}])

    def render(self, messages: Sequence[Mapping[str, Any]], /, **options: Any) -> str:
        """As `ChatTemplate.render`."""
        return "".join(self.compose(messages, **options))

    def compose(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: str | None = None,
        **extra: Any,
    ) -> tuple[str, str]:
        """As `ChatTemplate.compose`; a message to be continued ends as any other, and variables mean nothing."""
        if tools:
            raise ConfigError("this server's chat template has no place for tools; start it with one that is jinja")
        chat = [(data(message["role"]), data(joined_parts(message.get("content")))) for message in messages]
        prompt = self._apply(self.source, chat, add_generation_prompt and not continue_final_message)
        return prompt.decode("utf-8", "surrogatepass"), ""


def data(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
