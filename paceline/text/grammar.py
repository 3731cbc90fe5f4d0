"""Grammars: which tokens may come next. Knows llguidance and the bytes of each token; nothing of logits or slots.

A `GrammarCompiler` per model, a `Grammar` per schema, a `Matcher` per request. Where the grammar leaves no choice of
text the mask allows one token only, the one the tokenizer itself would take: a draft of `forced` tokens is certain.
What a matcher allows depends on the tokens consumed alone, not on what was asked, drafted or rolled back before.

llguidance bounds the size of grammars and the work per mask. It recurses once per rule, hence the deep stack and the
bound on the source. Not bounded is the time to compile: a hostile grammar can take a core (not the GIL) for a minute.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from paceline.errors import ConfigError, RequestError
from paceline.text.gbnf import gbnf_to_lark
from paceline.text.growth import Growth

MAX_SOURCE = 2**18
Tokenize = Callable[[bytes], Sequence[int]]

# Like Python's json.dumps: what models write anyway. Free white space lets a small model write newlines for ever.
_JSON_FREE = {"whitespace_flexible": True, "json_allow_general_unicode_escapes": True}
_JSON_DUMPS = _JSON_FREE | {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_SOURCE_LINE = re.compile(r"^\s*(\d+ \|.*|\^+)$")
_stack_size_lock = threading.Lock()


class GrammarCompiler:
    """Compiles grammars for one vocabulary. The first use builds a trie of it (0.15 s for 49,152 tokens).

    `tokens[i]` are the bytes of token i, `eos` the tokens that end a text, `special` those that are not text.
    `tokenize` must be the model's own, without a beginning token and without parsing special tokens.
    """

    def __init__(self, tokens: Sequence[bytes], eos: Sequence[int], special: Sequence[int], tokenize: Tokenize) -> None:
        if not eos:
            raise ConfigError("a grammar needs a token that ends the text, and the model has none")
        self._vocab = _Vocab(tokens, eos, special, tokenize)
        self._lock = threading.Lock()

    def json_schema(self, schema: str | Mapping[str, Any] | bool, *, free_whitespace: bool = False) -> CompiledGrammar:
        """JSON that fits the schema. With `"x-guidance": {"lenient": true}` in it, unknown keywords are skipped."""
        source = _schema_source(schema)
        defaults = _JSON_FREE if free_whitespace else _JSON_DUMPS
        return self._compile(source, lambda: LLMatcher.grammar_from_json_schema(source, defaults=defaults))

    def json_object(self) -> CompiledGrammar:
        """Any JSON object."""
        return self.json_schema({"type": "object"})

    def gbnf(self, text: str) -> CompiledGrammar:
        """llama.cpp's notation; as there, a text that starts with %llguidance is Lark."""
        if text.lstrip().startswith("%llguidance"):
            return self.lark(text)
        return self._compile(text, lambda: gbnf_to_lark(text))

    def lark(self, text: str) -> CompiledGrammar:
        """llguidance's own notation; its lexemes are greedy."""
        return self._compile(text, lambda: LLMatcher.grammar_from_lark(text))

    def regex(self, pattern: str) -> CompiledGrammar:
        """The whole text matches the pattern (Rust's regular expressions, no look-around)."""
        return self._compile(pattern, lambda: LLMatcher.grammar_from_regex(pattern))

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        return LLTokenizer(TokenizerWrapper(self._vocab), eos_token=list(self._vocab.eos))

    def _compile(self, source: str, translate: Callable[[], str]) -> CompiledGrammar:
        if len(source) > MAX_SOURCE:
            raise ConfigError(f"the grammar has {len(source)} characters, more than {MAX_SOURCE}")
        try:
            source.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"the grammar is not text: {error}") from error
        with self._lock:
            tokenizer = self._tokenizer
        try:
            translated = translate()
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"the grammar cannot be compiled: {_one_line(str(error))}") from error
        limits, growth = LLParserLimits(verbose_errors=False), Growth()
        with growth.watched():
            first = _on_deep_stack(
                lambda: LLMatcher(tokenizer, translated, log_level=0, limits=limits), 2**26 + 2**9 * len(translated)
            )
        grammar = CompiledGrammar(source, self._vocab, first, growth)
        try:
            grammar.matcher().mask()
        except RequestError as error:
            raise ConfigError(str(error)) from error
        return grammar


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGrammar:
    """A compiled grammar. Any number of requests may use it at once."""

    source: str
    _vocab: _Vocab = field(repr=False)
    _first: LLMatcher = field(repr=False)
    growth: Growth

    def matcher(self) -> Matcher:
        """A new text's matcher, at its start. What it learns of the grammar all others know too."""
        return Matcher(self._vocab, self._first.deep_copy(), self.growth)


