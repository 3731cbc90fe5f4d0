from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.bench.methods import parse, parse_all
from paceline.config import EngineParams, ModelParams, Settings
from paceline.config.drafters import DrafterSettings, DraftModelParams, NgramParams, SuffixParams
from paceline.errors import ConfigError

BASE = Settings(
    model=ModelParams(path="m.gguf"),
    draft=ModelParams(path="d.gguf"),
    engine=EngineParams(
        spec_types=("grammar", "suffix", "draft-simple"),
        drafters=DrafterSettings(suffix=SuffixParams(p_min=0.3), draft_model=DraftModelParams(n_max=12, p_min=0.4)),
    ),
)


def engine(name: str) -> EngineParams:
    return parse(name).settings(BASE).engine


def test_none_has_no_drafters() -> None:
    assert engine("none").spec_types == ()


def test_auto_takes_the_drafters_of_the_command_line() -> None:
    auto = engine("auto")
    assert (auto.spec_policy, auto.spec_types) == ("auto", ("grammar", "suffix", "draft-simple"))
    assert auto.drafters == BASE.engine.drafters


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("ngram-mod", ("ngram-mod",)),
        ("draft", ("draft-simple",)),
        ("draft-simple", ("draft-simple",)),
        ("suffix+draft", ("suffix", "draft-simple")),
        ("mtp", ("draft-mtp",)),
        ("suffix+draft-eagle3", ("suffix", "draft-eagle3")),
        ("dflash+dspark", ("draft-dflash", "draft-dspark")),
        ("grammar+ngram-simple+ngram-cache", ("grammar", "ngram-simple", "ngram-cache")),
    ],
)
def test_drafters_by_name_are_taken_literally(name: str, types: tuple[str, ...]) -> None:
    found = engine(name)
    assert (found.spec_policy, found.spec_types, found.drafters) == ("fixed", types, BASE.engine.drafters)


def test_numbers_set_what_is_natural_and_leave_the_rest() -> None:
    assert engine("draft:8").drafters.draft_model == DraftModelParams(n_max=8, p_min=0.0)
    assert engine("draft:8:0.6").drafters.draft_model == DraftModelParams(n_max=8, p_min=0.6)
    assert engine("mtp:4").drafters.draft_model == DraftModelParams(n_max=4, p_min=0.0)
    assert engine("draft-eagle3:5:0.2").drafters.draft_model == DraftModelParams(n_max=5, p_min=0.2)
    assert engine("suffix:8").drafters.suffix == SuffixParams(n_max=8, p_min=0.3)
    assert engine("ngram-simple:4:8").drafters.ngram_simple == NgramParams(size_n=4, size_m=8)
    assert engine("ngram-map-k4v:4").drafters.ngram_map_k4v == NgramParams(size_n=4)
    mod = engine("ngram-mod:16:2:32").drafters.ngram_mod
    assert (mod.n_match, mod.n_min, mod.n_max) == (16, 2, 32)


def test_numbers_in_a_combination_go_to_their_drafter() -> None:
    drafters = engine("suffix:5+draft:3").drafters
    assert (drafters.suffix.n_max, drafters.draft_model.n_max) == (5, 3)


def test_the_planner_can_be_given_other_drafters() -> None:
    found = engine("auto:suffix:8")
    assert (found.spec_policy, found.spec_types, found.drafters.suffix.n_max) == ("auto", ("suffix",), 8)


def test_the_oracle_runs_in_the_mode_it_is_compared_with() -> None:
    assert not engine("oracle").exact
    assert parse("oracle").settings(replace(BASE, engine=replace(BASE.engine, exact=True))).engine.exact
    assert engine("oracle").spec_types == ()
    assert engine("oracle").spec_policy == "auto"


def test_there_is_always_something_to_compare_with() -> None:
    assert [m.name for m in parse_all(["auto", "suffix", "auto"])] == ["none", "auto", "suffix"]
    assert [m.name for m in parse_all(["auto", "none"])] == ["auto", "none"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("crystal-ball", "'crystal-ball' is none of none, auto, oracle, draft, grammar"),
        ("none+draft", "'none' is none of"),
        ("suffix+", "'' is none of"),
        ("auto:", "'' is none of"),
        ("draft:many", "'many' is no n_max"),
        ("draft:8:0.6:1", "takes n_max, p_min at most"),
        ("grammar:3", "takes no numbers"),
    ],
)
def test_names_that_mean_nothing(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(name)


def test_numbers_out_of_range_and_a_missing_draft_model_are_told_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="n_max"):
        engine("draft:-1")
    without = Settings(model=ModelParams(path="m.gguf"))
    with pytest.raises(ConfigError, match="suffix\\+draft:8 needs a draft model"):
        parse("suffix+draft:8").settings(without)
    with pytest.raises(ConfigError, match="eagle3 needs a draft model or a head"):
        parse("eagle3").settings(without)
    assert parse("mtp").settings(without).engine.spec_types == ("draft-mtp",)
