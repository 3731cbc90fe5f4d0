from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.text.gbnf import gbnf_to_lark
from paceline.text.grammar import CompiledGrammar, GrammarCompiler

# One token per byte: every text has one tokenization, so the grammar alone decides.
BYTES = GrammarCompiler([bytes([byte]) for byte in range(256)] + [b"</s>"], [256], [], list)

JSON = r"""
# llama.cpp's grammars/json.gbnf, in short
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""

Part = st.SearchStrategy[tuple[str, str]]
PARTS: Part = st.deferred(lambda: st.one_of(LEAVES, SEQUENCES, CHOICES, REPEATS))
LEAVES: Part = st.sampled_from(
    [('"a"', "a"), ('"ab"', "ab"), ('"abc"', "abc"), ("[ab]", "[ab]"), ("[^a]", "[^a]"), (".", "."), ('""', "")]
)
SEQUENCES: Part = st.tuples(PARTS, PARTS).map(lambda p: (f"{p[0][0]} {p[1][0]}", f"(?:{p[0][1]})(?:{p[1][1]})"))
CHOICES: Part = st.tuples(PARTS, PARTS).map(lambda p: (f"({p[0][0]} | {p[1][0]})", f"(?:{p[0][1]}|{p[1][1]})"))
REPEATS: Part = st.tuples(PARTS, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}"])).map(
    lambda p: (f"({p[0][0]}){p[1]}", f"(?:{p[0][1]}){p[1]}")
)


def matches(grammar: CompiledGrammar, text: str) -> bool:
    matcher = grammar.matcher()
    for byte in text.encode():
        if not matcher.allows(byte):
            return False
        matcher.consume(byte)
    return matcher.accepting


@settings(max_examples=60, deadline=None)
@given(PARTS, st.lists(st.text("abc\né", max_size=6), min_size=4, max_size=4))
def test_a_grammar_matches_what_the_regular_expression_matches(part: tuple[str, str], texts: list[str]) -> None:
    regular = BYTES.gbnf(f"root ::= part\npart ::= {part[0]}")
    recursive = BYTES.gbnf(f'root ::= part | "#" root\npart ::= {part[0]}')
    for text in texts:
        expected = re.fullmatch(part[1], text, re.DOTALL) is not None
        assert matches(regular, text) == expected, (part, text)
        assert matches(recursive, text) == expected, (part, text)
        expected = re.fullmatch(f"#*(?:{part[1]})", "##" + text, re.DOTALL) is not None
        assert matches(recursive, "##" + text) == expected, (part, text)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (r'"\x41b"', "Ab"),
        (r'"\u00e9"', "é"),
        (r'"\U0001F600"', "😀"),
        (r'"\t\"q\\\["', '\t"q\\['),
        (r"[\u00e0-\u00e9\]\[-]+", "é[]-"),
        (r"[\^a\-z]+", "^-za"),
        ("[ぁ-ゟ]{2}", "ぁゟ"),
        ('[^"\\n]+', "a/é"),
        ("[^]", "\n"),
        ('"\u2028\x85\x01"', "\u2028\x85\x01"),
        ('( | "x") "y"?', ""),
        ('"a" (\n "b" # comment\n | "c")', "ac"),
        ('"a" |\n  "b"', "b"),
        ('"ab" { 1 , 2 }', "abab"),
        ('word "x"\nword ::= [a-z]+', "abx"),
        ('"abc" | [a-z]+', "abd"),
        ('"a{b}" "/" [/]', "a{b}//"),
        ("upper-Case | upperCase\nupper-Case ::= [A]\nupperCase ::= [B]", "B"),
    ],
)
@pytest.mark.parametrize("recursive", [False, True])
def test_the_notation(body: str, text: str, recursive: bool) -> None:
    root, _, rest = body.partition("\n") if "::=" in body else (body, "", "")
    again = ' | "#" root' if recursive else ""
    grammar = BYTES.gbnf(f"root ::= {root}{again}\n{rest}")
    assert matches(grammar, text)
    assert not matches(grammar, text + '"')


def test_json_in_gbnf() -> None:
    grammar = BYTES.gbnf(JSON)
    assert matches(grammar, '{"a": [1, -2.5, true, {"\\u00e9 ü": null}],\n"b" :""}')
    assert matches(grammar, "{}")
    assert not matches(grammar, '{"a": [1, }')
    assert not matches(grammar, '{"a": 01}')
    assert not matches(grammar, "[]")


def test_rules_that_are_not_used_do_not_matter() -> None:
    assert gbnf_to_lark('root ::= "a"\nother ::= missing other') == gbnf_to_lark('root ::= "a"')


def test_the_last_of_two_rules_with_one_name_counts_as_in_llama_cpp() -> None:
    assert matches(BYTES.gbnf('root ::= "a"\nroot ::= "b"'), "b")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no rule 'root'"),
        ('start ::= "a"', "no rule 'root'"),
        ('root ::= "a" missing', "line 1: there is no rule 'missing'"),
        ('root ::= "a\n\nb', "line 1: cannot read '\"a'"),
        ('root ::= "a"\nnonsense', "line 2: expected a rule, found 'nonsense'"),
        ('root ::= ("a"', r"line 1: '\(' is never closed"),
        ('root ::= "a")', r"line 1: '\)' without '\('"),
        ("root ::= * [a]", r"line 1: '\*' repeats nothing"),
        ("root ::= ([a] | +)", r"line 1: '\+' repeats nothing"),
        ("root ::=\n\n[b-a]", "line 3: the range in .* runs backwards"),
        ("root ::= []", r"line 1: \[\] matches nothing"),
        (r'root ::= "\q"', r"unknown escape \\q"),
        (r'root ::= "\ud800"', "not a character"),
        (r'root ::= "\UFFFFFFFF"', "not a character"),
        ("root ::= <[12]>", "cannot read"),
        ('root ::= "a" other ::= "b"', "a new rule"),
    ],
)
def test_a_broken_grammar_is_a_config_error_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        gbnf_to_lark(text)
    assert "\n" not in str(caught.value)
