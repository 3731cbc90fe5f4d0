"""Sampling: the draw follows the softmax, filters see what they would have seen uncut, seeds decide everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paceline.config import ModelParams, SamplingParams
from paceline.errors import ConfigError, RequestError
from paceline.llama.candidates import Cut, at_least
from paceline.llama.gumbel import gumbel
from paceline.llama.lib import Floats
from paceline.llama.model import Model, Vocab
from paceline.llama.sampler import Sampler

pytestmark = pytest.mark.model
PLAIN: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.fixture(scope="module")
def vocab(target: str) -> Iterator[Vocab]:
    with Model(ModelParams(path=target)) as model:
        yield model.vocab


def logits(vocab: Vocab, seed: int, scale: float = 2.0) -> Floats:
    return (np.random.default_rng(seed).standard_normal(vocab.n_tokens) * scale).astype(np.float32)


def chi_square(counts: np.ndarray[Any, Any], p: np.ndarray[Any, Any]) -> tuple[float, int]:
    """Pearson's statistic and degrees of freedom over cells with enough expected draws, the rest pooled."""
    n = counts.sum()
    big = p * n >= 5
    observed = np.append(counts[big], counts[~big].sum())
    expected = np.append(p[big], p[~big].sum()) * n
    keep = expected > 0
    return float(((observed - expected)[keep] ** 2 / expected[keep]).sum()), int(keep.sum()) - 1


@pytest.mark.parametrize("temperature", [0.5, 0.8, 1.5])
def test_draws_follow_the_softmax(vocab: Vocab, temperature: float) -> None:
    row = logits(vocab, 3)
    sampler = Sampler(vocab, SamplingParams(temperature=temperature, seed=11, **PLAIN), 512)
    counts = np.bincount([sampler.sample(row, i) for i in range(20_000)], minlength=vocab.n_tokens)
    p = np.exp(row / temperature - (row / temperature).max())
    statistic, freedom = chi_square(counts, p / p.sum())
    assert statistic < freedom + 5 * np.sqrt(2 * freedom)


def test_draws_of_different_seeds_at_one_position_follow_the_softmax_too(vocab: Vocab) -> None:
    row = logits(vocab, 4)
    ids = np.arange(vocab.n_tokens)
    draws = [int((row + gumbel(seed, 17, ids)).argmax()) for seed in range(20_000)]
    p = np.exp(row - row.max())
    statistic, freedom = chi_square(np.bincount(draws, minlength=vocab.n_tokens), p / p.sum())
    assert statistic < freedom + 5 * np.sqrt(2 * freedom)


def test_the_seed_and_the_position_decide(vocab: Vocab) -> None:
    row = logits(vocab, 5)

    def draw(seed: int) -> list[int]:
        sampler = Sampler(vocab, SamplingParams(seed=seed), 512)
        return [sampler.sample(row, i) for i in range(50)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert len(set(draw(1))) > 1


FILTERS: list[dict[str, Any]] = [
    {},
    {"top_k": 5},
    {"top_k": 0, "top_p": 0.7},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.1},
    {"typical_p": 0.6},
    {"top_n_sigma": 1.0},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05},
    {"repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2, "repeat_last_n": 20},
    {"presence_penalty": -2.0, "repeat_last_n": 20},
    {"dry_multiplier": 0.8, "dry_penalty_last_n": -1},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.1, "repeat_penalty": 1.5, "repeat_last_n": 40},
    {"logit_bias": {7: 6.0, 8: float("-inf")}},
    {"mirostat": 1},
    {"mirostat": 2},
    {"dynatemp_range": 0.5},
    {"samplers": ("temperature", "top_k")},
    {"samplers": ("temperature", "min_p")},
    {"samplers": ("top_k", "top_p", "infill"), "top_p": 0.9},
    {"samplers": ("infill",)},
    {"samplers": ("infill", "temperature"), "temperature": 0.0, "ignore_eos": True},
    {"samplers": ("min_p", "adaptive_p"), "adaptive_target": 0.3, "min_p": 0.1},
    {"ignore_eos": True, "temperature": 0.0},
    {"ignore_eos": True, "logit_bias": {7: float("-inf")}},
    {"ignore_eos": True, "top_k": 0, "top_p": 1.0, "min_p": 0.1},
    {"temperature": 0.0, "repeat_penalty": 1.3},
]


