"""Grammars that requests bring, compiled once and kept while they cost little memory. Knows nothing of requests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property

from paceline.engine.request import Grammar
from paceline.errors import ConfigError
from paceline.llama.lib import give_memory_back
from paceline.llama.model import Vocab
from paceline.text.grammar import CompiledGrammar, GrammarCompiler, Matcher

N_KEPT = 64
N_BYTES = 2**28


class GrammarCache:
    """One is compiled at a time: a hostile one can take a minute. Others wait, nobody else does."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._kept: OrderedDict[Grammar, CompiledGrammar] = OrderedDict()
        self._lock = threading.Lock()

    def matcher(self, wanted: Grammar) -> Matcher:
        """A new text's matcher, at its start."""
        with self._lock:
            if wanted in self._kept:
                self._kept.move_to_end(wanted)
            self._drop()
            grammar = self._kept.get(wanted) or self._compile(wanted)
            self._kept[wanted] = grammar
            return grammar.matcher()

    def _drop(self) -> None:
        """The least used, until another fits. They grow with use, so even the last one may have to go."""
        n_before = len(self._kept)
        while self._kept and (len(self._kept) > N_KEPT or self.n_bytes > N_BYTES):
            self._kept.popitem(last=False)
        if len(self._kept) < n_before:
            give_memory_back()

    @property
    def n_bytes(self) -> int:
        """What the grammars that are kept cost."""
        return sum(grammar.growth.n_bytes for grammar in self._kept.values())

    def _compile(self, wanted: Grammar) -> CompiledGrammar:
        compiler = self._compiler
        match wanted.kind:
            case "gbnf":
                return compiler.gbnf(wanted.source)
            case "json_schema":
                return compiler.json_schema(wanted.source)
            case "lark":
                return compiler.lark(wanted.source)
            case "regex":
                return compiler.regex(wanted.source)
        raise ConfigError(f"unknown kind of grammar {wanted.kind!r}; there are gbnf, json_schema, lark, regex")

    @cached_property
    def _compiler(self) -> GrammarCompiler:
        vocab = self._vocab
        pieces = [b"" if t in vocab.control else vocab.piece(t) for t in range(vocab.n_tokens)]
        return GrammarCompiler(pieces, sorted(vocab.eog), sorted(vocab.control), vocab.tokenize_bytes)
