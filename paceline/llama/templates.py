"""libllama's own chat templates: known formats by name, or recognised by a jinja text. Nothing of jinja itself."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from paceline.errors import ConfigError
from paceline.llama.lib import c


def builtin_templates() -> tuple[str, ...]:
    """Their names."""
    n = int(c.llama_chat_builtin_templates(None, 0))
    names = (ctypes.c_char_p * n)()
    c.llama_chat_builtin_templates(names, n)
    return tuple(name.decode() for name in names if name)


def apply_template(template: str, messages: Sequence[tuple[bytes, bytes]], opening: bool) -> bytes:
    """The prompt for messages of role and content. `opening` begins the assistant's turn."""
    chat = (c.llama_chat_message * len(messages))(*(c.llama_chat_message(*message) for message in messages))
    n_bytes = 1024 + 2 * sum(len(role) + len(content) for role, content in messages)
    while True:
        buffer = ctypes.create_string_buffer(n_bytes)
        n = int(c.llama_chat_apply_template(template.encode(), chat, len(messages), opening, buffer, n_bytes))
        if n < 0:
            raise ConfigError("libllama does not know this chat template; leave out --no-jinja, which only knows some")
        if n <= n_bytes:
            return buffer.raw[:n]
        n_bytes = n
