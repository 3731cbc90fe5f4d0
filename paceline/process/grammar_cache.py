"""Grammars that requests bring, compiled once and kept for a while. Knows kinds of grammars; nothing of requests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property

from paceline.engine.request import Grammar
from paceline.errors import ConfigError
from paceline.llama.model import Vocab
from paceline.text.grammar import CompiledGrammar, GrammarCompiler, Matcher

N_KEPT = 64


class GrammarCache:
    """One is compiled at a time: a hostile one can take a minute. Others wait, nobody else does."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._kept: OrderedDict[Grammar, CompiledGrammar] = OrderedDict()
        self._lock = threading.Lock()

    def matcher(self, wanted: Grammar) -> Matcher:
        """A new text's matcher, at its start."""
        with self._lock:
            if wanted not in self._kept:
                self._kept[wanted] = self._compile(wanted)
                while len(self._kept) > N_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(wanted)
            return self._kept[wanted].matcher()

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
