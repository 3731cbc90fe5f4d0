"""`paceline devices`: what a person reads, and what a program does."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from paceline.cli.devices import BUILDS, described, gibibytes, instructions
from paceline.cli.flags import parse
from paceline.cli.main import main
from paceline.llama import amx
from paceline.llama.devices import can_offload, found_devices

pytestmark = pytest.mark.model
PAGE = Path(__file__).parents[2] / "docs" / "devices.md"


def test_a_person_reads_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["devices"]) == 0
    out = capsys.readouterr().out
    assert re.match(r"name +kind +description +memory +free +offload\n", out)
    for device in found_devices():
        assert re.search(rf"^{device.name} +{device.kind} .* [\d.]+ GiB +[\d.]+ GiB +(yes|no)$", out, re.MULTILINE)
    assert "llama-cpp-python 0." in out
    assert "CPU: " in out
    assert ("CMAKE_ARGS" in out) is not can_offload()


def test_broken_amx_is_told_with_a_way_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "is_broken", lambda: True)
    assert main(["devices"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "CXXFLAGS" in line)
    assert shlex.split(line)[0] == "CXXFLAGS=-fno-tree-dse -fno-dse"
    monkeypatch.setattr(amx, "is_broken", lambda: False)
    assert main(["devices"]) == 0
    assert "CXXFLAGS" not in capsys.readouterr().out


def test_a_program_reads_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [device["name"] for device in found["devices"]] == [device.name for device in found_devices()]
    processor = next(device for device in found["devices"] if device["kind"] == "CPU")
    assert processor["memory_total"] >= processor["memory_free"] > 0
    assert processor["offload"] is False
    assert found["offload"] is can_offload()
    assert found["cores"] >= 1
    assert "libllama" in found["version"]
    assert found["features"]["CPU"]


@pytest.mark.parametrize(
    ("system", "builds"), [("Linux", {"CUDA", "ROCm", "Vulkan"}), ("Windows", {"CUDA", "ROCm", "Vulkan"})]
)
def test_instructions_are_for_this_system(system: str, builds: set[str]) -> None:
    text = instructions(system)
    assert {name for name in BUILDS if f"  {name} (" in text} == builds
    assert {name for name in BUILDS if f"  {name} (" in instructions("Darwin")} == {"Metal"}


def test_instructions_are_command_lines() -> None:
    lines = [line.strip() for line in instructions("Linux").splitlines() if "pip install" in line]
    assert len(lines) == 3
    for line, (flag, _) in zip(lines, BUILDS.values(), strict=False):
        words = shlex.split(line)
        assert words[0] == f"CMAKE_ARGS={flag}"
        assert words[-1] == "llama-cpp-python>=0.3.36,<0.4"
        assert "://" not in line


def test_switches_are_named_and_values_shown() -> None:
    assert described({"AVX2": "1", "AMX": "0", "ARCHS": "900"}) == ["AVX2", "ARCHS=900"]
    assert (gibibytes(0), gibibytes(3 * 2**29)) == ("unknown", "1.5 GiB")


def test_commands_of_the_page_can_be_read() -> None:
    lines = [
        line.partition("#")[0].split() for line in PAGE.read_text().splitlines() if line.startswith("    paceline s")
    ]
    assert len(lines) > 6
    for _, command, *words in lines:
        assert parse(words, command).warnings == []
