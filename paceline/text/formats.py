"""How families of models write thoughts and tool calls: one table, found by what a chat template says. Data only.

A call is a name and its arguments. Either both are in one JSON object, or the name stands before the arguments, which
are JSON or tagged one by one; two families write calls as a programming language would. White space between the
markers never counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

THINK = ("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class Tags:
    """Arguments one by one: `key` around the name, `value` around the text, `{key}` in it being the name. Line breaks
    inside `value` are padding where `padded`. `attributes` is what may come with the key, a regular expression."""

    key: tuple[str, str]
    value: tuple[str, str]
    padded: bool = False
    attributes: str = ""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """`section` stands around all calls, `call` around each. Without `name_end` the name is in the JSON (`keyed`: as
    its key); `listed`: the objects are in a list. `id_mark` is between name and id, `name_attributes` what may come
    with the name, a regular expression. `language` is "python" or "gemma"."""

    call: tuple[str, str] = ("", "")
    section: tuple[str, str] = ("", "")
    name_end: str = ""
    name_key: str = "name"
    arguments_key: str = "arguments"
    name_prefix: str = ""
    name_attributes: str = ""
    id_mark: str = ""
    id_key: str = ""
    id_first: bool = False
    tags: Tags | None = None
    listed: bool = False
    keyed: bool = False
    language: str = ""

    @property
    def openers(self) -> tuple[str, ...]:
        """What begins a stretch of calls; some models leave the section's own mark out."""
        return (self.section[0], self.call[0]) if self.section[0] else (self.call[0],)

    @property
    def in_json(self) -> bool:
        """Whether name and arguments are in one JSON object."""
        return not (self.name_end or self.tags or self.language)

    @property
    def markers(self) -> tuple[str, ...]:
        """Everything that may be a token of its own."""
        tags = (*self.tags.key, *self.tags.value) if self.tags else ()
        marks = (*self.section, *self.call, self.name_end, self.id_mark, *tags)
        return tuple(mark for mark in marks if mark)


@dataclass(frozen=True, slots=True)
class Style:
    """One family: `signs` are all in its templates, none of `unlike` is.

    `think` stands around thoughts, `resumed` is what follows thoughts that are cut short; with `calls_end_thoughts` a
    call may come in the middle of them. `dropped` are marks that mean nothing to a reader, `prompted` begins the answer
    and is in the prompt already. `harmony`: every message says whom it is for."""

    signs: tuple[str, ...] = ()
    calls: tuple[CallFormat, ...] = ()
    think: tuple[str, str] = THINK
    dropped: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    prompted: str = ""
    resumed: str = ""
    calls_end_thoughts: bool = False
    harmony: bool = False

    def fits(self, template: str) -> bool:
        return all(sign in template for sign in self.signs) and not any(sign in template for sign in self.unlike)

    def opens_thoughts(self, prompt: str) -> bool:
        """Whether the template has written the opening tag already."""
        return prompt.rstrip().endswith(self.think[0].rstrip())

    @property
    def thought_marks(self) -> tuple[str, ...]:
        """Those that any answer may have."""
        return (*self.think, *HARMONY_MARKS) if self.harmony else self.think

    @property
    def markers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.thought_marks, *(mark for call in self.calls for mark in call.markers)]))


HARMONY_MARKS = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>", "<|eom|>")

HERMES = CallFormat(("<tool_call>", "</tool_call>"))
LLAMA3 = CallFormat(("<|python_tag|>", ""), arguments_key="parameters")
MISTRAL = CallFormat(("[TOOL_CALLS]", ""), id_key="id", listed=True)
USUAL = (HERMES, LLAMA3, MISTRAL)
"""What any model may come up with."""

BARE = CallFormat()
"""JSON and nothing else."""

