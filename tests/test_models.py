"""The demo model's copies, and a cache folder that cannot be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline import models
from paceline.cli.main import main
from paceline.distill.reading import GgufFile


@pytest.mark.model
@pytest.mark.parametrize("where", ["file", "below-a-file", "read-only"])
def test_a_cache_folder_that_cannot_be_written_is_one_line(
    demo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], where: str
) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    folder = {"file": file, "below-a-file": file / "cache", "read-only": Path("/proc/1/cache")}[where]
    monkeypatch.setenv("PACELINE_CACHE", str(folder))
    assert main(["demo", "-n", "2"]) == 2
    said = capfd.readouterr().err.strip()
    assert said.startswith("paceline: error: cannot make a F16 copy of the demo model in")
    assert "\n" not in said


def test_a_clone_has_a_draft_for_the_demo_model(monkeypatch: pytest.MonkeyPatch) -> None:
    found = models.demo_draft()
    assert found and GgufFile(found).arch == "llama"
    monkeypatch.setattr(models, "DEMO_DRAFT", "none.gguf")
    assert models.demo_draft() is None
