"""llama-server's own list of names and variables, against our table: none is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.flags import flags_of, parse
from paceline.cli.help import markdown
from paceline.cli.table.flag import Flag, Kind, Support
from paceline.errors import ConfigError
from tests.cli.upstream_names import flags

HERE = Path(__file__).parent
SERVE = flags_of("serve")


def upstream() -> list[list[str]]:
    lines = (HERE / "upstream_names.txt").read_text().splitlines()
    return [line.split() for line in lines if not line.startswith("#")]


def words(*, variables: bool) -> list[str]:
    return [word for line in upstream() for word in line if word.startswith("-") != variables]


def test_every_name_is_known() -> None:
    names = words(variables=False)
    assert len(names) >= 412
    assert {name for name in names if name not in SERVE} == set()


def test_every_variable_is_that_of_its_flag() -> None:
    for line in upstream():
        names = [word for word in line if word in SERVE]
        for variable in (word for word in line if not word.startswith("-")):
            assert variable in SERVE[names[0]].env.split(), line


def test_names_of_one_flag_are_one_flag() -> None:
    """What turns it off too."""
    apart = [line for line in upstream() if len({SERVE[name] for name in line if name in SERVE}) > 1]
    assert apart == []


@pytest.mark.parametrize("status", [Support.IGNORED, Support.REFUSED])
def test_what_does_not_act_says_why(status: Support) -> None:
    table = markdown()
    for flag in set(SERVE.values()):
        if flag.status is status:
            assert flag.why
            assert not flag.why.endswith(".")
            assert flag.why in table


def test_one_line_at_the_start_and_none_for_what_is_always_so() -> None:
    parsed = parse(["--perf", "--perf", "--jinja", "--offline", "-nocb", "--no-agent", "--fit", "off"], "serve")
    assert len(parsed.warnings) == 2
    assert parsed.warnings[0].startswith("--perf has no effect here: replies and --show-timings")
    assert parsed.warnings[1] == "-nocb has no effect here: always so"


def test_router_mcp_and_tools_stay_out_of_the_server_alone() -> None:
    for words, environ in ((["--models-dir", "x"], {}), ([], {"LLAMA_ARG_TOOLS": "all"}), (["--agent"], {})):
        with pytest.raises(ConfigError, match="is not supported: "):
            parse(words, "serve", environ)
    assert parse([], "run", {"LLAMA_ARG_TOOLS": "all"}).values == {}, "that is for servers"


def example(flag: Flag) -> str:
    """A value that the flag takes, as llama-server's own help would have it."""
    for text in (*flag.choices, "1", "0-1", "a=int:1", "a:1", "1+1", "{}", "top_k", "none"):
        try:
            flag.value(text)
        except ValueError:
            continue
        return text
    raise AssertionError(flag.names)


def test_every_variable_acts_as_its_flag_does() -> None:
    """The same values by either way; the flag wins."""
    checked = 0
    for flag in set(SERVE.values()):
        if flag.status is not Support.REAL:
            continue
        for variable in flag.env.split():
            text = "true" if flag.kind is Kind.FLAG else example(flag)
            name = flag.names.split()[0]
            by_flag = parse([f"{name}={text}"], "serve").values
            assert parse([], "serve", {variable: text}).values == by_flag, variable
            assert parse([f"{name}={text}"], "serve", {variable: text}).values == by_flag
            checked += 1
    assert checked > 90


def test_the_list_is_read_off_the_help() -> None:
    help = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-e,    --escape, --no-escape            whether to process escapes
                                        --not-this-one
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off')
                                        (env: LLAMA_ARG_FLASH_ATTN)
"""
    assert list(flags(help.splitlines())) == [
        ["-h", "--help", "--usage"],
        ["-e", "--escape", "--no-escape"],
        ["-fa", "--flash-attn", "LLAMA_ARG_FLASH_ATTN"],
    ]
