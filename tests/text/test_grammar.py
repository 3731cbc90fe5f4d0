from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError, RequestError
from paceline.text.grammar import MAX_SOURCE, CompiledGrammar, GrammarCompiler, Matcher
from tests.text.small_vocab import BOS, COMPILER, DOUBLE, END, EOS, N_TEXT, TOKENS, TOOL, spell, tokenize

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GRAMMARS = {
    "schema": COMPILER.json_schema(PERSON),
    "free": COMPILER.json_schema(PERSON, free_whitespace=True),
    "object": COMPILER.json_object(),
    "regular": COMPILER.gbnf('root ::= ("abc" | "ab" | "true" [a-c]+)* "."'),
    "recursive": COMPILER.gbnf('root ::= "(" root ")" | "ab" root | "name" | ""'),
    "regex": COMPILER.regex("(ab|name: )[0-9]{2,3}"),
}


def allowed(matcher: Matcher) -> set[bytes]:
    return {TOKENS[token] for token in np.flatnonzero(matcher.mask())}


def after(grammar: CompiledGrammar, text: bytes) -> Matcher:
    matcher = grammar.matcher()
    for token in tokenize(text):
        assert matcher.allows(token), (text, TOKENS[token])
        matcher.consume(token)
    return matcher


def state(matcher: Matcher) -> tuple[Any, ...]:
    """All a user of the matcher can see of where it stands."""
    mask = None if matcher._ended else matcher.mask().tobytes()
    return mask, matcher.forced(), matcher.finished, matcher.accepting


def test_the_start_of_a_schema_is_forced_in_the_tokenizers_own_tokens() -> None:
    matcher = GRAMMARS["schema"].matcher()
    forced = matcher.forced()
    assert b'{"name": "'.startswith(spell(forced))
    assert forced == tokenize(b'{"name": "')[: len(forced)]
    assert len(forced) >= 2
    assert allowed(matcher) == {b'{"'}


def test_a_token_that_may_grow_beyond_what_is_forced_is_not_forced() -> None:
    matcher = after(COMPILER.regex("abc?d"), b"")
    assert matcher.forced() == []
    assert allowed(matcher) == {b"a", b"ab", b"abc"}


def test_a_schema_allows_nothing_else() -> None:
    matcher = after(GRAMMARS["schema"], b'{"name": "ab')
    inside = allowed(matcher)
    assert {b"x", b'"', b"name", b"\\", b"\xc3"} <= inside
    assert not {b"\n", b"\x00", b'"name"', b"", *(TOKENS[token] for token in (BOS, EOS, END, TOOL))} & inside
    matcher = after(GRAMMARS["schema"], b'{"name": "ab", "age": ')
    assert allowed(matcher) == {b"-", *(b"%d" % digit for digit in range(10))}
    matcher = after(GRAMMARS["schema"], b'{"name": "ab", "age": 7')
    assert allowed(matcher) == {b"}", *(b"%d" % digit for digit in range(10))}


def test_two_tokens_with_the_same_bytes_are_both_allowed() -> None:
    matcher = after(GRAMMARS["schema"], b'{"name": "')
    same = [token for token, text in enumerate(TOKENS) if text == DOUBLE]
    assert len(same) == 2
    assert matcher.mask()[same].all()


def test_special_tokens_are_no_text() -> None:
    mask = COMPILER.regex("(?s:.)*").matcher().mask()
    assert mask[:N_TEXT].sum() > 128
    assert [mask[token] for token in (BOS, TOOL, EOS, END)] == [False, False, True, True]


def test_the_end() -> None:
    matcher = after(GRAMMARS["schema"], b'{"name": "", "age": 1}')
    assert matcher.finished
    assert matcher.accepting
    assert allowed(matcher) == {TOKENS[EOS], TOKENS[END]}
    matcher.consume(END)
    assert matcher.finished
    assert not matcher.accepting
    assert matcher.forced() == []
    assert not matcher.allows(EOS)
    assert matcher.n_valid([EOS]) == 0
    matcher.rollback(1)
    assert allowed(matcher) == {TOKENS[EOS], TOKENS[END]}
    matcher.rollback(1)
    assert not matcher.finished
    assert b"}" in allowed(matcher)


