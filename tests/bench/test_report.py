from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from paceline.bench.methods import parse_all
from paceline.bench.report import OVERALL, Comparison, compare, hindsight, hindsight_line, summary, table
from paceline.bench.run import Sample

METHODS = parse_all(["none", "auto", "suffix"])


def sample(
    method: str,
    category: str,
    job: int,
    seconds: float,
    n_tokens: int = 100,
    drafts: tuple[int, int] = (0, 0),
    planned: tuple[float, float] = (0.0, 0.0),
) -> Sample:
    text = (method.encode()[0],) if method == "suffix" else (job,)
    return Sample(
        method,
        category,
        job,
        0,
        n_tokens=n_tokens,
        seconds=seconds,
        n_steps=50,
        n_drafted=drafts[0],
        n_accepted=drafts[1],
        planned_plain=planned[0],
        planned_actual=planned[1],
        texts=(text,),
    )


def row(rows: list[Comparison], category: str, method: str) -> Comparison:
    return next(r for r in rows if (r.category, r.method) == (category, method))


SAMPLES = [
    sample("none", "qa", 0, 10.0),
    sample("auto", "qa", 0, 5.0, drafts=(80, 20)),
    sample("suffix", "qa", 0, 20.0),
    sample("none", "qa", 1, 30.0),
    sample("auto", "qa", 1, 15.0, drafts=(20, 20)),
    sample("suffix", "qa", 1, 30.0),
    sample("none", "code", 2, 10.0),
    sample("auto", "code", 2, 10.0),
    sample("suffix", "code", 2, 4.0),
]


def test_speedups_are_ratios_of_totals() -> None:
    rows = compare(SAMPLES, METHODS)
    assert row(rows, "qa", "auto").speedup == 2.0
    assert row(rows, "qa", "suffix").speedup == pytest.approx(40 / 50)
    assert row(rows, OVERALL, "auto").speedup == pytest.approx(50 / 30)
    assert row(rows, OVERALL, "none").tokens_per_second == 6.0
    assert row(rows, "qa", "auto").acceptance == 0.4
    assert row(rows, "code", "auto").acceptance is None, "nothing was drafted"
    assert row(rows, "qa", "auto").tokens_per_step == 2.0


def test_categories_come_in_order_and_overall_last() -> None:
    assert list(dict.fromkeys(r.category for r in compare(SAMPLES, METHODS))) == ["qa", "code", OVERALL]


def test_texts_that_agree_are_counted() -> None:
    rows = compare(SAMPLES, METHODS)
    assert (row(rows, "qa", "auto").n_same, row(rows, "qa", "suffix").n_same) == (2, 0)


def test_texts_are_compared_as_far_as_both_go() -> None:
    pair = [Sample(m, "qa", 0, 0, 3, 1.0, texts=t) for m, t in (("none", ((1, 2), (3,))), ("auto", ((1,), (3, 4))))]
    assert row(compare(pair, METHODS), "qa", "auto").n_same == 1


def test_a_text_that_came_out_shorter_counts_by_its_tokens() -> None:
    rows = compare([sample("none", "qa", 0, 10.0), sample("auto", "qa", 0, 5.0, n_tokens=50)], METHODS)
    assert row(rows, "qa", "auto").speedup == 1.0


def test_only_jobs_that_both_did_count() -> None:
    failed = Sample("auto", "qa", 0, 0, error="too long")
    lone = sample("suffix", "qa", 9, 1.0)
    rows = compare([sample("none", "qa", 0, 10.0), failed, lone, *SAMPLES[3:6]], METHODS)
    assert row(rows, "qa", "auto").n_jobs == 1
    assert row(rows, "qa", "auto").speedup == 2.0
    assert row(rows, "qa", "suffix").speedup == 1.0


def test_one_stall_moves_the_total_but_not_the_median() -> None:
    samples = [sample("none", "qa", i, 10.0) for i in range(5)]
    samples += [sample("auto", "qa", i, 50.0 if i == 2 else 5.0) for i in range(5)]
    found = row(compare(samples, METHODS), "qa", "auto")
    assert found.median == 2.0
    assert found.speedup == pytest.approx(50 / 70)


def test_the_planners_word_is_that_of_its_own_seconds() -> None:
    samples = [sample(m, "qa", i, 10.0) for m in ("none", "suffix") for i in range(2)]
    samples += [sample("auto", "qa", i, 5.0, drafts=(9, 3), planned=(6.0 + i, 4.0)) for i in range(2)]
    rows = compare(samples, METHODS)
    assert row(rows, "qa", "auto").predicted == 13 / 8
    assert row(rows, "qa", "suffix").predicted is None, "nothing plans"
    assert summary(rows, None)["methods"]["auto"]["predicted"] == 1.625


def test_where_nothing_was_drafted_nothing_was_gained() -> None:
    samples = [sample("none", "qa", 0, 10.0), sample("auto", "qa", 0, 10.0, planned=(9.0, 10.0))]
    assert row(compare(samples, METHODS), "qa", "auto").predicted == 1.0


def test_the_spread_covers_the_speedup_and_is_the_same_every_time() -> None:
    samples = [sample("none", "qa", i, 10.0) for i in range(12)]
    samples += [sample("auto", "qa", i, 5.0 + 0.5 * (i % 4)) for i in range(12)]
    first, second = (row(compare(samples, METHODS), "qa", "auto") for _ in range(2))
    assert first == second
    assert first.low is not None and first.high is not None
    assert 10 / 6.5 < first.low < first.speedup < first.high < 10 / 5


def test_no_spread_where_there_is_none() -> None:
    assert row(compare(SAMPLES, METHODS), "code", "auto").low is None, "one job"
    even = [sample(m, "qa", i, s) for i in range(5) for m, s in (("none", 2.0), ("auto", 1.0))]
    found = row(compare(even, METHODS), "qa", "auto")
    assert (found.low, found.high) == (2.0, 2.0)


def test_hindsight_picks_the_best_fixed_method_of_each_category() -> None:
    found = hindsight(SAMPLES, METHODS)
    assert found is not None
    assert found.by_category == {"qa": ("none", 2.0), "code": ("suffix", pytest.approx(0.4))}
    assert found.overall == pytest.approx((40 + 4) / 30)
    assert "in code, where suffix is best" in hindsight_line(found)
    assert hindsight(SAMPLES, METHODS[:2]) is None, "nothing fixed to compare with"
    assert hindsight(SAMPLES, (METHODS[0], METHODS[2])) is None, "no auto"


def test_the_table_shows_it_all() -> None:
    out = io.StringIO()
    Console(file=out, width=120).print(table(compare(SAMPLES, METHODS)))
    text = out.getvalue()
    for word in ("qa", "code", OVERALL, "suffix", "2.000", "0.800", "40 %", "median", "predicted", "0.750"):
        assert word in text


def test_the_summary_is_json_by_method() -> None:
    rows = compare(SAMPLES, METHODS)
    found = json.loads(json.dumps(summary(rows, hindsight(SAMPLES, METHODS))))
    assert found["methods"]["auto"]["speedup"] == 1.6667
    assert found["methods"]["auto"]["categories"]["qa"]["speedup"] == 2.0
    assert found["auto_vs_best_fixed"]["categories"]["code"] == {"best": "suffix", "ratio": 0.4}
