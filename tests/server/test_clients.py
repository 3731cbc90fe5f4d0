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
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.skipif(not find_spec("litellm"), reason="litellm is not installed")
def test_litellm(tiny: Live, tmp_path: Path) -> None:
    local = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(tmp_path)}
    assert python("-c", LITELLM, tiny.url, **local).endswith("fine\n")


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
