"""Commands that answer and leave."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from paceline.cli.flags import Parsed
from paceline.cli.inquiries import completion
from paceline.cli.main import main


@pytest.fixture(scope="module")
def script() -> str:
    return completion(Parsed("run"))


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    line = " ".join(f"'{word}'" for word in words)
    after = f'\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _paceline; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", script + after], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_and_their_flags(script: str) -> None:
    assert completed(script, "paceline", "se") == ["serve"]
    assert completed(script, "paceline", "serve", "--api-key") == ["--api-key", "--api-key-file"]
    assert completed(script, "paceline", "run", "--api-key") == []
    assert "--no-mmap" in completed(script, "paceline", "bench", "--no-")
    assert "--jinja" not in completed(script, "paceline", "run", "--j"), "it does nothing"


def test_bash_completes_choices_and_files(script: str, tmp_path: Path) -> None:
    assert completed(script, "paceline", "run", "-fa", "") == ["on", "off", "auto"]
    (tmp_path / "some.gguf").touch()
    assert completed(script, "paceline", "run", "-m", f"{tmp_path}/so") == [f"{tmp_path}/some.gguf"]
    assert completed(script, "paceline", "run", "--json", "--js")[0] == "--json", "takes no file there"


def test_devices_and_models_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["serve", "--list-devices"], ["--list-devices"]):
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("Available devices:\n  ")
    for file in ("some.gguf", "addresses/a1/other.gguf", "hub/models--user--m/snapshots/c0/m-Q8_0.gguf"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert main(["serve", "-cl"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "number of models in cache: 3",
        "   1. user/m:Q8_0",
        f"   2. {tmp_path}/addresses/a1/other.gguf",
        f"   3. {tmp_path}/some.gguf",
    ]
    assert main(["--completion-bash"]) == 0
    assert "complete -F _paceline paceline" in capsys.readouterr().out
