"""Models that several engines use at once: the weights are in memory once, however many contexts read them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from paceline.config import ModelParams
from paceline.llama.model import Model


class SharedModels:
    """Loads what was not asked for before, and owns it all: close it after the engines that use it."""

    def __init__(self) -> None:
        self._loaded: dict[ModelParams, Model] = {}

    def get(self, params: ModelParams, on_progress: Callable[[float], None] | None = None) -> Model:
        model = self._loaded.get(params)
        if model is None:
            model = self._loaded[params] = Model(params, on_progress)
        return model

    def drop(self, path: str) -> None:
        """Frees what was loaded of this file: nobody uses it any more."""
        for params in [params for params in self._loaded if params.path == path]:
            self._loaded.pop(params).close()

    def close(self) -> None:
        while self._loaded:
            self._loaded.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
