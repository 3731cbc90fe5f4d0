"""Texts in pieces: nothing lost, nothing cut that belongs together, and no tokenizer dies of a long word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.config import ModelParams
from paceline.llama.model import Model
from paceline.llama.pieces import LONGEST_PIECE, LONGEST_RUN, is_monstrous, pieces
from tests.tiny import write_model

WORD = st.text(st.sampled_from("abcdXYZéß漢0123"), min_size=1, max_size=9)
GAP = st.sampled_from(
    [" ", " ", " ", "  ", "\n", "\n\n", ", ", ". ", "\t", " - ", "'s ", "\r\n", "    ", "<|end|>", "!\n"]
)
TEXT = st.lists(st.tuples(WORD, GAP), min_size=40, max_size=80).map(lambda pairs: "".join(w + g for w, g in pairs))
LONG = {"letters": "ab", "spaces": " ", "dashes": "-", "digits": "17", "lines": "\n", "Han": "漢", "mixed": "aB-1_é"}
SURVIVE = """
import sys
from paceline.config import ModelParams
from paceline.llama.model import Model
with Model(ModelParams(path=sys.argv[1], vocab_only=True)) as model:
    for run in sys.argv[3:]:
        text = "Hello <|end|>" + run * (int(sys.argv[2]) // len(run)) + "<|end|> and on"
        tokens = model.vocab.tokenize(text)
        assert b"".join(model.vocab.render(token, special=True) for token in tokens) == text.encode()
"""


def same_in_pieces(path: str) -> None:
    with Model(ModelParams(path=path, vocab_only=True)) as model:
        vocab = model.vocab

        @settings(max_examples=60, deadline=None)
        @given(TEXT)
        def check(text: str) -> None:
            parts = [vocab.tokenize(part, special=False) for part in pieces(text, ["<|end|>"], 60)]
            assert [token for part in parts for token in part] == vocab.tokenize(text, special=False)

        check()


@given(st.text(st.sampled_from("ab1 \n-_<|>é漢")), st.integers(8, 40))
def test_nothing_is_lost_and_no_piece_is_too_long(text: str, size: int) -> None:
    parts = list(pieces(text * 5, ["<|>"], size))
    assert "".join(parts) == text * 5
    assert max(map(len, parts)) <= size
    assert all(parts) or not text


def test_what_is_whole_stays_whole() -> None:
    for n in range(60, 80):
        assert (
            sum(part.count("<|im_end|>") for part in pieces("a" * n + "<|im_end|>" + "a" * 99, ["<|im_end|>"], 40)) == 1
        )


def test_a_run_is_monstrous_from_its_bound_on() -> None:
    for unit in "a -1\n漢_":
        assert not is_monstrous(f"x. {unit * (LONGEST_RUN - 9)}. x" * 20)
        assert is_monstrous(f"x. {unit * (LONGEST_RUN + 9)}. x")
    assert is_monstrous("aB-1" * LONGEST_PIECE)
    assert not is_monstrous("word " * 100_000)


@pytest.mark.model
@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "gpt-4o", "tekken", "deepseek-llm", "falcon"])
def test_words_are_the_same_in_pieces(pre: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", n_layer=1, pre=pre)
    same_in_pieces(path)


@pytest.mark.model
def test_the_demo_model_s_words_are_the_same_in_pieces(demo: str) -> None:
    same_in_pieces(demo)


@pytest.mark.model
@pytest.mark.parametrize("pre", ["default", "gpt-4o", "tekken", "deepseek-llm", "falcon", "viking"])
def test_no_tokenizer_dies_of_a_long_run(pre: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", n_layer=1, pre=pre)
    done = subprocess.run(
        [sys.executable, "-c", SURVIVE, path, "40000", *LONG.values()], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.model
def test_the_demo_model_reads_two_hundred_thousand_letters(demo: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SURVIVE, demo, "200000", *LONG.values()], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-500:]