def test_a_text_that_may_end_or_go_on() -> None:
    matcher = after(COMPILER.regex("[0-9]+"), b"12")
    assert matcher.accepting
    assert not matcher.finished
    assert matcher.allows(EOS)
    assert matcher.allows(ord("3"))
    matcher.consume(EOS)
    assert matcher.finished
    matcher.rollback(2)
    assert allowed(matcher) == {TOKENS[EOS], TOKENS[END], *(b"%d" % digit for digit in range(10))}


def test_a_draft_is_cut_at_the_first_token_the_grammar_forbids() -> None:
    matcher = after(GRAMMARS["schema"], b'{"name": "ab", "age": ')
    assert matcher.n_valid(tokenize(b"12}")) == 3
    assert matcher.n_valid([*tokenize(b"12}"), EOS, EOS]) == 4
    assert matcher.n_valid([*tokenize(b"12}"), ord("x")]) == 3
    assert matcher.n_valid(tokenize(b"1.5}")) == 1
    assert matcher.n_valid([ord("1"), BOS]) == 1
    assert matcher.n_valid([ord("1"), len(TOKENS), ord("1")]) == 1
    assert matcher.n_valid([-1]) == 0
    assert matcher.n_valid([]) == 0
    assert not matcher.allows(len(TOKENS))
    assert matcher.allows(ord("1"))


def test_a_draft_is_cut_where_it_leaves_the_forced_tokens() -> None:
    matcher = GRAMMARS["schema"].matcher()
    assert matcher.n_valid([ord("{"), ord('"')]) == 0
    assert matcher.n_valid(tokenize(b'{"name": "')) == len(tokenize(b'{"name": "'))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(GRAMMARS)), st.randoms(use_true_random=False))
def test_a_matcher_stands_where_its_tokens_lead_whatever_was_asked_before(name: str, random: Any) -> None:
    matcher = GRAMMARS[name].matcher()
    tokens: list[int] = []
    for _ in range(12):
        ask = random.choice(["consume", "consume", "consume", "rollback", "forced", "n_valid"])
        if ask == "rollback":
            n = random.randint(0, len(tokens))
            matcher.rollback(n)
            tokens = tokens[: len(tokens) - n]
        elif ask == "forced":
            matcher.forced()
        elif ask == "n_valid":
            matcher.n_valid(random.choices(range(len(TOKENS)), k=4))
        elif not (tokens and tokens[-1] in (EOS, END)):
            tokens.append(random.choice(np.flatnonzero(matcher.mask()).tolist()))
            matcher.consume(tokens[-1])
    fresh = GRAMMARS[name].matcher()
    for token in tokens:
        fresh.consume(token)
    assert state(matcher) == state(fresh)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(GRAMMARS)), st.randoms(use_true_random=False))
def test_mask_and_allows_and_forced_and_n_valid_agree(name: str, random: Any) -> None:
    matcher = GRAMMARS[name].matcher()
    for _ in range(8):
        mask = matcher.mask()
        assert [matcher.allows(token) for token in range(len(TOKENS))] == mask.tolist()
        assert mask[EOS] == mask[END] == matcher.accepting
        assert matcher.finished == (not mask[:N_TEXT].any())
        walked = walk(matcher, random)
        assert matcher.n_valid(walked) == len(walked)
        forced = matcher.forced()
        assert walked[: len(forced)] == forced[: len(walked)]
        if walked[0] in (EOS, END):
            break
        matcher.consume(walked[0])


def walk(matcher: Matcher, random: Any) -> list[int]:
    """Some tokens that one mask after the other allows; the matcher is left where it was."""
    tokens: list[int] = []
    while len(tokens) < 6 and not (tokens and tokens[-1] in (EOS, END)):
        tokens.append(random.choice(np.flatnonzero(matcher.mask()).tolist()))
        matcher.consume(tokens[-1])
    matcher.rollback(len(tokens))
    return tokens


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=8), st.integers(), st.booleans(), st.sampled_from(["schema", "free", "object"]))
def test_json_written_by_python_passes_in_the_tokenizers_own_tokens(
    name: str, age: int, ascii_only: bool, grammar: str
) -> None:
    text = json.dumps({"name": name, "age": age}, ensure_ascii=ascii_only)
    assert after(GRAMMARS[grammar], text.replace("\x7f", "\\u007f").encode()).accepting


