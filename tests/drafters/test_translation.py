"""Two real vocabularies: how they are related, and one's tokens in the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.config import ModelParams
from paceline.drafters.segments import Translation
from paceline.drafters.translation import Relation, dictionaries, reads, relation, tokenizer
from paceline.llama.model import Model, Vocab
from tests.other_vocab import write_permuted, write_sentencepiece
from tests.tiny import SPECIAL, write_model

END, START = 256, 257  # of tiny models
Open = Callable[[str], Vocab]
TEXT = (
    "He couldn't: “It's 3.14159”, she said.\n\n\tfor i in range(10):\n        print(i)  # wörter, 漢字かな 🦊🏽‍🦱…\n"
    "<b>x</b>   AND_SO_ON  http://example.org/a?b=c&d=e"
)


@pytest.fixture(scope="module")
def vocab() -> Iterator[Open]:
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(Model(ModelParams(path=path))).vocab


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabularies")


@pytest.fixture(scope="module")
def tiny(folder: Path, vocab: Open) -> Vocab:
    return vocab(write_model(folder / "tiny.gguf"))


@pytest.fixture(scope="module")
def spm(folder: Path, vocab: Open) -> Vocab:
    return vocab(write_sentencepiece(folder / "spm.gguf"))


@pytest.mark.parametrize(
    ("n_extra", "changed", "expected"),
    [(0, None, Relation.SAME), (128, None, Relation.SAME), (0, 65, Relation.NEAR), (129, None, Relation.FOREIGN)],
)
def test_how_vocabularies_are_related(
    n_extra: int, changed: int | None, expected: Relation, tiny: Vocab, vocab: Open, tmp_path: Path
) -> None:
    other = vocab(write_model(tmp_path / "other.gguf", n_extra=n_extra, changed_token=changed))
    assert relation(tiny, other) is expected
    assert relation(other, tiny) is expected


def test_other_ids_or_another_kind_of_tokenizer_need_a_translation(
    tiny: Vocab, spm: Vocab, folder: Path, vocab: Open
) -> None:
    permuted = vocab(write_permuted(str(folder / "tiny.gguf"), folder / "permuted.gguf"))
    assert relation(tiny, permuted) is relation(tiny, spm) is relation(spm, tiny) is Relation.FOREIGN


def test_a_few_strange_tokens_are_read_as_what_comes_nearest(tiny: Vocab, vocab: Open, tmp_path: Path) -> None:
    target = vocab(write_model(tmp_path / "changed.gguf", n_extra=200, changed_token=END))
    strange = reads(target, tiny)
    assert sorted(strange) == [END, *range(266, 466)]
    assert strange[END] == END, "it ends a text for both"
    assert strange[266] == ord("["), "[unused0]"


def test_signs_have_counterparts_by_spelling_or_role(tiny: Vocab, spm: Vocab) -> None:
    to_spm, to_tiny = dictionaries(tiny, spm)
    assert to_spm.opening == (spm.bos,)
    assert to_spm.signs == {END: (spm.eos,)}
    assert to_spm.spell(START) == SPECIAL[1], "what has no counterpart is spelled"
    assert to_tiny.opening == ()
    assert to_tiny.signs == {spm.eos: (tiny.eos,), spm.bos: ()}


def test_texts_can_be_replaced(tiny: Vocab, spm: Vocab) -> None:
    """A control token in it is no longer a sign; whoever reads the draft finds the way back."""
    to_spm, to_tiny = dictionaries(tiny, spm, [("<|end|>of", "</s>the"), ("naïve", "tea"), ("gone", "")])
    translation = Translation(to_spm)
    translation.read(tiny.tokenize("a naïve<|end|>of gone it", special=False))
    text = b"".join(spm.render(token, special=True) for token in translation.tokens[1:])
    assert text == b"a tea</s> the  it"
    assert spm.eos in translation.tokens
    back = Translation(to_tiny)
    back.read(translation.tokens[1:])
    assert b"".join(tiny.render(token, special=True) for token in back.tokens) == "a naïve<|end|> the  it".encode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.one_of(st.text().map(str.encode), st.binary(max_size=40), st.just(TEXT.encode())))
def test_no_byte_is_lost_between_vocabularies(text: bytes, tiny: Vocab, spm: Vocab) -> None:
    for source, other in ((tiny, spm), (spm, tiny)):
        there, back = dictionaries(source, other)
        first, second = Translation(there), Translation(back)
        first.read(tokenizer(source)(text))
        second.read(first.tokens[len(there.opening) :])
        assert b"".join(map(source.piece, second.tokens)) + second.pending + first.pending == text


def test_sentencepiece_gets_no_blank_that_is_not_there(spm: Vocab) -> None:
    tokenize = tokenizer(spm)
    for piece in (b"the", b" the", b"  the", b" ", b"  ", b"\n", b".the", b"\xff"):
        assert b"".join(map(spm.piece, tokenize(piece))) == piece
    assert [spm.piece(token) for token in tokenize(b" the")] == [b" the"]


@pytest.mark.model
def test_words_of_a_real_vocabulary_are_those_of_its_tokenizer(demo: str, folder: Path, vocab: Open) -> None:
    """Piece by piece a text becomes the very tokens that it is as a whole."""
    target = vocab(demo)
    draft = vocab(write_permuted(demo, folder / "demo.gguf", n_merges=0.5))
    for source, other in ((target, draft), (draft, target)):
        there, _ = dictionaries(source, other)
        translation = Translation(there)
        for token in source.tokenize_bytes(TEXT.encode()):
            translation.read([token])
        assert translation.tokens == other.tokenize_bytes(TEXT.encode())
