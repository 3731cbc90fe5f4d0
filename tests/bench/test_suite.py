from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from paceline.bench.suite import MT_BENCH, SUITE, SuitePrompt, load
from paceline.errors import ConfigError

CATEGORIES = ("chat", "code-writing", "code-editing", "summarise", "extract-json", "translate", "agent-loop")
GOOD = json.dumps({"question_id": 81, "category": "qa", "turns": ["Who?", "And why?"]})


def texts(category: str) -> list[str]:
    return [p.text for p in SUITE if p.category == category]


def write(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return path


def test_suite_has_six_different_prompts_of_each_category() -> None:
    assert Counter(p.category for p in SUITE) == dict.fromkeys(CATEGORIES, 6)
    assert len({p.text for p in SUITE}) == 42
    assert all(p.text == p.text.strip() for p in SUITE)


def test_prompts_are_neither_short_nor_long() -> None:
    # About four characters to a token: 30 to 500 tokens or so.
    assert all(160 <= len(p.text) <= 1800 for p in SUITE)


def test_code_editing_holds_a_file() -> None:
    languages = set()
    for text in texts("code-editing"):
        found = re.search(r"```(\w+)\n(.*?)\n```", text, re.DOTALL)
        assert found is not None
        languages.add(found[1])
        assert 25 <= len(found[2].split("\n")) <= 50
        if found[1] == "python":
            compile(found[2], "file", "exec")
    assert len(languages) == 6


@pytest.mark.parametrize(("category", "low", "high"), [("summarise", 150, 300), ("translate", 60, 120)])
def test_passages_have_the_promised_length(category: str, low: int, high: int) -> None:
    for text in texts(category):
        assert low <= len(text.split("\n\n", 1)[1].split()) <= high


def test_agent_loops_hold_valid_json() -> None:
    for text in texts("agent-loop"):
        calls = re.findall(r"^Call: (.*)$", text, re.MULTILINE)
        seen = re.findall(r"^Observation: (.*)$", text, re.MULTILINE)
        assert len(calls) == len(seen) >= 3
        assert all(isinstance(json.loads(each), dict) for each in [*calls, *seen])


def test_load_takes_first_turns(tmp_path: Path) -> None:
    odd = json.dumps({"category": "rag", "turns": ["line\u2028separator"]}, ensure_ascii=False)
    path = write(tmp_path / "q.jsonl", b"\xef\xbb\xbf" + GOOD.encode(), "", odd + "\r", "")
    assert load(path) == load(str(path)) == (SuitePrompt("qa", "Who?"), SuitePrompt("rag", "line\u2028separator"))


@pytest.mark.parametrize("category", sorted(MT_BENCH))
def test_categories_of_mt_bench_are_one(tmp_path: Path, category: str) -> None:
    path = write(tmp_path / "q.jsonl", json.dumps({"category": category, "turns": ["Hi"]}))
    assert load(path) == (SuitePrompt("mt_bench", "Hi"),)


def test_math_reasoning_is_not_mt_bench(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", json.dumps({"category": "math_reasoning", "turns": ["1 + 1?"]}))
    assert load(path) == (SuitePrompt("math_reasoning", "1 + 1?"),)


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[]",
        "7",
        '{"turns": ["a"]}',
        '{"category": "qa"}',
        '{"category": 1, "turns": ["a"]}',
        '{"category": "", "turns": ["a"]}',
        '{"category": "qa", "turns": []}',
        '{"category": "qa", "turns": "a"}',
        '{"category": "qa", "turns": [1]}',
        '{"category": "qa", "turns": [" "]}',
        '{"category": "qa", "turns": ["\\ud800"]}',
        b'{"category": "qa", "turns": ["\xff"]}',
        "[" * 100_000,
    ],
)
def test_malformed_line_is_named(tmp_path: Path, bad: str | bytes) -> None:
    with pytest.raises(ConfigError, match=r"q\.jsonl, line 3: "):
        load(write(tmp_path / "q.jsonl", GOOD, "", bad, GOOD))


def test_no_prompts_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no prompts"):
        load(write(tmp_path / "q.jsonl", "", " "))
    with pytest.raises(ConfigError, match="cannot read prompts"):
        load(tmp_path / "none.jsonl")
