"""What of an engine is a question by name and its answer: the same for every backend that asks another process."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from paceline.process.base import Vectors


class Asking:
    """Half of a `Backend`; who inherits it knows whom to ask, and waits for the answer."""

    @abstractmethod
    def _ask(self, name: str, *args: Any) -> Any:
        """The answer, or what went wrong as an error."""

    def _ask_slot(self, name: str, slot: int, *args: Any) -> Any:
        return self._ask(name, slot, *args)

    def tokenize(self, text: bytes, special: bool, parse_special: bool) -> list[int]:
        return list(self._ask("tokenize", text, special, parse_special))

    def apply_template(self, template: str, messages: list[tuple[bytes, bytes]], opening: bool) -> bytes:
        return bytes(self._ask("apply_template", template, messages, opening))

    def embed(self, texts: Sequence[Sequence[int]], normalize: int, n_values: int | None) -> Vectors:
        return list(self._ask("embed", texts, normalize, n_values))

    def pairs(self, query: bytes, documents: Sequence[bytes]) -> list[list[int]]:
        return list(self._ask("pairs", query, documents))

    def save_slot(self, slot: int, path: str) -> tuple[int, int]:
        n_tokens, n_bytes = self._ask_slot("save_slot", slot, path)
        return n_tokens, n_bytes

    def restore_slot(self, slot: int, path: str) -> tuple[int, int]:
        n_tokens, n_bytes = self._ask_slot("restore_slot", slot, path)
        return n_tokens, n_bytes

    def erase_slot(self, slot: int) -> int:
        return int(self._ask_slot("erase_slot", slot))