class Matcher:
    """Follows one text through a grammar, token by token. For one thread at a time."""

    def __init__(self, vocab: _Vocab, inner: LLMatcher, growth: Growth) -> None:
        self._vocab = vocab
        self._growth = growth
        self._inner = inner
        self._n_consumed = 0
        self._ended = False
        self._forced: list[int] | None = None
        self._check()

    @property
    def accepting(self) -> bool:
        """Whether the text may end here."""
        return not self._ended and bool(self._inner.is_accepting())

    @property
    def finished(self) -> bool:
        """Whether nothing but an end token may follow, or one was consumed."""
        return self._ended or bool(self._inner.is_stopped())

    def mask(self) -> NDArray[np.bool_]:
        """One flag per token: may it come next?"""
        assert not self._ended, "the text has ended"
        if forced := self.forced():
            mask = np.zeros(len(self._vocab.tokens), np.bool_)
            mask[forced[0]] = True
            return mask
        with self._growth.watched():
            bits = np.frombuffer(self._inner.compute_bitmask(), np.uint8)
        self._check()
        if not bits.any():
            raise RequestError("the grammar leaves no token to go on with")
        return np.unpackbits(bits, bitorder="little", count=len(self._vocab.tokens)).view(np.bool_)

    def allows(self, token: int) -> bool:
        """`mask()[token]`, for the price of a few microseconds while the text is not forced."""
        if self._ended or not 0 <= token < len(self._vocab.tokens):
            return False
        if token in self._vocab.eos:
            return self.accepting
        if forced := self.forced():
            return token == forced[0]
        if self._inner.compute_ff_bytes():
            return bool(self.mask()[token])
        return int(self._inner.validate_tokens([token])) == 1

    def forced(self) -> list[int]:
        """The tokens that must come next: the only ones the masks will allow. Often none."""
        if self._forced is None:
            self._forced = [] if self._ended or not self._inner.compute_ff_bytes() else self._compute_forced()
        return list(self._forced)

    def n_valid(self, draft: Sequence[int]) -> int:
        """How many of these tokens, from the first on, may be worth drafting: none the masks would allow is cut.

        Beyond the forced tokens it looks at bytes alone: a token may be counted that the tokenizer would not take.
        """
        if self.finished:  # llguidance counts an end token here only after others
            return int(bool(draft) and self.allows(draft[0]))
        known = list(takewhile(lambda token: 0 <= token < len(self._vocab.tokens), draft))
        n = next(
            (n for n, pair in enumerate(zip(known, self.forced(), strict=False)) if pair[0] != pair[1]), len(known)
        )
        n = int(self._inner.validate_tokens(known[:n]))
        self._check()
        return n

    def consume(self, token: int) -> None:
        """Go on by a token that the mask allows."""
        assert not self._ended, "the text has ended"
        if token in self._vocab.eos:
            assert self._inner.is_accepting(), f"the text may not end here with token {token}"
            self._ended = True
        else:
            self._inner.consume_token(token)
            self._check()
        self._n_consumed += 1
        self._forced = self._forced[1:] or None if self._forced and self._forced[0] == token else None

    def consume_text(self, text: bytes) -> bool:
        """Go on by a text, whatever its tokens were; whether it is one of the grammar's."""
        for token in self._vocab(text):
            if not self.allows(token) and not self._inner.validate_tokens([token]):
                return False
            self.consume(token)
        return True

    def rollback(self, n: int) -> None:
        """Take back the last n tokens."""
        assert 0 <= n <= self._n_consumed, f"rollback of {n} tokens, {self._n_consumed} consumed"
        if n == 0:
            return
        self._n_consumed -= n
        # llguidance does not always count an end token as consumed, so it never sees one.
        self._inner.rollback(n - self._ended)
        self._check()
        self._ended = False
        self._forced = None

    def _compute_forced(self) -> list[int]:
        forced = list(self._inner.compute_ff_tokens())
        self._check()
        return forced

    def _check(self) -> None:
        """llguidance never raises: it remembers its first error and allows nothing but the end from then on."""
        if self._inner.is_error():
            raise RequestError(f"the grammar fails: {_one_line(self._inner.get_error())}")


class _Vocab:
    """The vocabulary as llguidance wants it."""

    def __init__(self, tokens: Sequence[bytes], eos: Sequence[int], special: Sequence[int], tokenize: Tokenize) -> None:
        self.tokens = tokens
        self.eos = frozenset(eos)
        self.eos_token_id = eos[0] if eos else None
        self.bos_token_id = None
        self.special_token_ids = sorted(self.eos.union(special))
        self._tokenize = tokenize

    def __call__(self, text: bytes) -> list[int]:
        """Tokens that spell exactly this text. SentencePiece models put a space in front; a sentinel takes it away."""
        tokens = list(self._tokenize(text))
        if self._spell(tokens) == text:
            return tokens
        tokens = list(self._tokenize(b"\x02" + text))
        while tokens and self._spell(tokens) != text:
            tokens.pop(0)
        assert tokens or not text, f"the tokenizer cannot spell {text!r}"
        return tokens

    def _spell(self, tokens: Sequence[int]) -> bytes:
        return b"".join(map(self.tokens.__getitem__, tokens))


def _schema_source(schema: str | Mapping[str, Any] | bool) -> str:
    try:
        value = json.loads(schema) if isinstance(schema, str) else schema
        if not isinstance(value, Mapping | bool):
            raise ConfigError("a JSON schema must be an object or a boolean")
        if value is False:
            raise ConfigError("the JSON schema false fits no value: it allows nothing")
        return json.dumps({} if value is True else value, ensure_ascii=False)
    except ConfigError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the JSON schema is not JSON: {_one_line(str(error))}") from error


def _on_deep_stack(work: Callable[[], LLMatcher], n_bytes: int) -> LLMatcher:
    """The work's result, from a thread of its own: a stack overflow in native code would end the process."""
    result: Future[LLMatcher] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    with _stack_size_lock:
        usual = threading.stack_size(n_bytes // 4096 * 4096)
        try:
            threading.Thread(target=run, name="grammar").start()
        finally:
            threading.stack_size(usual)
    return result.result()


def _one_line(reason: str) -> str:
    """llguidance's message without the lines that quote the source."""
    reason = reason.split("<state>")[0].split("<non-verbose/>")[0].split("<backtrace>")[0]
    text = " ".join(" ".join(line for line in reason.splitlines() if not _SOURCE_LINE.match(line)).split())
    return text if len(text) <= 300 else text[:297] + "..."
