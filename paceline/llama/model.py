"""A GGUF model and its vocabulary. Knows files and tokens; nothing of contexts or sampling."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from paceline.config import ModelParams
from paceline.errors import EngineClosed, ModelError, PromptError
from paceline.llama.adapter import LoraAdapter, load_adapter
from paceline.llama.lib import c, log
from paceline.llama.loading import ModelStruct, has_devices
from paceline.llama.pieces import LONGEST_RUN, is_monstrous, pieces

MAGIC = b"GGUF"
BPE = 2  # the kind of vocabulary whose texts are split into words first
QUANTIZATIONS = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q8_0": 7,
    "Q4_K_M": 15,
    "Q5_K_M": 17,
    "Q6_K": 18,
    "IQ4_XS": 30,
    "BF16": 32,
}


def check_file(path: str) -> None:
    """libllama's own complaint about a wrong file is long and late; say it first, and simply."""
    file = Path(path)
    if not file.exists():
        raise ModelError(f"model file not found: {path}")
    if not file.is_file():
        raise ModelError(f"not a file: {path}")
    try:
        with file.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise ModelError(f"model file cannot be read: {path} ({error.strerror})") from error
    if magic != MAGIC:
        raise ModelError(f"not a GGUF file: {path} (it starts with {magic!r}, not {MAGIC!r})")


