"""What llama.cpp's server tests said of a server, and the table of it beside llama-server's own results."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Result:
    """One test, as `file::name[parameters]`."""

    test: str
    outcome: str
    why: str
    seconds: float

    @property
    def file(self) -> str:
        return Path(self.test.split("::")[0]).name


Results = dict[str, Result]


def read_results(file: Path) -> Results:
    """The worst outcome counts where a test has several (its call and its teardown)."""
    found: Results = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        result = Result(**json.loads(line))
        if result.test not in found or result.outcome == "failed":
            found[result.test] = result
    return found


@dataclass(frozen=True, slots=True)
class Row:
    """A file of the table. Without a control every failure counts as our own."""

    file: str
    tests: int
    passed: int
    control: int | None
    own: list[str]


def rows(results: Results, control: Results | None) -> list[Row]:
    by_file: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results.values():
        if result.outcome != "skipped":
            by_file[result.file].append(result)
    return [row(file, found, control) for file, found in sorted(by_file.items())]


def row(file: str, found: list[Result], control: Results | None) -> Row:
    passed = [result.test for result in found if result.outcome == "passed"]
    failed = [result.test for result in found if result.outcome == "failed"]
    if control is None:
        return Row(file, len(found), len(passed), None, failed)
    fine = {test for test, result in control.items() if result.outcome == "passed"}
    n_fine = sum(result.test in fine for result in found)
    return Row(file, len(found), len(passed), n_fine, [test for test in failed if test in fine])


def table(found: Iterable[Row]) -> str:
    """Markdown, with a line for the sum."""
    lines = list(found)
    known = [line.control for line in lines if line.control is not None]
    total = Row(
        "all",
        sum(line.tests for line in lines),
        sum(line.passed for line in lines),
        sum(known) if known else None,
        [test for line in lines for test in line.own],
    )
    head = ["| file | tests | llama-server | paceline | own failures |", "|---|---:|---:|---:|---:|"]
    return "\n".join([*head, *(worded(line) for line in [*lines, total])])


def worded(line: Row) -> str:
    control = "" if line.control is None else line.control
    name = line.file.removeprefix("test_").removesuffix(".py")
    return f"| {name} | {line.tests} | {control} | {line.passed} | {len(line.own)} |"


def failures(found: Iterable[Row], results: Results) -> str:
    lines = [f"- `{short(test)}`: {results[test].why}" for line in found for test in line.own]
    return "\n".join(["Own failures (llama-server passes):" if lines else "No failures of our own.", *lines])


def short(test: str) -> str:
    return test.removeprefix("unit/test_").replace(".py::test_", "::").replace(".py::", "::")


def as_json(found: Iterable[Row], results: Results, control: Results | None) -> str:
    return json.dumps(
        {
            "rows": [asdict(line) for line in found],
            "paceline": [asdict(result) for result in results.values()],
            "control": None if control is None else [asdict(result) for result in control.values()],
        }
    )
