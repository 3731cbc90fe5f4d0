"""The cache of grammars: bounded in number and in bytes, whatever small sources cost."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paceline.config import ModelParams
from paceline.engine.request import Grammar
from paceline.llama.model import Model
from paceline.process import grammar_cache
from paceline.process.grammar_cache import GrammarCache

pytestmark = pytest.mark.model

N_HOSTILE, KEPT, SLACK = 24, 48, 100  # MiB

HOSTILE = f"""
import random, sys
import numpy as np
from paceline.config import ModelParams
from paceline.engine.request import Grammar
from paceline.llama.model import Model
from paceline.process import grammar_cache
from paceline.text.growth import resident

grammar_cache.N_BYTES = {KEPT} * 2**20
rng = random.Random(1)
with Model(ModelParams(path=sys.argv[1], vocab_only=True)) as model:
    cache = grammar_cache.GrammarCache(model.vocab)
    cache.matcher(Grammar.gbnf('root ::= "a"'))
    before = resident()
    for i in range({N_HOSTILE}):
        matcher = cache.matcher(Grammar.regex("(.*a.{{%d}}b)" % (300 + i)))
        for _ in range(60):
            matcher.consume(int(rng.choice(np.flatnonzero(matcher.mask()))))
    print((resident() - before) // 2**20)
"""


def test_small_grammars_that_cost_much_do_not_add_up(demo: str) -> None:
    """Each of them takes about 16 MiB in these sixty tokens."""
    done = subprocess.run([sys.executable, "-c", HOSTILE, demo], capture_output=True, text=True, check=True)
    assert int(done.stdout) < KEPT + SLACK


def test_the_least_used_go_first(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Model(ModelParams(path=target)) as model:
        cache = GrammarCache(model.vocab)
        grammars = [Grammar.gbnf(f'root ::= "{letter}"') for letter in "abc"]
        for grammar in grammars:
            cache.matcher(grammar)
        a, b, c = (cache._kept[grammar].growth for grammar in grammars)
        a.n_bytes, b.n_bytes, c.n_bytes = 10, 20, 30
        monkeypatch.setattr(grammar_cache, "N_BYTES", 45)
        cache.matcher(grammars[0])
        assert set(cache._kept) == {grammars[0], grammars[2]}
        c.n_bytes = 1000
        cache.matcher(grammars[1])
        assert set(cache._kept) == {grammars[0], grammars[1]}
        a.n_bytes = 1000
        cache.matcher(grammars[0])
        assert cache._kept[grammars[0]].growth is not a