class Vocab:
    """Token ids to bytes and back."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        self.n_tokens = int(c.llama_vocab_n_tokens(handle))
        self.bos = int(c.llama_vocab_bos(handle))
        self.eos = int(c.llama_vocab_eos(handle))
        self.add_bos = bool(c.llama_vocab_get_add_bos(handle))
        self.add_eos = bool(c.llama_vocab_get_add_eos(handle))
        self._pieces: dict[int, bytes] = {}

    @property
    def handle(self) -> int:
        """libllama reads freed memory without a word; say it here."""
        if self._handle is None:
            raise EngineClosed("the model is closed")
        return self._handle

    def close(self) -> None:
        """The model is about to be freed."""
        self._handle = None

    @cached_property
    def eog(self) -> frozenset[int]:
        """Tokens that end a generation."""
        return frozenset(t for t in range(self.n_tokens) if c.llama_vocab_is_eog(self.handle, t))

    @property
    def has_end(self) -> bool:
        """Whether there is a token that ends a turn or a text."""
        return self.eot >= 0 or self.eos >= 0

    @property
    def eot(self) -> int:
        """The token that ends a turn; -1 where there is none."""
        return int(c.llama_vocab_eot(self.handle))

    @cached_property
    def fim(self) -> tuple[int, int, int, int, int]:
        """The tokens for filling gaps: prefix, suffix, middle, repository, file; -1 for those there are not."""
        of = (c.llama_vocab_fim_pre, c.llama_vocab_fim_suf, c.llama_vocab_fim_mid, c.llama_vocab_fim_rep)
        pre, suf, mid, rep = (int(token(self.handle)) for token in of)
        return pre, suf, mid, rep, int(c.llama_vocab_fim_sep(self.handle))

    @cached_property
    def control(self) -> frozenset[int]:
        """Tokens that steer the model and are not text."""
        return frozenset(t for t in range(self.n_tokens) if c.llama_vocab_is_control(self.handle, t))

    def tokenize(self, text: str | bytes, *, special: bool = True, parse_special: bool = True) -> list[int]:
        """`special` adds what the model wants around a prompt (BOS); `parse_special` reads `<|im_start|>` as one."""
        return self.tokenize_bytes(self._utf8(text), special=special, parse_special=parse_special)

    def tokenize_bytes(self, data: bytes, *, special: bool = False, parse_special: bool = False) -> list[int]:
        """Without a check: libllama takes any bytes. Text that would overflow its stack goes there in pieces."""
        text = data.decode("utf-8", "surrogateescape") if self.kind == BPE and len(data) > LONGEST_RUN else ""
        if not is_monstrous(text):
            return self._tokenize(data, special, parse_special)
        tokens = [self.bos] if special and self.add_bos else []
        for piece in pieces(text, self._indivisible if parse_special else ()):
            tokens += self._tokenize(piece.encode("utf-8", "surrogateescape"), False, parse_special)
        return [*tokens, self.eos] if special and self.add_eos else tokens

    @cached_property
    def _indivisible(self) -> list[str]:
        """How control tokens are spelled in a prompt."""
        return [self.text(token).decode("utf-8", "replace") for token in self.control]

    def token_of(self, text: str) -> int:
        """The one token that is spelled so; -1 where it is none or several."""
        tokens = self.tokenize(text, special=False)
        return tokens[0] if len(tokens) == 1 else -1

    def _tokenize(self, data: bytes, special: bool, parse_special: bool) -> list[int]:
        size = len(data) + 8
        while True:
            out = (c.llama_token * size)()
            n = c.llama_tokenize(self.handle, data, len(data), out, size, special, parse_special)
            if n >= 0:
                return list(out[:n])
            size = -n

    @staticmethod
    def _utf8(text: str | bytes) -> bytes:
        try:
            data = text.encode() if isinstance(text, str) else text
            data.decode()
        except UnicodeError as error:
            raise PromptError(f"the prompt is not valid UTF-8: {error}") from error
        return data

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; control tokens stand for none."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self.render(token, special=False)
        return piece

    def render(self, token: int, *, special: bool) -> bytes:
        """`special` spells control tokens out, as `<|im_end|>`."""
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = c.llama_token_to_piece(self.handle, token, buffer, size, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def text(self, token: int) -> bytes:
        """How the GGUF file spells the token."""
        return bytes(c.llama_vocab_get_text(self.handle, token) or b"")

    @property
    def kind(self) -> int:
        return int(c.llama_vocab_type(self.handle))

    @property
    def mask(self) -> int:
        """Stands for a token that is to be guessed; -1 where there is none."""
        return int(c.llama_vocab_mask(self.handle))


class Model:
    """Weights in memory. A context manager: `close` frees them."""

    def __init__(self, params: ModelParams, on_progress: Callable[[float], None] | None = None) -> None:
        check_file(params.path)
        self.path = params.path
        self.params = params
        self.handle: int | None = self._load(params, on_progress)
        self.vocab = Vocab(c.llama_model_get_vocab(self.handle))
        self.n_ctx_train = int(c.llama_model_n_ctx_train(self.handle))
        self.n_embd = int(c.llama_model_n_embd(self.handle))
        self.n_embd_out = int(c.llama_model_n_embd_out(self.handle))
        self.n_layer = int(c.llama_model_n_layer(self.handle))
        self.n_swa = int(c.llama_model_n_swa(self.handle))
        self._check_kind()
        self.adapters = [self._adapter(path) for path, _ in params.adapters]

    def _adapter(self, path: str) -> LoraAdapter:
        try:
            check_file(path)
            assert self.handle
            return load_adapter(self.handle, path)
        except ModelError:
            self.close()
            raise

    def _load(self, params: ModelParams, on_progress: Callable[[float], None] | None) -> int:
        def report(share: float, _data: object) -> bool:
            if on_progress:
                on_progress(share)
            return True

        struct = ModelStruct(params)
        struct.raw.progress_callback = c.llama_progress_callback(report)
        log.clear()
        handle = c.llama_model_load_from_file(str(params.path).encode(), struct.raw)
        if not handle:
            raise ModelError(f"cannot load {params.path}: {log.reason()}")
        return int(handle)

    def _check_kind(self) -> None:
        assert self.handle
        if self.params.head:
            return
        if c.llama_model_has_encoder(self.handle):
            self.close()
            raise ModelError(f"{self.path} needs an encoder; paceline runs decoder-only models")
        if not c.llama_model_has_decoder(self.handle) or self.vocab.n_tokens == 0:
            self.close()
            raise ModelError(f"{self.path} cannot write text (no decoder or no vocabulary)")

    @property
    def can_roll_back(self) -> bool:
        """Recurrent state cannot be cut back to an earlier token, so drafts could not be rejected."""
        return not (c.llama_model_is_recurrent(self.handle) or c.llama_model_is_hybrid(self.handle))

    @property
    def on_cpu(self) -> bool:
        """Whether it may hold any layer, or a part of one."""
        params = self.params
        n_gpu = params.n_gpu_layers
        offloaded = (n_gpu < 0 or n_gpu > self.n_layer) and not params.tensors
        return not (offloaded and has_devices(params))

    @property
    def chat_template(self) -> str | None:
        return self._template(None)

    @property
    def tool_template(self) -> str | None:
        """A chat template for requests with tools, which some models have beside the usual one."""
        return self._template(b"tool_use")

    def _template(self, name: bytes | None) -> str | None:
        template = c.llama_model_chat_template(self.handle, name)
        return template.decode() if template else None

    @property
    def description(self) -> str:
        buffer = ctypes.create_string_buffer(128)
        c.llama_model_desc(self.handle, buffer, 128)
        return buffer.value.decode()

    @property
    def n_bytes(self) -> int:
        return int(c.llama_model_size(self.handle))

    @property
    def n_cache_values(self) -> int:
        """Numbers that one token leaves in the memory of a plain transformer: a key and a value in every layer."""
        n_head = max(1, int(c.llama_model_n_head(self.handle)))
        per_layer = self.n_embd // n_head * int(c.llama_model_n_head_kv(self.handle))
        return 2 * per_layer * self.n_layer

    @property
    def n_params(self) -> int:
        return int(c.llama_model_n_params(self.handle))

    def close(self) -> None:
        if self.handle:
            self.vocab.close()
            c.llama_model_free(self.handle)
            self.handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def quantize(source: str, target: str, kind: str, *, n_threads: int = 0, pure: bool = False) -> None:
    """Write `source` at another precision, every matrix alike if `pure`. Seconds for a small model; the file appears
    whole or not at all."""
    if kind not in QUANTIZATIONS:
        raise ModelError(f"cannot quantise to {kind!r}; choose from {', '.join(QUANTIZATIONS)}")
    check_file(source)
    params = c.llama_model_quantize_default_params()
    params.ftype = QUANTIZATIONS[kind]
    params.nthread = n_threads
    params.allow_requantize = True
    params.pure = pure
    log.clear()
    part = Path(f"{target}.{os.getpid()}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    if c.llama_model_quantize(source.encode(), str(part).encode(), ctypes.byref(params)) != 0:
        part.unlink(missing_ok=True)
        why = "no room to write it" if "iostream error" in log.reason() else log.reason()
        raise ModelError(f"cannot quantise {source} to {kind}: {why}")
    part.replace(target)
