"""Every family's way to call: a line of its template, an answer, what is in it. Each is read whole and by characters,
and fits the grammar that is made for its tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from paceline.text.answer import AnswerParser, Said
from paceline.text.call_grammar import call_grammar, form_of, harmony_grammar
from paceline.text.formats import CallFormat, style_of
from tests.text.small_vocab import COMPILER, EOS, TOOL

Call = tuple[str, dict[str, Any]]


def tool(name: str, required: Sequence[str] = (), **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("walk", ["to"], to={"type": "string"}, steps={"type": "integer"}),
    tool("rest"),
    tool("pack", ["things"], things={"type": "array", "items": {"type": "string"}}),
]
WALK: Call = ("walk", {"to": "the sea"})
FAR: Call = ("walk", {"to": 'a <b> "c"', "steps": 7})
REST: Call = ("rest", {})
PACK: Call = ("pack", {"things": ["map", "tea"]})

HERMES = '<tool_call>\n{"name": "walk", "arguments": {"to": "the sea"}}\n</tool_call>'
XML = "<function=walk>\n<parameter=to>\nthe sea\n</parameter>\n</function>"
XML_FAR = '<function=walk>\n<parameter=to>\na <b> "c"\n</parameter>\n<parameter=steps>\n7\n</parameter>\n</function>'
SEED = "<seed:tool_call>\n<function=walk>\n<parameter=to>the sea</parameter>\n</function>\n</seed:tool_call>"
MINIMAX = '<invoke name="walk">\n<parameter name="to">the sea</parameter>\n</invoke>'
MINIMAX_PACK = '<invoke name="pack">\n<parameter name="things">["map", "tea"]</parameter>\n</invoke>'
DSML = (
    '<｜DSML｜invoke name="walk">\n'
    '<｜DSML｜parameter name="to" string="true">the sea</｜DSML｜parameter>\n</｜DSML｜invoke>'
)
GLM = "<tool_call>walk\n<arg_key>to</arg_key>\n<arg_value>the sea</arg_value>\n</tool_call>"
GLM_FLAT = "<tool_call>rest</tool_call>"
KIMI = '<|tool_call_begin|>functions.walk:0<|tool_call_argument_begin|>{"to": "the sea"}<|tool_call_end|>'
KIMI_REST = "<|tool_call_begin|>functions.rest:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
K3 = (
    '<|open|>tools<|sep|><|open|>call tool="walk" index="1"<|sep|><|open|>argument key="to" type="string"<|sep|>the sea'
    "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
)
M3 = (
    ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="walk">]<]minimax[>[<to>the sea]<]minimax[>[</to>'
    "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"
)
DEEPSEEK = (
    "<｜tool▁calls▁begin｜>"
    '<｜tool▁call▁begin｜>walk<｜tool▁sep｜>{"to": "the sea"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
DEEPSEEK_R1 = (
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>walk\n```json\n{"to": "the sea"}\n```'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
SOLAR = (
    "<|tool_calls|><|tool_call:begin|>abcdefghij"
    '<|tool_call:name|>walk<|tool_call:args|>{"to": "the sea"}<|tool_call:end|>'
)
LIST = '[{"name": "walk", "arguments": {"to": "the sea"}}, {"name": "rest", "arguments": {}}]'
COHERE = '[{"tool_call_id": "0", "tool_name": "walk", "parameters": {"to": "the sea"}}]'

FAMILIES: dict[str, tuple[str, str, list[Call]]] = {
    "hermes": ("<tool_call>", HERMES + "\n" + HERMES, [WALK, WALK]),
    "qwen coder": ("<tool_call><function=<parameter=", f"<tool_call>\n{XML_FAR}\n</tool_call>", [FAR]),
    "qwen coder, two": (
        "<tool_call><function=<parameter=",
        f"<tool_call>\n{XML}\n</tool_call>\n<tool_call>\n<function=rest>\n</function>\n</tool_call>",
        [WALK, REST],
    ),
    "seed": ("<seed:tool_call>", SEED, [WALK]),
    "minimax m2": (
        "<minimax:tool_call>",
        f"<minimax:tool_call>\n{MINIMAX}\n{MINIMAX_PACK}\n</minimax:tool_call>",
        [WALK, PACK],
    ),
    "minimax m3": ("]<]minimax[>[<tool_call>", M3, [WALK]),
    "minimax m1": ("<tool_calls>", f"<tool_calls>{LIST}</tool_calls>", [WALK, REST]),
    "deepseek v3.2": ("DSML function_calls", f"<｜DSML｜function_calls>\n{DSML}\n</｜DSML｜function_calls>", [WALK]),
    "deepseek v4": ("DSML tool_calls", f"<｜DSML｜tool_calls>\n{DSML}\n</｜DSML｜tool_calls>", [WALK]),
    "deepseek v3.1": ("<｜tool▁call▁begin｜>", DEEPSEEK, [WALK]),
    "deepseek r1": ("<｜tool▁call▁begin｜>```json", DEEPSEEK_R1, [WALK]),
    "glm": ("<tool_call><arg_key>", f"{GLM}\n{GLM_FLAT}", [WALK, REST]),
    "hunyuan": (
        "HYTK = ':opensource'",
        GLM.replace("walk\n", "walk<tool_sep>\n")
        .replace(">", ":opensource>")
        .join(["<tool_calls:opensource>\n", "\n</tool_calls:opensource>"]),
        [WALK],
    ),
    "minicpm": (
        '<function name="<param name="',
        '<function name="walk"><param name="to">the sea</param></function>',
        [WALK],
    ),
    "kimi k2": (
        "<|tool_calls_section_begin|>",
        f"<|tool_calls_section_begin|>{KIMI}{KIMI_REST}<|tool_calls_section_end|>",
        [WALK, REST],
    ),
    "kimi k3": ("<|open|><|close|><|end_of_msg|>", K3, [WALK]),
    "solar": ("<|tool_call:begin|>", f"{SOLAR}<|calls|>", [WALK]),
    "functionary 3.1": ("<function=<|python_tag|>", '<function=walk>{"to": "the sea"}</function>', [WALK]),
    "mistral nemo": ("[TOOL_CALLS]", f"[TOOL_CALLS]{LIST}", [WALK, REST]),
    "mistral small": ("[TOOL_CALLS][ARGS]", '[TOOL_CALLS]walk[CALL_ID]abcdefghi[ARGS]{"to": "the sea"}', [WALK]),
    "devstral": (
        "[TOOL_CALLS][ARGS]",
        '[TOOL_CALLS]walk[ARGS]{"to": "the sea"}[TOOL_CALLS]rest[ARGS]{}',
        [WALK, REST],
    ),
    "nemotron v2": ("<TOOLCALL>", f"<TOOLCALL>{LIST}</TOOLCALL>", [WALK, REST]),
    "command r7b": ("<|START_ACTION|>", f"<|START_ACTION|>{COHERE}<|END_ACTION|>", [WALK]),
    "apertus": ("<|tools_prefix|>", '<|tools_prefix|>[{"walk": {"to": "the sea"}}]<|tools_suffix|>', [WALK]),
    "granite": ("<|tool_call|>", f"<|tool_call|>{LIST}", [WALK, REST]),
    "firefunction": ("functools", f" functools{LIST}", [WALK, REST]),
    "gigachat": ("<|function_call|>", '<|function_call|>{"name": "rest", "arguments": {}}', [REST]),
}
UNGUIDED: dict[str, tuple[str, str, list[Call]]] = {
    "llama 3": ("<|python_tag|>", '{"name": "walk", "parameters": {"to": "the sea"}}', [WALK]),
    "llama 3, marked": ("<|python_tag|>", '<|python_tag|>{"name": "walk", "parameters": {"to": "the sea"}}', [WALK]),
    "functionary 3.2": (">>>all", 'walk\n{"to": "the sea"}', [WALK]),
    "lfm2": ("<|tool_list_start|>", '<|tool_call_start|>[walk(to="the sea"), rest()]<|tool_call_end|>', [WALK, REST]),
    "gemma 4": (
        "<|tool_call>call:",
        '<|tool_call>call:walk{to:<|"|>the sea<|"|>}<tool_call|><|tool_call>call:rest{}<tool_call|>',
        [WALK, REST],
    ),
    "gpt-oss": (
        "<|channel|><|message|>",
        '<|channel|>commentary to=functions.walk <|constrain|>json<|message|>{"to": "the sea"}<|call|>',
        [WALK],
    ),
    "muse": (
        "<atem:function_calls><|message|>",
        ' to=walk<|message|><atem:function_calls>\n<atem:invoke name="walk">\n<atem:parameter name="to">the sea'
        "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
        [WALK],
    ),
    "json in place of tags": ("<tool_call><function=<parameter=", HERMES, [WALK]),
    "line breaks in strings": ("<tool_call>", HERMES.replace("the sea", "the\nsea"), [("walk", {"to": "the\nsea"})]),
}


def read(template: str, pushes: Sequence[str], prompt: str = "", **options: Any) -> Said:
    parser = AnswerParser(style_of(template), TOOLS, prompt, **options)
    said = Said()
    for text in pushes:
        said += parser.push(text)
    return said + parser.flush()


def calls(said: Said) -> list[Call]:
    whole: dict[int, tuple[str, str]] = {}
    for part in said.calls:
        name, arguments = whole.get(part.index, ("", ""))
        whole[part.index] = (name + part.name, arguments + part.arguments)
    return [(name, json.loads(arguments)) for name, arguments in whole.values()]


@pytest.mark.parametrize("family", FAMILIES | UNGUIDED)
def test_calls(family: str) -> None:
    template, answer, expected = (FAMILIES | UNGUIDED)[family]
    prompt = style_of(template).prompted
    for pushes in ([answer], list(answer)):
        said = read(template, pushes, prompt)
        assert calls(said) == expected
        assert said.content.strip() == said.reasoning == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_text_before_calls_and_calls_that_are_cut_short(family: str) -> None:
    template, answer, expected = FAMILIES[family]
    said = read(template, [*"On my way. ", *answer])
    assert said.content.rstrip() == "On my way."
    assert calls(said) == expected
    for n in range(len(answer)):
        said = read(template, [answer[:n]])
        assert [part.name for part in said.calls if part.name] == [name for name, _ in expected][: n_named(said)]


def n_named(said: Said) -> int:
    return sum(bool(part.name) for part in said.calls)


def plain(mark: str) -> list[int | str]:
    return [mark]


def follow(source: str, text: str) -> bool:
    """Whether the text is one of the grammar's, to its end."""
    matcher = COMPILER.lark(source).matcher()
    for byte in text.encode():
        if not matcher.consume_text(bytes([byte])):
            return False
    return matcher.accepting


