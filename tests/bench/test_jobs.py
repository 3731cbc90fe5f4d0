from __future__ import annotations

import pytest

from paceline.bench.jobs import Job, choose, with_room
from paceline.bench.suite import SuitePrompt
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.errors import ConfigError

PROMPTS = [SuitePrompt("qa", f"q{i}") for i in range(5)] + [SuitePrompt("code", f"c{i}") for i in range(3)]


def texts(*categories: str, limit: int, n_slots: int = 1, tail: bool = False) -> list[str]:
    return ["+".join(p.text for p in group) for group in choose(PROMPTS, categories, limit, n_slots, tail=tail)]


def test_categories_take_turns() -> None:
    assert texts(limit=2) == ["q0", "c0", "q1", "c1"]
    assert texts(limit=0) == ["q0", "c0", "q1", "c1", "q2", "c2", "q3", "q4"]


def test_categories_can_be_picked() -> None:
    assert texts("code", limit=9) == ["c0", "c1", "c2"]
    with pytest.raises(ConfigError, match="no category 'maths' in the prompts; there are qa, code"):
        texts("maths", limit=1)


def test_every_slot_has_work() -> None:
    assert texts(limit=2, n_slots=2) == ["q0+q1", "c0+c1"]
    assert texts(limit=1, n_slots=2) == ["q0+q1", "c0+c1"], "filled up with further prompts"
    assert texts("code", limit=3, n_slots=2) == ["c0+c1", "c2+c0"], "then with the first ones again"
    assert texts("code", limit=1, n_slots=4) == ["c0+c1+c2+c0"]


def test_the_tail_holds_other_prompts_than_the_beginning() -> None:
    assert texts(limit=2, tail=True) == ["q4", "c2", "q3", "c1"], "the categories in the same order"
    assert texts("qa", limit=4, n_slots=2, tail=True) == ["q4+q3", "q2+q1"]
    assert not set(texts("qa", limit=2)) & set(texts("qa", limit=2, tail=True))


def test_the_context_is_as_large_as_needed_unless_the_user_chose() -> None:
    jobs = [Job(0, "qa", ((1,) * 300, (1,) * 10)), Job(1, "qa", ((1,) * 20, (1,) * 20))]
    settings = Settings(model=ModelParams(path="m.gguf"), engine=EngineParams(n_slots=2))
    assert with_room(settings, jobs, n_tokens=100).context.n_ctx == 2 * 512
    chosen = Settings(model=settings.model, context=ContextParams(n_ctx=4096))
    assert with_room(chosen, jobs, n_tokens=100) == chosen
