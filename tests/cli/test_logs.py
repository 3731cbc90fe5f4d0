from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paceline.cli.flags import parse
from paceline.cli.logs import levels, writing
from paceline.cli.main import main
from paceline.cli.options import LogOptions
from paceline.errors import ConfigError

if TYPE_CHECKING:
    pass

log = logging.getLogger("paceline")
llama_log = logging.getLogger("paceline.llama")

STAMP = r"\d+\.\d\d\.\d\d\d\.\d\d\d"


def options(line: str = "", **environ: str) -> LogOptions:
    return LogOptions(**parse(line.split(), "serve", environ).under("log"))


def say_everything() -> None:
    for logger, who in ((log, "ours"), (llama_log, "llama")):
        logger.debug("%s debug", who)
        logger.info("%s info", who)
        logger.warning("%s warning", who)
        logger.error("%s error", who)


def shown(
    capsys: pytest.CaptureFixture[str], line: str = "--no-log-prefix", *, serving: bool = True, **environ: str
) -> list[str]:
    with writing(options(line, **environ), serving=serving):
        say_everything()
    out, err = capsys.readouterr()
    assert out == ""
    return [text.removeprefix("paceline: warning: ").removeprefix("paceline: error: ") for text in err.splitlines()]


def test_a_server_tells_its_news_and_libllamas_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys) == ["ours info", "ours warning", "ours error", "llama error"]
    assert shown(capsys) == shown(capsys, "-lv 3 --no-log-prefix")


def test_other_commands_only_warn(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, serving=False) == ["ours warning", "ours error"]


def test_verbose_shows_everything(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("-v", "--verbose", "--log-verbose", "-lv 5", "-lv 99", "--log-verbosity 5"):
        assert len(shown(capsys, f"{line} --no-log-prefix", serving=False)) == 8


def test_verbosity_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    n_lines = [len(shown(capsys, f"-lv {n} --no-log-prefix")) for n in (-1, 0, 1, 2, 3, 4, 5)]
    assert n_lines == [0, 0, 2, 3, 4, 6, 8]
    assert len(shown(capsys, "", LLAMA_ARG_LOG_VERBOSITY="1")) == 2
    assert len(shown(capsys, "", LLAMA_LOG_VERBOSITY="1")) == 2


def test_disabled_is_silent(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    assert shown(capsys, f"--log-disable -v --log-file {file}") == []
    assert not file.exists()


def test_levels_are_put_back() -> None:
    before = (log.level, llama_log.level, list(logging.getLogger().handlers))
    with writing(options("-v"), serving=True):
        assert log.level == logging.DEBUG
    assert before == (log.level, llama_log.level, list(logging.getLogger().handlers))


# -- shape


def test_a_server_prefixes_time_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "-v")
    assert [re.sub(STAMP, "T", line) for line in lines[:4]] == [
        "T D ours debug",
        "T I ours info",
        "T W ours warning",
        "T E ours error",
    ]
    assert shown(capsys, "--no-log-timestamps")[0] == "I ours info"


def test_other_commands_name_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    with writing(options(), serving=False):
        say_everything()
    assert capsys.readouterr().err == "paceline: warning: ours warning\npaceline: error: ours error\n"


def test_who_asks_for_times_or_prefixes_gets_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.fullmatch(f"{STAMP} W ours warning", shown(capsys, "--log-timestamps", serving=False)[0])
    assert re.fullmatch(f"{STAMP} W ours warning", shown(capsys, "--log-prefix", serving=False)[0])
    assert shown(capsys, "--log-prefix", serving=False, LLAMA_ARG_LOG_TIMESTAMPS="0")[0] == "W ours warning"


def test_colors_where_wanted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in "".join(shown(capsys))
    lines = shown(capsys, "--log-colors on --no-log-timestamps")
    assert lines[0] == "\x1b[32mI \x1b[0mours info"
    assert lines[1] == "\x1b[35mW ours warning\x1b[0m"
    assert "\x1b" in "".join(shown(capsys, "", LLAMA_ARG_LOG_COLORS="on"))
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal)
    with writing(options(), serving=True):
        log.info("news")
    with writing(options("--log-colors off"), serving=True):
        log.info("plain")
    colored, plain = terminal.getvalue().splitlines()
    assert "\x1b" in colored and "\x1b" not in plain


def test_a_bare_log_colors_means_on() -> None:
    assert options("--log-colors --log-prefix") == LogOptions(colors=True, prefix=True)
    assert options("--log-colors auto").colors is None


# -- the file


def test_the_file_gets_what_the_screen_gets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("before\n")
    with writing(options(f"--log-file {file} --log-colors on"), serving=True):
        log.info("one ✓")
        assert file.read_text(encoding="utf-8").endswith("one ✓\n"), "no line waits"
        say_everything()
    screen = re.sub("\x1b\\[\\d+m", "", capsys.readouterr().err)
    assert file.read_text(encoding="utf-8") == f"before\n{screen}"


@pytest.mark.parametrize("command", ["run", "serve", "bench"])
def test_a_file_that_cannot_be_opened_is_told_before_anything_is_loaded(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    prompt = ["-p", "x"] if command == "run" else []
    assert main([command, "-m", "none.gguf", *prompt, "--log-file", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"paceline: error: cannot write to the log file {tmp_path}: Is a directory\n"


def test_what_ends_a_command_is_in_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    with pytest.raises(ConfigError), writing(options(f"--log-file {file} --no-log-prefix"), serving=True):
        raise ConfigError("it cannot\nbe meant")
    assert file.read_text() == "paceline: error: it cannot be meant\n"
    with pytest.raises(KeyError), writing(options(f"--log-file {file}"), serving=True):
        raise KeyError("a bug")
    assert "Traceback" in file.read_text()
    assert capsys.readouterr().err == "", "main() tells the screen"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with writing(options("--log-file /dev/full"), serving=True):
        log.info("one")
        log.info("two")
    lines = capsys.readouterr().err.splitlines()
    assert [line.endswith(("one", "two")) for line in lines] == [True, False, True]
    assert "cannot write to the log file /dev/full: " in lines[1]


# -- who speaks


def test_warnings_of_flags_go_through_the_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    words = ["run", "-m", str(tmp_path / "none.gguf"), "-p", "x", "-khad", "--log-file", str(file)]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("paceline: warning: -khad has no effect here")
    assert file.read_text() == err
    assert main([*words, "--log-disable"]) == 2
    assert capsys.readouterr().err == err.splitlines(keepends=True)[-1]


def test_levels_of_every_choice() -> None:
    assert levels(options(), serving=False)[0] == logging.WARNING
    assert levels(options("-v -lv 1"), serving=True) == (logging.DEBUG, logging.DEBUG)


def test_a_program_reads_an_object_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "log"
    with writing(options(f"--log-jsonl --log-file {kept}"), serving=True):
        log.warning("a %s\nline", "second")
    out, err = capsys.readouterr()
    line = json.loads(out)
    assert (line["type"], line["level"], line["msg"]) == ("log", "warn", "a second\nline")
    assert line["time"] > 0
    assert kept.read_text() == out
    assert err == ""
    with writing(options("", LLAMA_ARG_LOG_JSONL="1"), serving=False):
        log.warning("x")
    out, err = capsys.readouterr()
    assert out == "", "that is where the answer of `run` goes"
    assert json.loads(err)["msg"] == "x"
