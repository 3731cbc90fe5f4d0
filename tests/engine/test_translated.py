"""Drafts of a model with another vocabulary, in the whole engine on real libllama: the text is the target's own."""

from __future__ import annotations

import logging
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from paceline import Engine
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.config.drafters import DrafterSettings, DraftModelParams
from paceline.drafters.base import DraftRequest, OwnContexts, Resources
from paceline.drafters.segments import Translation
from paceline.drafters.translated import draft_model
from paceline.drafters.translation import dictionaries
from paceline.engine.stats import DrafterStats
from paceline.llama.context import Context
from paceline.llama.model import Model
from paceline.planner.costs import CostCurve
from paceline.process import probe
from tests.other_vocab import write_permuted, write_sentencepiece
from tests.tiny import write_model

pytestmark = pytest.mark.model

PROMPTS = ["the tea and the water of", "He said: “naïve” 🦊", "<a>1</a> <b>", "over and over and over"]
SAMPLINGS: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.8, "seed": 3}]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Target and draft: the same weights with other ids; another kind of tokenizer, both ways."""
    folder = tmp_path_factory.mktemp("pairs")
    bpe = write_model(folder / "bpe.gguf", seed=1, scale=4.0)
    spm = write_sentencepiece(folder / "spm.gguf", seed=2)
    return {
        "permuted": (bpe, write_permuted(bpe, folder / "permuted.gguf")),
        "bpe-spm": (bpe, spm),
        "spm-bpe": (spm, bpe),
    }


def engine(target: str, draft: str | None, *, n_slots: int = 1, n_ctx: int = 256, **more: Any) -> Engine:
    model = DraftModelParams(p_min=0.0, n_max=6, window=more.pop("window", 1024), replace=more.pop("replace", ()))
    context = ContextParams(n_ctx=n_ctx * n_slots, n_threads=1)
    params = {"spec_policy": "fixed", "spec_types": ("draft-simple",) if draft else ()} | more
    return Engine.from_settings(
        Settings(
            model=ModelParams(path=target),
            draft=ModelParams(path=draft) if draft else None,
            context=context,
            draft_context=context,
            engine=EngineParams(n_slots=n_slots, drafters=DrafterSettings(draft_model=model), **params),
        )
    )


def written(found: Engine, n: int = 24) -> list[str]:
    """All prompts at once, twice: the second time each finds its beginning in some slot."""
    texts = []
    for prompts in (PROMPTS, [prompt + " it" for prompt in PROMPTS]):
        asked = [(prompt, sampling) for prompt in prompts for sampling in SAMPLINGS]
        running = [found.generate(prompt, max_tokens=n, ignore_eos=True, **sampling) for prompt, sampling in asked]
        texts += [generation.text() for generation in running]
    return texts


def record(found: Engine) -> DrafterStats:
    return next(stats for stats in found.drafter_stats() if stats.name == "draft-simple")


@pytest.mark.parametrize("name", ["permuted", "bpe-spm", "spm-bpe"])
def test_exact_text_is_the_targets_own(
    name: str, pairs: dict[str, tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    target, draft = pairs[name]
    with engine(target, None, exact=True) as plain:
        expected = written(plain)
    for n_slots in (1, 4):
        with engine(target, draft, n_slots=n_slots, exact=True) as drafting:
            assert written(drafting) == expected
            assert record(drafting).n_tokens > 100
    assert "switched off" not in caplog.text


def test_a_translated_draft_says_what_its_model_says(pairs: dict[str, tuple[str, str]]) -> None:
    """The same weights: where text is text, the other vocabulary is no hindrance."""
    target, draft = pairs["permuted"]
    rates = []
    for each in (target, draft):
        with engine(target, each) as drafting:
            written(drafting)
            rates.append(record(drafting).n_accepted_tokens / record(drafting).n_tokens)
    assert rates[0] > 0.9
    assert rates[1] > 0.25, "random weights write many bytes that are no text"


def test_texts_to_replace_reach_the_draft(pairs: dict[str, tuple[str, str]]) -> None:
    """Here they mislead it: it reads another text than the target does."""
    target, draft = pairs["permuted"]
    accepted = []
    for replace in ((), ((" tea and", "!!"), (" water", "??"))):
        with engine(target, draft, replace=replace) as drafting:
            drafting.generate(PROMPTS[0], max_tokens=32, temperature=0, ignore_eos=True).text()
            accepted.append(record(drafting).n_accepted_tokens)
    assert accepted[0] > 2 * accepted[1]


def test_the_drafts_cache_is_always_the_text_in_its_own_tokens(pairs: dict[str, tuple[str, str]]) -> None:
    """Whatever is asked: texts that grow in the midst of a word, that change, and what others have proposed."""
    dice, words = random.Random(1), [*"the tea and water he naïve 🦊 in an".encode()]
    with ExitStack() as stack:
        target, draft = (stack.enter_context(Model(ModelParams(path=path))) for path in pairs["bpe-spm"])
        context = stack.enter_context(Context(draft, ContextParams(n_ctx=512, n_threads=1)))
        own = {"draft-simple": OwnContexts(CostCurve(), 512, context)}
        drafter = draft_model(Resources(DrafterSettings(), target, own))
        there, _ = dictionaries(target.vocab, draft.vocab)
        text: list[int] = []
        for _ in range(60):
            if dice.random() < 0.3:
                del text[dice.randint(0, len(text)) :]
                drafter.begin(0, text)
            text += [dice.choice(words) for _ in range(dice.randint(1, 3))]
            ahead = [dice.choice(words) for _ in range(dice.choice([0, 0, 2]))]
            drafter.draft([DraftRequest(0, text, dice.randint(1, 6), p_min=0.0, ahead=ahead)])
            expected = Translation(there)
            expected.read([*text, *ahead])
            cached = drafter._views[0].cached
            assert cached[: len(expected.tokens)] == expected.tokens


def test_long_texts_slide_through_the_window_and_shift(
    pairs: dict[str, tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    """A text longer than the draft's window, one longer than the target's context, and one that is cancelled."""
    target, draft = pairs["permuted"]
    how: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
    options: dict[str, Any] = {"context_shift": True, "exact": True}
    with engine(target, None, **options) as plain:
        expected = [plain.generate(prompt, max_tokens=300, **how).text() for prompt in PROMPTS[:2]]
    with engine(target, draft, window=64, **options) as drafting:
        left = drafting.generate(PROMPTS[2], max_tokens=300, **how)
        next(iter(left))
        left.cancel()
        assert [drafting.generate(prompt, max_tokens=300, **how).text() for prompt in PROMPTS[:2]] == expected
        assert record(drafting).n_accepted_tokens > 30
    assert "switched off" not in caplog.text


@pytest.mark.parametrize("changed", ["target", "draft"])
def test_tokens_that_differ_are_not_drafted(changed: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nearly one vocabulary: 65 means something else to one of both, and stands in the prompt."""
    caplog.set_level(logging.INFO, "paceline")
    files = {
        name: write_model(tmp_path / f"{name}.gguf", seed=1, scale=4.0, changed_token=65 if name == changed else None)
        for name in ("target", "draft")
    }
    with engine(files["target"], files["draft"]) as drafting:
        generation = drafting.generate([66, 65, 67, 65], max_tokens=60, temperature=0, ignore_eos=True)
        tokens = [piece.token for chunk in generation for piece in chunk.pieces]
        stats = record(drafting)
    assert "vocabulary but for 1 tokens" in caplog.text
    assert "switched off" not in caplog.text
    assert stats.n_drafts > 5
    assert not [token for token in tokens if token.id == 65 and token.source == "draft-simple"]


def test_a_draft_is_judged_before_the_first_request(
    pairs: dict[str, tuple[str, str]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "SECONDS", (60.0, 60.0))
    caplog.set_level(logging.INFO, "paceline")
    target, draft = pairs["permuted"]
    with engine(target, draft, spec_policy="auto") as drafting:
        good = drafting.explain()["agreement"]["draft-simple"]
    assert "permuted.gguf has another vocabulary than the target: drafts are translated" in caplog.text
    with engine(*pairs["bpe-spm"], spec_policy="auto") as drafting:
        bad = drafting.explain()["agreement"]["draft-simple"]
    assert bad < 0.1 < good
    assert "spm.gguf says what the target says in" in caplog.text


def test_a_draft_model_of_the_demo_with_another_vocabulary(demo: str, tmp_path: Path) -> None:
    """Real text: its own weights with shuffled ids and a tenth of the merges gone."""
    draft = write_permuted(demo, tmp_path / "draft.gguf", n_merges=0.9)
    with engine(demo, draft) as drafting:
        drafting.generate("Rain falls because", max_tokens=24, temperature=0).text()
        stats = record(drafting)
    assert stats.n_accepted_tokens > 0.6 * stats.n_tokens > 6
