"""The prompts of a command line: texts, files, stdin, escapes. Refuses what is not UTF-8, saying where."""

from __future__ import annotations

import sys
from pathlib import Path

from paceline.cli.options import Prompt, RunOptions
from paceline.cli.values import unescape
from paceline.errors import PromptError


def prompt_texts(options: RunOptions, *, escape: bool) -> list[str]:
    return [prompt_text(prompt, escape=escape) for prompt in options.prompts]


def system_text(options: RunOptions, *, escape: bool) -> str | None:
    if options.system_file is not None:
        return read_text(options.system_file)
    if options.system is None:
        return None
    return prompt_text(Prompt(text=options.system), escape=escape)


def prompt_text(prompt: Prompt, *, escape: bool) -> str:
    """Files are taken as they are: a program's own backslashes must survive."""
    if prompt.path is not None:
        return read_text(prompt.path)
    text = unescape(prompt.text or "") if escape else prompt.text or ""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(f"the prompt is not UTF-8 text (character {error.start + 1})") from None
    return text


def read_text(path: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise PromptError(f"cannot read {path}: {error.strerror or error}") from None
    return decode(data, path).removesuffix("\n")


def decode(data: bytes, origin: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise PromptError(f"{origin} is not UTF-8 text (byte {error.start + 1} is 0x{data[error.start]:02x})") from None
