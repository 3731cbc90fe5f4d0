"""Other people's clients. Each runs in a process of its own: their warnings are not ours to fix."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.server.live import Live

pytestmark = pytest.mark.model

LITELLM = """
import sys, litellm
common = dict(model="openai/target", api_base=sys.argv[1] + "/v1", api_key="none", max_tokens=8, temperature=0,
              messages=[{"role": "user", "content": "Hello"}])
whole = litellm.completion(**common)
parts = [c.choices[0].delta.content or "" for c in litellm.completion(**common, stream=True)]
assert whole.usage.completion_tokens == 8, whole.usage
assert "".join(parts) == whole.choices[0].message.content
try:
    litellm.completion(**{**common, "messages": [{"role": "user", "content": "a" * 5000}]})
except litellm.BadRequestError as error:
    assert "a slot holds" in str(error), error
else:
    raise SystemExit("a prompt over the context went through")
print("fine")
"""

ANSWER = """
import sys
from typing import Literal
from pydantic import BaseModel

class Answer(BaseModel):
    yes: bool
    size: Literal["small", "large"]
"""

INSTRUCTOR = (
    ANSWER
    + """
import instructor, openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    ask = instructor.from_openai(client, mode=mode).chat.completions
    common = dict(model="target", response_model=Answer, messages=[{"role": "user", "content": "Hello"}], max_tokens=99)
    assert isinstance(ask.create(**common, max_retries=0), Answer)
*_, last = ask.create_partial(**common)
assert last.size in ("small", "large"), last
print("fine")
"""
)

LANGCHAIN = (
    ANSWER
    + """
from langchain_openai import ChatOpenAI
model = ChatOpenAI(base_url=sys.argv[1] + "/v1", api_key="none", model="target", max_tokens=99, seed=4)
for method in ("json_schema", "function_calling"):
    assert isinstance(model.with_structured_output(Answer, method=method).invoke("Hello"), Answer)
bound = model.bind_tools([Answer], tool_choice="Answer")
(call,) = bound.invoke("Hello").tool_calls
total = None
for chunk in bound.stream("Hello"):
    total = chunk if total is None else total + chunk
(streamed,) = total.tool_calls
assert streamed["args"] == call["args"], (streamed, call)
assert model.invoke("Hello").usage_metadata["output_tokens"] > 0
print("fine")
"""
)

LLM_MODELS = """
- model_id: tiny
  model_name: target
  api_base: "{url}/v1"
"""


def python(*words: str, **environ: str) -> str:
    result = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.skipif(not find_spec("litellm"), reason="litellm is not installed")
def test_litellm(tiny: Live, tmp_path: Path) -> None:
    local = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(tmp_path)}
    assert python("-c", LITELLM, tiny.url, **local).endswith("fine\n")


@pytest.mark.skipif(not find_spec("instructor"), reason="instructor is not installed")
def test_instructor(tiny: Live) -> None:
    assert python("-c", INSTRUCTOR, tiny.url).endswith("fine\n")


@pytest.mark.skipif(not find_spec("langchain_openai"), reason="langchain-openai is not installed")
def test_langchain(tiny: Live) -> None:
    assert python("-c", LANGCHAIN, tiny.url, LANGCHAIN_TRACING_V2="false").endswith("fine\n")


@pytest.mark.skipif(not find_spec("llm"), reason="llm is not installed")
@pytest.mark.parametrize("options", [[], ["--no-stream"]])
def test_llm(tiny: Live, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(LLM_MODELS.format(url=tiny.url))
    words = [
        "-m",
        "llm",
        "-m",
        "tiny",
        "Hello",
        "--no-log",
        "-o",
        "max_tokens",
        "8",
        "-o",
        "temperature",
        "0",
        *options,
    ]
    out = python(*words, LLM_USER_PATH=str(tmp_path), OPENAI_API_KEY="none")
    asked = tiny.post(
        "/v1/chat/completions", messages=[{"role": "user", "content": "Hello"}], max_tokens=8, temperature=0
    )
    text = asked.json()["choices"][0]["message"]["content"]
    assert out.strip() == text.strip()