@pytest.mark.parametrize("options", FILTERS, ids=str)
def test_cutting_candidates_changes_nothing(
    vocab: Vocab, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [logits(vocab, seed, scale=1 + seed % 5) for seed in range(60)]

    def draw() -> list[int]:
        sampler = Sampler(vocab, SamplingParams(seed=9, **options), 512)
        sampler.prime([1, 2, 3, 1, 2, 3, 65, 66])
        return [sampler.sample(row, i) for i, row in enumerate(rows)]

    cut = draw()
    monkeypatch.setattr(Cut, "__call__", lambda self, row, moved, banned: None)
    assert draw() == cut


def test_each_filter_does_something(vocab: Vocab) -> None:
    """Otherwise the test above could pass with filters that were never built."""
    rows = [logits(vocab, seed) for seed in range(200)]
    for row in rows:
        row[5] = 7.0  # a text that repeats itself, for the penalties

    def draw(**options: Any) -> list[int]:
        sampler = Sampler(vocab, SamplingParams(seed=9, **PLAIN | options), 512)
        sampler.prime([5] * 8)
        return [sampler.sample(row, i) for i, row in enumerate(rows)]

    plain = draw()
    for options in (o for o in FILTERS[1:] if "samplers" not in o):
        assert draw(**options) != plain, options
    assert 7 in draw(logit_bias={7: 9.0})
    assert set(draw(logit_bias={t: float("-inf") for t in range(1, vocab.n_tokens)})) == {0}


def test_banned_tokens_are_never_greedy_choices(vocab: Vocab) -> None:
    row = logits(vocab, 1)
    row[sorted(vocab.eog)] = 50.0
    sampler = Sampler(vocab, SamplingParams(temperature=0, ignore_eos=True), 512)
    assert sampler.greedy
    assert sampler.sample(row, 0) not in vocab.eog


DRAWS: list[dict[str, Any]] = [{"temperature": 0.0}, *FILTERS]


@pytest.mark.parametrize("options", DRAWS, ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [slice(None), slice(200, 201)], ids=["all", "one"])
def test_a_row_without_numbers_is_refused(vocab: Vocab, options: dict[str, Any], value: float, which: slice) -> None:
    row = logits(vocab, 1)
    row[which] = value
    sampler = Sampler(vocab, SamplingParams(seed=1, **options), 512)
    mask = np.zeros(vocab.n_tokens, np.bool_)
    mask[65:70] = True
    if value == -np.inf and which.start:
        assert sampler.sample(row, 0) != 200
        return
    with pytest.raises(RequestError, match="NaN or infinite"):
        sampler.sample(row, 0)
    with pytest.raises(RequestError, match="NaN or infinite"):
        sampler.sample(row, 0, mask)


@pytest.mark.parametrize("options", DRAWS, ids=str)
def test_a_grammar_and_biases_that_leave_nothing_are_refused(vocab: Vocab, options: dict[str, Any]) -> None:
    digits = range(48, 58)
    mask = np.zeros(vocab.n_tokens, np.bool_)
    mask[digits] = True
    more = options | {"logit_bias": dict.fromkeys(digits, float("-inf"))}
    with pytest.raises(RequestError, match="the grammar and the logit bias leave no token"):
        Sampler(vocab, SamplingParams(seed=1, **more), 512).sample(logits(vocab, 2), 0, mask)
    more = options | {"logit_bias": dict.fromkeys(range(vocab.n_tokens), float("-inf"))}
    with pytest.raises(RequestError, match="the logit bias leave no token"):
        Sampler(vocab, SamplingParams(seed=1, **more), 512).sample(logits(vocab, 2), 0)


def test_penalties_look_back_no_further_than_the_context(vocab: Vocab) -> None:
    """libllama allots memory for all of it: 2^31 - 1 took gigabytes, or ended the process."""
    most = 2**31 - 1
    options: dict[str, Any] = {
        "repeat_penalty": 1.3,
        "repeat_last_n": most,
        "dry_multiplier": 0.8,
        "dry_penalty_last_n": most,
    }
    sampler = Sampler(vocab, SamplingParams(seed=1, **options), 512)
    assert sampler._recent.maxlen == 512
    sampler.prime([1, 2, 3] * 200)
    whole = SamplingParams(seed=1, **options | {"repeat_last_n": -1, "dry_penalty_last_n": -1})
    reference = Sampler(vocab, whole, 512)
    reference.prime([1, 2, 3] * 200)
    rows = [logits(vocab, seed) for seed in range(20)]
    assert [sampler.sample(row, 0) for row in rows] == [reference.sample(row, 0) for row in rows]


def test_breakers_that_take_seconds_are_refused() -> None:
    with pytest.raises(ConfigError, match="33 entries, 32"):
        SamplingParams(dry_sequence_breakers=("x",) * 33)
    with pytest.raises(ConfigError, match="257 characters, 256"):
        SamplingParams(dry_sequence_breakers=("x" * 257,))


@pytest.mark.parametrize("n", [10, 64, 1000, 49_152, 50_001])
@pytest.mark.parametrize("k", [1, 40, 300])
def test_at_least_holds_the_k_largest(n: int, k: int) -> None:
    row = np.random.default_rng(n + k).standard_normal(n).astype(np.float32)
    largest = set(np.argsort(-row)[:k].tolist())
    assert largest <= set(at_least(row, k).tolist())


def test_at_least_leaves_forbidden_tokens_out() -> None:
    row = np.full(50_000, -np.inf, np.float32)
    row[[3, 40_000]] = 1.0
    assert sorted(at_least(row, 40).tolist()) == [3, 40_000]


INFILL: dict[str, Any] = {"samplers": ("top_k", "infill"), "seed": 1}


def test_infill_ends_rather_than_guesses(vocab: Vocab) -> None:
    """Where no token stands out it ends the text; one that does is taken, and its beginning counts for it."""
    flat = np.zeros(vocab.n_tokens, np.float32)
    assert Sampler(vocab, SamplingParams(**INFILL), 512).sample(flat, 0) in vocab.eog
    clear = flat.copy()
    clear[[*vocab.eog]] = -20.0
    clear[65] = 9.0
    assert Sampler(vocab, SamplingParams(**INFILL), 512).sample(clear, 0) == 65


def test_infill_does_not_end_what_must_go_on(vocab: Vocab) -> None:
    row = np.zeros(vocab.n_tokens, np.float32)
    row[65] = 0.1
    assert Sampler(vocab, SamplingParams(ignore_eos=True, **INFILL), 512).sample(row, 0) == 65
    mask = np.zeros(vocab.n_tokens, np.bool_)
    mask[[66, 67, 68, 69, 70, 71]] = True
    assert mask[Sampler(vocab, SamplingParams(**INFILL), 512).sample(row, 0, mask)]


def test_adaptive_p_follows_its_target(vocab: Vocab) -> None:
    """Of a likely and a middling token the one near the target comes more than it would."""
    row = np.full(vocab.n_tokens, -30.0, np.float32)
    row[[5, 6, 7]] = np.log([0.65, 0.3, 0.05])

    def n_middling(target: float) -> int:
        options: dict[str, Any] = {"samplers": ("top_k", "adaptive_p"), "top_k": 3, "adaptive_target": target}
        sampler = Sampler(vocab, SamplingParams(seed=4, **options), 512)
        return [sampler.sample(row, i) for i in range(300)].count(6)

    assert n_middling(0.9) < n_middling(-1.0) < n_middling(0.3)


def test_what_a_token_was_drawn_from(vocab: Vocab) -> None:
    row = logits(vocab, 8)
    sampler = Sampler(vocab, SamplingParams(temperature=0.7, top_k=4, top_p=1.0, min_p=0.0, seed=2), 512)
    sampler.watch(3)
    tokens = [sampler.sample(row, i) for i in range(20)]
    likeliest = np.argsort(-row)[:4]
    p = np.exp(row[likeliest] / 0.7)
    expected = dict(zip(likeliest.tolist(), np.log(p / p.sum()).tolist(), strict=True))
    for position, token in enumerate(tokens):
        logprob, top = sampler.chances(position)
        assert logprob == pytest.approx(expected[token], abs=1e-5)
        assert [token for token, _ in top] == likeliest[:3].tolist()
