"""paceline.toml: flags kept in a file."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from paceline.cli import build
from paceline.cli.config_file import folders, with_file
from paceline.cli.flags import Parsed, parse
from paceline.cli.main import main
from paceline.errors import ConfigError

README = Path(__file__).parents[2] / "docs" / "server.md"


class Place:
    """A folder with a configuration in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "paceline.toml"

    def read(self, text: str, line: str = "", command: str = "serve", **environ: str) -> Parsed:
        self.file.write_text(text)
        return with_file(parse(shlex.split(line), command, environ), [self.folder])

    def refusal(self, text: str) -> str:
        with pytest.raises(ConfigError) as caught:
            self.read(text)
        return str(caught.value).removeprefix(f"{self.file}: ")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_names_are_those_of_the_flags(place: Place) -> None:
    parsed = place.read(
        "ctx-size = 4096\nctx_size = 2048\nnp = 2\nflash-attn = true\nno-mmap = true\ntemp = 0\n"
        'spec-type = ["suffix"]\nlogit-bias = ["5+1", "6-1"]\nreverse-prompt = "x"'
    )
    assert parsed.file == str(place.file)
    assert parsed.values == {
        "context.n_ctx": 2048,
        "engine.n_slots": 2,
        "context.flash_attn": True,
        "model.use_mmap": False,
        "sampling.temperature": 0.0,
        "engine.spec_types": ("suffix",),
        "sampling.logit_bias": ((5, 1.0), (6, -1.0)),
        "request.stop": ("x",),
    }


def test_flags_win_over_variables_and_those_over_the_file(place: Place) -> None:
    text = 'port = 1\nthreads = 1\ntop-k = 1\nspec-type = ["suffix", "grammar"]'
    parsed = place.read(text, "--port 3 --spec-type ngram-mod", LLAMA_ARG_PORT="2", LLAMA_ARG_THREADS="2")
    assert parsed.values["server.port"] == 3
    assert parsed.values["context.n_threads"] == 2
    assert parsed.values["sampling.top_k"] == 1
    assert parsed.values["engine.spec_types"] == ("ngram-mod",)


def test_sections_are_for_one_command_and_win(place: Place) -> None:
    text = 'temp = 0.1\nhost = "0.0.0.0"\n[run]\ntemp = 0.2\n[serve]\ntemp = 0.3\nport = 5\n'
    assert place.read(text, command="serve").values == {
        "sampling.temperature": 0.3,
        "server.host": "0.0.0.0",
        "server.port": 5,
    }
    assert place.read(text, command="run").values == {"sampling.temperature": 0.2}


def test_names_that_are_none_are_refused_with_the_nearest(place: Place) -> None:
    assert place.refusal("ctx-sise = 5") == "unknown name 'ctx-sise'; did you mean ctx-size?"
    assert place.refusal("[run]\nport = 5").startswith("unknown name 'port' in [run]; did you mean")
    assert place.refusal("[serv]\nport = 5") == "unknown section [serv]; did you mean serve?"
    assert "docs/flags.md" in place.refusal("qqqqqqqqqqqqqqqq = 1")


def test_values_are_checked_as_those_of_flags(place: Place) -> None:
    assert place.refusal('threads = "many"') == "threads: 'many' is not a whole number"
    assert place.refusal("threads = 1979-05-27") == (
        "threads is a date; give a text, a number, true or false, or a list of them"
    )
    assert "is not supported" in place.refusal('mmproj = "x.gguf"')
    assert "cannot read the configuration" in place.refusal("ctx-size = ")
    place.file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        with_file(parse([], "run"), [place.folder])


def test_files_are_named_from_where_the_configuration_lies(place: Place) -> None:
    parsed = place.read('model = "small.gguf"\nlog-file = "/var/log/x"\ndraft-params = "-ngl 3"')
    assert parsed.values["model.path"] == str(place.folder / "small.gguf")
    assert parsed.values["log.file"] == "/var/log/x"
    assert parsed.values["draft.n_gpu_layers"] == 3
    parsed = place.read('lora = ["a.gguf", "/b.gguf"]\nlora-scaled = "c.gguf:0.5"')
    assert parsed.values["model.adapters"] == (
        (str(place.folder / "a.gguf"), 1.0),
        ("/b.gguf", 1.0),
        (str(place.folder / "c.gguf"), 0.5),
    )


def test_flags_that_do_nothing_say_so_here_too(place: Place) -> None:
    assert place.read("perf = true\njinja = true").warnings == [
        f"{place.file}: perf has no effect here: replies and --show-timings have our own, which cost nothing"
    ]


def test_the_file_can_be_named_or_left_alone(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("threads = 7")
    for line, environ in ((f"--config {other}", {}), ("", {"PACELINE_CONFIG": str(other)})):
        assert place.read("threads = 1", line, **environ).values == {"context.n_threads": 7}
    assert place.read("threads = 1", "--no-config").values == {}
    with pytest.raises(ConfigError, match=r"cannot read the configuration missing.toml: No such file"):
        place.read("", "--config missing.toml")


def test_it_is_looked_for_in_the_working_folder_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    users = tmp_path / "config" / "paceline"
    users.mkdir(parents=True)
    assert with_file(parse([], "run"), folders()).values == {}
    (users / "paceline.toml").write_text("threads = 2")
    assert with_file(parse([], "run"), folders()).values == {"context.n_threads": 2}
    (tmp_path / "paceline.toml").write_text("top-k = 3")
    assert with_file(parse([], "run"), folders()).values == {"sampling.top_k": 3}


@pytest.mark.model
def test_a_command_reads_it(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paceline.toml").write_text(f'model = "{target}"\nthreads = 1\nctx-size = 512\n[run]\npredict = 3\n')
    assert main(["run", "-p", "the cat", "--spec-type", "none", "--json", "-lv", "3"]) == 0
    out, err = capsys.readouterr()
    assert '"predicted_n": 3' in out
    assert "settings of paceline.toml" in err
    (tmp_path / "paceline.toml").write_text("thread = 1")
    assert main(["run", "-p", "the cat"]) == 2
    assert "did you mean threads?" in capsys.readouterr().err
    assert main(["run", "--help"]) == 0


def test_the_example_of_the_docs_is_one(place: Place) -> None:
    text = README.read_text().partition("```toml\n")[2].partition("```")[0]
    parsed = place.read(text)
    assert build.settings(parsed).engine.n_slots > 1
    assert parsed.warnings == []