def test_white_space_is_free_on_demand() -> None:
    text = b'{\n  "name":"x" ,"age":3}'
    assert after(GRAMMARS["free"], text).finished
    assert GRAMMARS["schema"].matcher().n_valid(tokenize(text)) == 0


def test_lark_and_percent_llguidance() -> None:
    text = '%llguidance {}\nstart: "a" /[0-9]/'
    assert allowed(after(COMPILER.lark(text), b"a")) == {b"%d" % digit for digit in range(10)}
    assert allowed(after(COMPILER.gbnf("\n" + text), b"a")) == {b"%d" % digit for digit in range(10)}


def test_a_tokenizer_that_puts_a_space_in_front() -> None:
    compiler = GrammarCompiler(TOKENS, [EOS], [], lambda text: tokenize(b" " + text))
    matcher = compiler.json_schema(PERSON).matcher()
    assert matcher.forced()[:2] == tokenize(b'{"name')
    assert allowed(matcher) == {b'{"'}


def test_many_matchers_of_one_grammar_do_not_meet() -> None:
    one, other = GRAMMARS["schema"].matcher(), GRAMMARS["schema"].matcher()
    one.consume(one.forced()[0])
    assert state(other) == state(GRAMMARS["schema"].matcher())
    assert state(one) != state(other)


def test_a_token_against_the_grammar_fails_this_request() -> None:
    matcher = after(GRAMMARS["regex"], b"ab")
    with pytest.raises(RequestError, match=r"^the grammar fails: .*doesn't satisfy the grammar") as caught:
        matcher.consume(ord("x"))
    assert "\n" not in str(caught.value)
    with pytest.raises(RequestError):
        matcher.mask()


def test_the_schema_true_is_any_json() -> None:
    assert COMPILER.json_schema(True).source == "{}"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('{"type":', "not JSON: Expecting value"),
        ("[1]", "an object or a boolean"),
        (False, "fits no value"),
        ({"type": "nonsense"}, "Invalid type: nonsense"),
        ({"not": {"type": "string"}}, 'Unimplemented keys: .*"not"'),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "Unsatisfiable"),
        ({"type": "string", "pattern": "("}, "unclosed group"),
        ({"enum": [{1, 2}]}, "not JSON: .*set"),
        ('{"enum": ["\\ud800"]}', "not text: .*surrogates"),
        ('{"items": ' * 5000 + "{}" + "}" * 5000, "recursion"),
        ({"description": "x" * MAX_SOURCE}, "more than 262144"),
    ],
)
def test_a_schema_that_cannot_be_meant_is_a_config_error(schema: str | dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        COMPILER.json_schema(schema)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("regex", "(", "unclosed group"),
        ("regex", "(?=a)", "look-around"),
        ("regex", "\ud800", "not text: .*surrogates"),
        ("lark", "start: missing", 'unknown name: "missing"'),
        ("lark", "", "Empty grammar"),
        ("lark", "start: " + "(" * 1000, "too deeply nested"),
        ("gbnf", "root ::= missing", "no rule 'missing'"),
    ],
)
def test_a_broken_grammar_is_a_config_error(kind: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        getattr(COMPILER, kind)(text)
    assert "\n" not in str(caught.value)


def test_unknown_keywords_are_skipped_on_demand() -> None:
    schema = {"type": "string", "format": "nonsense", "x-guidance": {"lenient": True}}
    assert after(COMPILER.json_schema(schema), b'"ab"').finished


def test_a_long_chain_of_rules_does_not_end_the_process() -> None:
    rules = "".join(f'rule{n} ::= "(" rule{n + 1} ")" | "x" root\n' for n in range(4000))
    matcher = COMPILER.gbnf(f'root ::= rule0\n{rules}rule4000 ::= "a"').matcher()
    assert allowed(matcher) == {b"(", b"x"}
    assert threading.stack_size() == 0


def test_a_model_without_an_end_has_no_grammar() -> None:
    with pytest.raises(ConfigError, match="ends the text"):
        GrammarCompiler(TOKENS, [], [], tokenize)
