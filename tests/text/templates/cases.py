"""Chats that every template is compared on, as bodies of POST /apply-template."""

from __future__ import annotations

from typing import Any

HELLO = {"role": "user", "content": "What is 2 < 3 & 'so on'?"}
ORDER = 'Answer in German, äh, "please".\n'


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


WEATHER = function(
    "get_weather",
    description="Tells the weather of l'été <à Zürich>.",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where"},
            "days": {"type": "integer", "default": 1, "minimum": 1},
            "units": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
    },
)
CLOCK = function("clock", description="What time it is")
TOOLS = [WEATHER, CLOCK]


def call(name: str, arguments: Any, id: str) -> dict[str, Any]:
    return {"id": id, **function(name, arguments=arguments)}


ONE_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [call("get_weather", '{"city": "Zürich", "days": 2}', "abc123def")],
}
ONE_RESULT = {"role": "tool", "tool_call_id": "abc123def", "name": "get_weather", "content": '{"sky": "clear"}'}
TWO_CALLS = {
    "role": "assistant",
    "content": "I will look.",
    "reasoning_content": "Two things to ask.",
    "tool_calls": [call("get_weather", {"city": "Bern"}, "abc123de1"), call("clock", "{}", "abc123de2")],
}
TWO_RESULTS = [
    {"role": "tool", "tool_call_id": "abc123de2", "content": "noon"},
    {"role": "tool", "tool_call_id": "abc123de1", "content": "rain"},
]
TALK = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?", "reasoning_content": "A greeting."},
    {"role": "user", "content": " How are you? "},
]
PARTS = [{"type": "text", "text": "What is"}, {"type": "text", "text": "the best book?"}]
BEGUN = {"role": "assistant", "content": "It is"}


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


CASES: dict[str, dict[str, Any]] = {
    "plain": chat(HELLO),
    "system": chat({"role": "system", "content": ORDER}, HELLO),
    "developer": chat({"role": "developer", "content": ORDER}, HELLO),
    "talk": chat({"role": "system", "content": ORDER}, *TALK),
    "parts": chat({"role": "system", "content": PARTS}, {"role": "user", "content": PARTS}),
    "tools": chat(HELLO, tools=TOOLS),
    "tools and system": chat({"role": "system", "content": ORDER}, HELLO, tools=TOOLS),
    "tools not to be called": chat(HELLO, tools=[CLOCK], tool_choice="none"),
    "tool result": chat(HELLO, ONE_CALL, ONE_RESULT, tools=TOOLS),
    "tool result, no tools": chat(HELLO, ONE_CALL, ONE_RESULT),
    "tool results": chat(HELLO, TWO_CALLS, *TWO_RESULTS, tools=TOOLS),
    "tool results, later": chat(HELLO, ONE_CALL, ONE_RESULT, {"role": "assistant", "content": "Clear."}, HELLO),
    "prefill": chat(HELLO, BEGUN),
    "prefill parts": chat(HELLO, {"role": "assistant", "content": PARTS}),
    "prefill thoughts": chat(HELLO, {"role": "assistant", "content": "", "reasoning_content": "Hm, this"}),
    "prefill after thoughts": chat(HELLO, {**BEGUN, "reasoning_content": "Hm."}),
    "prefill asked for": chat(HELLO, BEGUN, add_generation_prompt=False, continue_final_message=True),
    "no generation prompt": chat(HELLO, add_generation_prompt=False),
    "thinking": chat(HELLO, chat_template_kwargs={"enable_thinking": True}),
    "not thinking": chat(HELLO, chat_template_kwargs={"enable_thinking": False}),
    "not thinking, talk": chat(*TALK, chat_template_kwargs={"enable_thinking": False}),
    "prefill, not thinking": chat(HELLO, BEGUN, chat_template_kwargs={"enable_thinking": False}),
    "effort": chat(HELLO, reasoning_effort="high"),
    "no effort": chat(HELLO, reasoning_effort="none"),
    "old thoughts dropped": chat(*TALK, chat_template_kwargs={"preserve_reasoning": False}),
    "date": chat(HELLO, chat_template_kwargs={"date_string": "1 May 2025"}),
}