@pytest.mark.parametrize("family", FAMILIES)
def test_the_grammar_of_a_family_is_what_it_writes(family: str) -> None:
    template, answer, expected = FAMILIES[family]
    form = form_of(style_of(template), template)
    opener = form.openers[0]
    answer = answer.lstrip() if not opener.startswith(" ") else answer
    assert follow(call_grammar(form, TOOLS, plain, parallel=True), answer)
    assert follow(call_grammar(form, TOOLS, plain, parallel=True, opened=opener), answer.removeprefix(opener))
    one = call_grammar(form, TOOLS, plain, parallel=False)
    assert follow(one, answer) == (len(expected) == 1)
    assert not follow(one, answer.replace("walk", "walks").replace("rest", "rests"))


def test_marks_that_are_tokens_of_their_own() -> None:
    source = call_grammar(CallFormat(("<tool>", "")), TOOLS, lambda mark: [TOOL] if mark else [], parallel=False)
    matcher = COMPILER.lark(source).matcher()
    assert matcher.allows(TOOL)
    assert not matcher.allows(ord("<"))
    matcher.consume(TOOL)
    assert matcher.consume_text(b'{"name": "rest", "arguments": {}}')
    assert matcher.allows(EOS)


def test_gpt_oss_may_think_before_a_call() -> None:
    matcher = COMPILER.lark(harmony_grammar(TOOLS, lambda _: [TOOL])).matcher()
    for part in ("", "analysis", "hm <|end|>", None, "assistant", "commentary to=functions.walk ", "json"):
        assert part is None or matcher.consume_text(part.encode())
        matcher.consume(TOOL)
    assert matcher.consume_text(b'{"to": "x"}')
    assert matcher.allows(EOS)


