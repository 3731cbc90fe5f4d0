from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from paceline.errors import ConfigError, PromptError
from paceline.text import jinja
from paceline.text.chat import CHATML, ChatTemplate
from paceline.text.vocabulary import VocabularyTable

HELLO = [{"role": "user", "content": "Hello"}]
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "2 < 3 & 'so on'"},
]
TOOL = {"type": "function", "function": {"name": "weather", "description": "l'été <à Zürich>"}}

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- for message in messages %}
    {%- if not loop.first and message.role == messages[loop.index0 - 1].role %}
        {{- raise_exception("Roles must\\n  alternate, not " + message.role) }}
    {%- endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {%- if message.role == 'system' %}
        {{- 'Today: ' + date_string + '\\n' }}
    {%- endif %}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

TOOLS = """\
{% if tools %}
Tools:
    {% for tool in tools %}
{{ tool | tojson }}
    {% endfor %}
{% endif %}
{% for message in messages %}
    {% if message.tool_calls %}
        {% for call in message.tool_calls %}
<tool_call>{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}</tool_call>
        {% endfor %}
    {% else %}
{{ message.role }}: {{ message.content }}
    {% endif %}
{% endfor %}
"""


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, "<s>", "</s>")


def render(source: str, messages: list[dict[str, Any]] | None = None, **variables: Any) -> str:
    return template(source).render(HELLO if messages is None else messages, **variables)


def test_chatml_is_what_smollm2_writes() -> None:
    expected = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\n2 < 3 & 'so on'<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert render(SMOLLM2, TALK) == expected
    assert render(CHATML, TALK) == expected


def test_smollm2_adds_its_system_message() -> None:
    assert render(SMOLLM2, add_generation_prompt=False) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
    )


def test_chatml_without_generation_prompt() -> None:
    assert render(CHATML, add_generation_prompt=False) == "<|im_start|>user\nHello<|im_end|>\n"


def test_llama3_has_bos_and_takes_extra_variables() -> None:
    prompt = render(LLAMA3, TALK[:2], date_string="1 May 2025")
    assert prompt == (
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday: 1 May 2025\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert f"Today: {datetime.now():%d %b %Y}\n" in render(LLAMA3, TALK[:2])


def test_tools_are_plain_json_and_blocks_leave_no_blank_lines() -> None:
    call = {"function": {"name": "weather", "arguments": {"city": "Zürich"}}}
    messages: list[dict[str, Any]] = [*HELLO, {"role": "assistant", "tool_calls": [call]}]
    assert render(TOOLS, messages, tools=[TOOL]) == (
        'Tools:\n{"type": "function", "function": {"name": "weather", "description": "l\'été <à Zürich>", '
        '"parameters": {}}}\n'
        'user: Hello\n<tool_call>{"name": "weather", "arguments": {"city": "Zürich"}}</tool_call>\n'
    )
    assert render(TOOLS) == "user: Hello\n"


def test_tojson_takes_what_templates_give_it() -> None:
    source = "{{ things | tojson(indent=2, sort_keys=true, separators=(',', ':'), ensure_ascii=true) }}"
    assert render(source, things=[TOOL]) == json.dumps([TOOL], indent=2, sort_keys=True, separators=(",", ":"))


def test_the_end_token_is_known() -> None:
    assert render("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}") == "<s>Hello</s>"


def test_bos_is_left_off_where_the_tokenizer_adds_it() -> None:
    source = "{{ bos_token }}{{ messages[0].content }}"
    assert ChatTemplate(source, "<s>", "</s>", adds_bos=True).render(HELLO) == "Hello"
    assert ChatTemplate(source, "<s>", "</s>", adds_bos=False).render(HELLO) == "<s>Hello"


def test_a_model_with_two_templates_has_one_for_tools() -> None:
    both = ChatTemplate("plain {{ messages[0].content }}", "", "", tool_source=TOOLS)
    assert both.render(HELLO) == "plain Hello"
    assert both.render(HELLO, tools=[TOOL]).startswith("Tools:\n")
    assert both.capabilities.supports_tools


def test_a_broken_template_for_tools_is_left_out(vocab: VocabularyTable) -> None:
    assert ChatTemplate.of("{{ messages[0].content }}", vocab, "{% if %}").render(HELLO, tools=[TOOL]) == "Hello"
    assert ChatTemplate.of(None, vocab, TOOLS).render(HELLO, tools=[TOOL]).startswith("Tools:\n")
    assert ChatTemplate.of(None, vocab).source == CHATML


@pytest.fixture
def vocab() -> VocabularyTable:
    return VocabularyTable([b"a", b"</s>"], {}, [1], bos=-1, eos=1, add_bos=False, kind=0)


def test_a_refusal_reaches_the_user_in_one_line() -> None:
    with pytest.raises(PromptError) as caught:
        render(LLAMA3, [*HELLO, *HELLO])
    assert str(caught.value) == "the chat template refuses these messages: Roles must alternate, not user"


def test_strftime_now_is_the_local_date() -> None:
    before = datetime.now().strftime("%d %b %Y")
    prompt = render("{{ strftime_now('%d %b %Y') }}")
    assert prompt in (before, datetime.now().strftime("%d %b %Y"))


def test_loop_controls() -> None:
    source = "{% for m in messages %}{% if m.role == 'assistant' %}{% break %}{% endif %}{{ m.content }};{% endfor %}"
    assert render(source, TALK) == "Be brief.;Hi;"


def test_the_generation_tag_is_tolerated() -> None:
    spoken = "{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
    assert render("{% for m in messages %}{{ m.role }}:" + spoken + "{% endfor %}") == "user:Hello</s>"


def test_what_is_missing_is_empty() -> None:
    assert render("{{ messages[0].name }}|{% if tools is undefined %}none{% endif %}") == "|none"
    assert render("{{ messages[9].content }}{{ none }}{{ 'a' + none + x.y.z }}{{ none | default('b') }}") == "ab"
    assert (
        render("{% for name, value in x.y.items() %}{{ name }}{% endfor %}{{ x.strip() }}{{ [x] | tojson }}")
        == "[null]"
    )


def test_templates_append_to_lists_of_their_own() -> None:
    assert render("{% set own = [1] %}{{ own.append(2) }}{{ own | map('string') | tojson }}") == '["1", "2"]'


@pytest.mark.parametrize(
    "attempt",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ (''|attr('__class__')).mro() }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ messages.append('more') }}",
        "{{ extra.append('more') }}",
        "{{ extra[0].append('more') }}",
        "{{ messages[0].update(role='system') }}",
        "{% for n in range(1000000) %}{% endfor %}",
    ],
)
def test_the_sandbox_holds(attempt: str) -> None:
    with pytest.raises(PromptError, match=r"^the chat template ") as caught:
        render(attempt, extra=[[1]])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("attempt", ["{% include '/etc/passwd' %}", "{% import 'os' as os %}{{ os }}"])
