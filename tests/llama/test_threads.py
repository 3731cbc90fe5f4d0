"""Threads on cores of their own: what the system says of every thread after each context has computed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.config import ContextParams, ModelParams, Settings
from paceline.config.cores import share_cores, usable
from paceline.errors import ConfigError
from tests.tiny import write_model

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no such call"),
]
CORES = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
several = pytest.mark.skipif(len(CORES) < 2, reason="there is one core")
REPORT = """
import json, os, sys
from paceline.cli import build
from paceline.cli.flags import parse
from paceline.cli.machine import settle
from paceline.cli.options import MachineOptions
from paceline.engine.worker import WORKER
from paceline.process.parts import Parts

parsed = parse(sys.argv[1:], "run")
settle(MachineOptions(**parsed.under("machine")))
parts = Parts(build.settings(parsed))
target, draft = parts.context, parts.computing["draft-simple"].main

def bound(context, n):
    batch = context.new_batch()
    context.remove(0, 0)
    batch.add(0, range(n), 0, 1)
    context.decode(batch)
    tasks = [int(name) for name in os.listdir("/proc/self/task")]
    caller = sorted(os.sched_getaffinity(0))
    return caller, sum(sorted(os.sched_getaffinity(task)) == caller for task in tasks)

def all_parts():
    return [bound(context, n) for context in (target, draft) for n in (1, 7)] + [bound(target, 1)]

print(json.dumps([WORKER.call(all_parts), [[c.params.threads, c.params.threads_batch] for c in (target, draft)]]))
parts.close()
"""


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("threads") / "draft.gguf", seed=2, n_ctx=256)


def computed(target: str, draft: str, line: str) -> tuple[list[tuple[list[int], int]], list[list[int]]]:
    """Where the threads were: the target writing and reading, the draft, the target once more; and how many."""
    words = ["-m", target, "-md", draft, "-c", "256", "--spec-policy", "fixed", *line.split()]
    done = subprocess.run([sys.executable, "-c", REPORT, *words], capture_output=True, text=True, check=True)
    assert "failed to set affinity" not in done.stderr
    where, threads = json.loads(done.stdout)
    return [(cores, n) for cores, n in where], threads


def mask(*cores: int) -> str:
    return hex(sum(1 << core for core in cores))


@several
@pytest.mark.parametrize("n_threads", [1, 2])
def test_each_part_has_its_cores(target: str, draft: str, n_threads: int) -> None:
    one, two = CORES[:2]
    where, _ = computed(target, draft, f"-t {n_threads} -C {mask(one)} -Cd {mask(two)} -Cbd {mask(one, two)}")
    assert [cores for cores, _ in where] == [[one], [one], [two], [one, two], [one]]
    assert all(n >= n_threads for _, n in where)


@several
def test_reading_can_have_more(target: str, draft: str) -> None:
    one, two = CORES[:2]
    where, threads = computed(target, draft, f"-C {mask(one)} -Crb {one}-{two}")
    both = sorted(CORES[: CORES.index(two) + 1])
    assert [cores for cores, _ in where] == [[one], both, [one], both, [one]]
    assert threads == [[1, 2], [1, 2]]


@several
def test_strict_gives_each_thread_one_core(target: str, draft: str) -> None:
    where, _ = computed(target, draft, "-t 2 --cpu-strict-draft 1")
    plain, _, strict, reading, last = (cores for cores, _ in where)
    assert plain == last == list(CORES)
    assert len(strict) == len(reading) == 1


def test_without_such_flags_nothing_is_bound(target: str, draft: str) -> None:
    where, _ = computed(target, draft, "-t 2")
    assert {tuple(cores) for cores, _ in where} == {CORES}


def shared(context: ContextParams, draft: ContextParams) -> tuple[ContextParams, ContextParams]:
    found = share_cores(Settings(model=ModelParams(path="-"), context=context, draft_context=draft))
    return found.context, found.draft_context


def test_what_is_not_said_is_like_the_rest() -> None:
    core = CORES[-1:]
    assert shared(ContextParams(), ContextParams()) == (ContextParams(), ContextParams())
    target, draft = shared(ContextParams(cores_batch=core), ContextParams())
    assert (target.cores, target.cores_batch, draft.cores, draft.cores_batch) == (CORES, core, CORES, core)
    target, draft = shared(ContextParams(), ContextParams(cores=core))
    assert (target.cores, target.cores_batch, draft.cores, draft.cores_batch) == (CORES, CORES, core, core)
    target, draft = shared(ContextParams(strict=True), ContextParams(strict_batch=False))
    assert (target.strict, target.strict_batch, draft.strict, draft.strict_batch) == (True, True, True, False)


def test_threads_are_as_many_as_cores() -> None:
    params = ContextParams(cores=(0, 1, 2), cores_batch=(0, 1, 2, 3))
    assert (params.threads, params.threads_batch) == (3, 4)
    assert ContextParams(cores=(0,), n_threads=2).threads_batch == 2
    assert ContextParams(cores=(0,), cores_batch=(0, 1), n_threads=2, n_threads_batch=5).threads_batch == 5


def test_cores_that_are_not_there() -> None:
    assert usable((*CORES, 1000)) == CORES
    before = os.sched_getaffinity(0)
    with pytest.raises(ConfigError, match=r"of the cores 1000 to 1001 there is none to run on"):
        usable((1000, 1001))
    assert os.sched_getaffinity(0) == before


def test_other_cores_are_measured_anew(target: str) -> None:
    from paceline.llama.context import fingerprint

    model = ModelParams(path=str(Path(target)))
    names = {fingerprint(model, ContextParams(n_threads=1, cores=cores)) for cores in ((), (0,), (1,))}
    assert len(names) == 3