@pytest.mark.parametrize(
    ("template", "answer", "reasoning", "content"),
    [
        ("[TOOL_CALLS][ARGS]", "[THINK]hm[/THINK]Yes.", "hm", "Yes."),
        (
            "<|START_ACTION|>",
            "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>",
            "hm",
            "Yes.",
        ),
        ("<|tool_call>call:", "<|channel>thought\nhm<channel|>Yes.", "hm", "Yes."),
        (
            "<|channel|><|message|>",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
            "hm",
            "Yes.",
        ),
        ("<|channel|><|message|>", "<|channel|>commentary to=browser<|message|>secret", "", ""),
        ("<|channel|><|message|>", "No channel at all.", "", "No channel at all."),
        (">>>all", "all\nYes.", "", "Yes."),
        ("<tool_call><function=<parameter=", f"<think>hm\n<tool_call>{XML}</tool_call>", "hm", ""),
        ("<tool_call>", f"<think>as in {HERMES}</think>Yes.", f"as in {HERMES}", "Yes."),
    ],
)
def test_thoughts(template: str, answer: str, reasoning: str, content: str) -> None:
    for pushes in ([answer], list(answer)):
        said = read(template, pushes, style_of(template).prompted)
        assert (said.reasoning, said.content) == (reasoning, content)


def test_thoughts_that_stay_have_the_tag_of_the_prompt() -> None:
    assert read("", ["hm</think>Yes."], "Hello <think>\n", thoughts=False).content == "<think>\nhm</think>Yes."
    assert read("", ["hm</think>Yes."], "Hello <think>\n").reasoning == "hm"


def test_json_is_not_held_back_where_there_are_no_tools() -> None:
    assert AnswerParser(style_of("<|START_ACTION|>")).push('{"a": ').content == '{"a": '


def test_strings_are_passed_on_as_they_come() -> None:
    parser = AnswerParser(style_of("<tool_call><function=<parameter="), TOOLS)
    parser.push("<tool_call><function=walk><parameter=to>\n")
    assert "".join(part.arguments for part in parser.push("far ").calls) == "far "
    assert not parser.push("\n</para").calls
    assert "".join(part.arguments for part in parser.push("ble").calls) == "\\n</parable"