QWEN_CODER = CallFormat(
    ("<function=", "</function>"),
    ("<tool_call>", "</tool_call>"),
    name_end=">",
    tags=Tags(("<parameter=", ">"), ("", "</parameter>"), padded=True),
)
SEED = CallFormat(
    ("<function=", "</function>"),
    ("<seed:tool_call>", "</seed:tool_call>"),
    name_end=">",
    tags=Tags(("<parameter=", ">"), ("", "</parameter>")),
)
INVOKE_TAGS = Tags(('<parameter name="', '">'), ("", "</parameter>"))
MINIMAX_M2 = CallFormat(
    ('<invoke name="', "</invoke>"), ("<minimax:tool_call>", "</minimax:tool_call>"), name_end='">', tags=INVOKE_TAGS
)
ATEM_TAGS = Tags(('<atem:parameter name="', '">'), ("", "</atem:parameter>"))
MUSE = CallFormat(
    ('<atem:invoke name="', "</atem:invoke>"),
    ("<atem:function_calls>", "</atem:function_calls>"),
    name_end='">',
    tags=ATEM_TAGS,
)
MINIMAX_M3 = CallFormat(
    (']<]minimax[>[<invoke name="', "]<]minimax[>[</invoke>"),
    ("]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>"),
    name_end='">',
    tags=Tags(("]<]minimax[>[<", ">"), ("", "]<]minimax[>[</{key}>")),
)
GLM_TAGS = Tags(("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>"))
GLM = CallFormat(("<tool_call>", "</tool_call>"), name_end="\n", tags=GLM_TAGS)
HUNYUAN = CallFormat(
    ("<tool_call:opensource>", "</tool_call:opensource>"),
    ("<tool_calls:opensource>", "</tool_calls:opensource>"),
    name_end="<tool_sep:opensource>",
    tags=Tags(("<arg_key:opensource>", "</arg_key:opensource>"), ("<arg_value:opensource>", "</arg_value:opensource>")),
)
MINICPM = CallFormat(
    ('<function name="', "</function>"), name_end='">', tags=Tags(('<param name="', '">'), ("", "</param>"))
)
KIMI_K3 = CallFormat(
    ('<|open|>call tool="', "<|close|>call<|sep|>"),
    ("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    name_end="<|sep|>",
    name_attributes='" index="[0-9]+"',
    tags=Tags(('<|open|>argument key="', "<|sep|>"), ("", "<|close|>argument<|sep|>"), attributes='" type="[a-z]+"'),
)
SOLAR = CallFormat(
    ("<|tool_call:begin|>", "<|tool_call:end|>"),
    ("<|tool_calls|>", "<|calls|>"),
    name_end="<|tool_call:args|>",
    id_mark="<|tool_call:name|>",
    id_first=True,
)
FUNCTIONARY_31 = CallFormat(("<function=", "</function>"), name_end=">")
KIMI_K2 = CallFormat(
    ("<|tool_call_begin|>", "<|tool_call_end|>"),
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    name_end="<|tool_call_argument_begin|>",
    name_prefix="functions.",
)
MISTRAL_NAMED = CallFormat(("[TOOL_CALLS]", ""), name_end="[ARGS]", id_mark="[CALL_ID]")
NEMOTRON = CallFormat(("<TOOLCALL>", "</TOOLCALL>"), listed=True)
COHERE = CallFormat(
    ("<|START_ACTION|>", "<|END_ACTION|>"),
    name_key="tool_name",
    arguments_key="parameters",
    id_key="tool_call_id",
    id_first=True,
    listed=True,
)
COMMAND_R = CallFormat(("Action:\n```json\n", "```"), name_key="tool_name", arguments_key="parameters", listed=True)
LISTED_CALLS = CallFormat(("<tool_calls>", "</tool_calls>"), listed=True)


def dsml(section: str) -> CallFormat:
    return CallFormat(
        ('<｜DSML｜invoke name="', "</｜DSML｜invoke>"),
        (f"<｜DSML｜{section}>", f"</｜DSML｜{section}>"),
        name_end='">',
        tags=Tags(
            ('<｜DSML｜parameter name="', '">'), ("", "</｜DSML｜parameter>"), attributes='" string="(true|false)'
        ),
    )


def deepseek(opened: str, name_end: str, closed: str) -> CallFormat:
    return CallFormat(
        ("<｜tool▁call▁begin｜>" + opened, closed + "<｜tool▁call▁end｜>"),
        ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        name_end=name_end,
    )


STYLES = (
    Style(
        ("<|channel|>", "<|message|>"),
        think=("<|channel|>analysis<|message|>", "<|end|>"),
        resumed="<|start|>assistant<|channel|>final<|message|>",
        harmony=True,
    ),
    Style(("<atem:function_calls>", "<|message|>"), (MUSE,), ("to=self<|message|>", "<|eom|>"), harmony=True),
    Style(("<|tool_calls_section_begin|>",), (KIMI_K2,), calls_end_thoughts=True),
    Style(
        ("<|open|>", "<|close|>", "<|end_of_msg|>"),
        (KIMI_K3,),
        ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        ("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
    ),
    Style(
        ("<|START_ACTION|>",),
        (COHERE,),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    Style(("Action:", "```json", "tool_name"), (COMMAND_R,)),
    Style(("]<]minimax[>[",), (MINIMAX_M3,), ("<mm:think>", "</mm:think>")),
    Style(("<minimax:tool_call>",), (MINIMAX_M2,)),
    Style(("DSML", "function_calls"), (dsml("function_calls"),), calls_end_thoughts=True),
    Style(("DSML", "tool_calls"), (dsml("tool_calls"),), calls_end_thoughts=True),
    Style(
        ("<|tool_call>call:",),
        (CallFormat(("<|tool_call>call:", "<tool_call|>"), language="gemma"),),
        ("<|channel>thought\n", "<channel|>"),
        ("<|channel>thought\n<channel|>", "<channel|>"),
    ),
    Style(("<seed:tool_call>",), (SEED,), ("<seed:think>", "</seed:think>")),
    Style(('<function name="', '<param name="'), (MINICPM,)),
    Style(("HYTK = ':opensource'",), (HUNYUAN,), ("<think:opensource>", "</think:opensource>")),
    Style(("<role>ASSISTANT</role>", "<arg_key>"), (GLM,), calls_end_thoughts=True),
    Style(("<arg_key>", "<tool_call>"), (GLM,)),
    Style(("<function=", "<parameter="), (QWEN_CODER,), calls_end_thoughts=True),
    Style(("<|tool_call:begin|>",), (SOLAR,), ("<|think|>", "<|end|>")),
    Style(("<function=", "<|python_tag|>"), (FUNCTIONARY_31, LLAMA3)),
    Style(("<｜tool▁call▁begin｜>", "```json"), (deepseek("function<｜tool▁sep｜>", "\n```json\n", "```"),)),
    Style(("<｜tool▁call▁begin｜>",), (deepseek("", "<｜tool▁sep｜>", ""),)),
    Style(("[TOOL_CALLS]", "[ARGS]"), (MISTRAL_NAMED,), ("[THINK]", "[/THINK]")),
    Style(("<|tools_prefix|>",), (CallFormat(("<|tools_prefix|>", "<|tools_suffix|>"), listed=True, keyed=True),),
          ("<|inner_prefix|>", "<|inner_suffix|>")),
    Style(("<TOOLCALL>",), (NEMOTRON,)),
    Style(("[BEGIN FINAL RESPONSE]", "<tool_calls>"), (LISTED_CALLS,),
          ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"), ("<|end|>",)),
    Style(("<tool_calls>",), (LISTED_CALLS,), unlike=("<tool_call>\n",)),
    Style(("<|tool_call|>",), (CallFormat(("<|tool_call|>", ""), listed=True), HERMES)),
    Style(("functools",), (CallFormat((" functools", ""), listed=True),)),
    Style(("<|function_call|>",), (CallFormat(("<|function_call|>", "")),)),
    Style(("<|role_sep|>", "<|message_sep|>"),
          (CallFormat(("<|message_sep|>\n\nfunction call<|role_sep|>\n", "")),)),
    Style(("<|tool_list_start|>",), (CallFormat(("<|tool_call_start|>", "<|tool_call_end|>"), language="python"),)),
    Style(("List of tools: [",), (CallFormat(("<|tool_call_start|>", "<|tool_call_end|>"), language="python"),)),
    Style((">>>all",), (CallFormat((">>>", ""), name_end="\n"),), dropped=(">>>all\n",), prompted=">>>"),
    Style(("<|python_tag|>",), (LLAMA3,)),
    Style(("[TOOL_CALLS]",), (MISTRAL,)),
    Style(calls=USUAL),
)  # fmt: skip


@lru_cache(maxsize=16)
def style_of(template: str) -> Style:
    """The first that fits; the last one fits all."""
    return next(style for style in STYLES if style.fits(template))
