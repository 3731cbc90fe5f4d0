"""Texts as vectors: beside an engine that writes, or as all that a model can do. Knows tokens, and when to compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

from paceline.config import ContextParams, Settings
from paceline.engine.request import Limits, Request
from paceline.engine.worker import WORKER
from paceline.errors import CannotWrite, EngineClosed, RequestError
from paceline.llama.embedder import Embedder
from paceline.llama.lib import devices
from paceline.llama.model import Model, Vocab
from paceline.llama.ranking import Pairing
from paceline.llama.shared import SharedModels
from paceline.llama.templates import apply_template
from paceline.process.base import Health, Info, OnEvent, OnProgress, Status, Vectors

NO_SLOTS = "there are no slots: this model makes embeddings and writes nothing"


class Computing(Protocol):
    """Runs something where nothing else computes."""

    def __call__(self, work: Callable[[], Any], /) -> Any: ...


class Embeddings:
    """One model's, in a context that is opened when it is first wanted."""

    def __init__(self, model: Model, params: ContextParams, call: Computing) -> None:
        self._model = model
        self._params = params
        self._call = call

    @cached_property
    def embedder(self) -> Embedder:
        return Embedder(self._model, self._params)

    def embed(self, texts: Sequence[Sequence[int]], normalize: int, n_values: int | None) -> Vectors:
        found: Vectors = self._call(
            lambda: [vectors.tolist() for vectors in self.embedder.embed(texts, normalize, n_values)]
        )
        return found

    def pairs(self, query: bytes, documents: Sequence[bytes]) -> list[list[int]]:
        """The first that is too large ends it: a long query counts once for every document."""
        embedder: Embedder = self._call(lambda: self.embedder)
        pairing, pairs = Pairing(self._model), []
        for document in documents:
            pairs.append(pairing.tokens(query, document))
            embedder.check(len(pairs[-1]))
        return pairs

    def close(self) -> None:
        if "embedder" in self.__dict__:
            self.embedder.close()


class Answering:
    """What any model can be asked, whether it writes or not."""

    vocabulary: Vocab
    _embeddings: Embeddings

    def tokenize(self, text: bytes, special: bool, parse_special: bool) -> list[int]:
        return self.vocabulary.tokenize(text, special=special, parse_special=parse_special)

    def apply_template(self, template: str, messages: list[tuple[bytes, bytes]], opening: bool) -> bytes:
        return apply_template(template, messages, opening)

    def embed(self, texts: Sequence[Sequence[int]], normalize: int, n_values: int | None) -> Vectors:
        return self._embeddings.embed(texts, normalize, n_values)

    def pairs(self, query: bytes, documents: Sequence[bytes]) -> list[list[int]]:
        return self._embeddings.pairs(query, documents)


class EmbeddingEngine(Answering):
    """A model without a memory: it reads a text at once and forgets it. What writing needs is refused."""

    def __init__(self, settings: Settings, on_progress: OnProgress | None, shared: SharedModels | None) -> None:
        self._shared = shared
        self._model = shared.get(settings.model, on_progress) if shared else Model(settings.model, on_progress)
        self._closed = False
        self.health = Health()
        self.vocabulary = self._model.vocab
        self._embeddings = Embeddings(self._model, settings.context, self._when_open)
        WORKER.join(self._turn)
        try:
            self.info = self._info(self._when_open(lambda: self._embeddings.embedder.n_most))
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _turn() -> bool:
        """Nothing to do between calls; joining keeps the thread, and libllama's threads with it."""
        return False

    def _when_open(self, work: Callable[[], Any]) -> Any:
        def run() -> Any:
            if self._closed:
                raise EngineClosed("the engine is closed")
            return work()

        return WORKER.call(run)

    def _info(self, n_most: int) -> Info:
        model = self._model
        return Info(
            description=model.description,
            limits=Limits(n_room=n_most, n_vocab=model.vocab.n_tokens, n_slots=1),
            n_ctx_train=model.n_ctx_train,
            n_embd=model.n_embd,
            n_params=model.n_params,
            n_bytes=model.n_bytes,
            chat_template=model.chat_template,
            adapters=tuple((adapter.task, adapter.prefix) for adapter in model.adapters),
            drafters=(),
            devices=tuple(devices()),
            writes=False,
        )

    def status(self) -> Status:
        return Status(n_steps=0, n_busy=0, seconds=0.0, n_waiting=0, slots=[], drafters=[], planned=None, why={})

    # -- what it cannot do

    def submit(self, request: Request, on_event: OnEvent) -> None:
        raise CannotWrite(f"{self._model.path} makes embeddings and cannot write text")

    def cancel(self, id: int) -> None:
        """Nothing runs."""

    def save_slot(self, slot: int, path: str) -> tuple[int, int]:
        raise RequestError(NO_SLOTS)

    def restore_slot(self, slot: int, path: str) -> tuple[int, int]:
        raise RequestError(NO_SLOTS)

    def erase_slot(self, slot: int) -> int:
        raise RequestError(NO_SLOTS)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        WORKER.call(self._embeddings.close)
        WORKER.leave(self._turn)
        if not self._shared:
            self._model.close()