def test_no_files_are_read(attempt: str) -> None:
    with pytest.raises(PromptError):
        render(attempt)


def test_messages_are_left_as_they_were() -> None:
    messages = [dict(message) for message in TALK]
    render(LLAMA3, messages)
    assert messages == TALK


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        ("{{ 1 / 0 }}", HELLO),
        ("{{ 1 + none }}", HELLO),
        ("{{ raise_exception | tojson }}", HELLO),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", HELLO),
    ],
)
def test_whatever_a_template_stumbles_over_is_a_prompt_error(source: str, messages: list[dict[str, Any]]) -> None:
    with pytest.raises(PromptError, match=r"^the chat template failed on these messages: .+"):
        render(source, messages)


def test_extra_variables_do_not_replace_the_messages() -> None:
    extra: dict[str, Any] = {"messages": TALK}
    with pytest.raises(PromptError, match="'messages'"):
        template(CHATML).render(HELLO, **extra)


def test_extra_variables_may_have_any_name() -> None:
    extra: dict[str, Any] = {"source": "x", "self": "y", "context": "z"}
    assert template("{{ source }}{{ context }}").render(HELLO, **extra) == "xz"


def test_endless_output_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja, "MAX_CHARS", 1000)
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}spam {% endfor %}{% endfor %}"
    with pytest.raises(PromptError, match="more than 1000 characters"):
        render(endless)


def test_a_long_reason_is_shortened() -> None:
    with pytest.raises(PromptError) as caught:
        render("{{ raise_exception(messages[0].content) }}", [{"role": "user", "content": "very " * 1000}])
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ 'a' }}\n{% for message in messages %}", "line 2: Unexpected end of template"),
        ("{% if %}", "line 1: Expected an expression"),
        ("{{ messages | nosuchfilter }}", "line 1: No filter named 'nosuchfilter'"),
        ("{% for i in [1] %}" * 25 + "{% endfor %}" * 25, "too many statically nested blocks"),
    ],
)
def test_a_broken_template_is_a_config_error(source: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        template(source)
    assert "\n" not in str(caught.value)
