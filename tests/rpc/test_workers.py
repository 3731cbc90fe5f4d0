"""A model over several workers: the same words, its parts where they were wanted, and one line for what goes wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest

from benchmarks.workers import Worker, free_port, lending
from paceline.models import cache_folder

pytestmark = pytest.mark.model

ASKED = ["-p", "on and on", "-n", "60", "--temp", "0", "--ignore-eos", "-t", "1", "-c", "1024", "--json"]


def paceline(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paceline", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def text(*words: str) -> str:
    done = paceline("run", *ASKED, *words)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["text"])


def addresses(workers: list[Worker]) -> str:
    return ",".join(worker.endpoint for worker in workers)


def test_exact_text_is_that_of_one_machine(two: list[Worker], deep: str, draft: str) -> None:
    alone = text("-m", deep, "--exact")
    one = ["--rpc", addresses(two), "--rpc-draft", f"localhost:{two[1].port}"]
    assert text("-m", deep, "-md", draft, "--exact", *one) == alone
    assert text("-m", deep, "--exact", "--rpc", addresses(two), "--spec-type", "none") == alone


def parts(*words: str) -> dict[str, float]:
    """MiB of weights by memory, as libllama's log has them."""
    done = paceline("run", *ASKED, "-n", "1", "-lv", "4", *words)
    assert done.returncode == 0, done.stderr
    return {
        name: float(mib)
        for name, mib in re.findall(r"load_tensors: +(\S+) model buffer size = +([0-9.]+)", done.stderr)
    }


def test_parts_lie_where_they_were_wanted(two: list[Worker], deep: str) -> None:
    rpc = ["-m", deep, "--rpc", addresses(two)]
    first, second = (f"RPC0[{worker.endpoint}]" for worker in two)
    shared = parts(*rpc)
    assert min(shared[first], shared[second]) > 0
    uneven = parts(*rpc, "-ts", "5,1")
    assert uneven[first] > 2 * uneven[second]
    assert second not in parts(*rpc, "-dev", "RPC0")
    assert not {first, second} & set(parts(*rpc, "-ngl", "0"))
    moved = parts(*rpc, "-ts", "1,0", "-ot", "ffn_down=RPC1")
    assert 0 < moved[second] < moved[first]


def test_the_draft_is_not_put_on_the_targets_workers(two: list[Worker], deep: str, draft: str) -> None:
    on_first = parts("-m", deep, "-md", draft, "--rpc", two[0].endpoint)[f"RPC0[{two[0].endpoint}]"]
    assert on_first == parts("-m", deep, "--rpc", two[0].endpoint)[f"RPC0[{two[0].endpoint}]"]
    found = parts("-m", deep, "-md", draft, "--rpc-draft", two[1].endpoint)
    assert 0 < found[f"RPC0[{two[1].endpoint}]"] < on_first


def test_cost_curves_name_the_workers(two: list[Worker], deep: str) -> None:
    """Another worker at another address is another machine, with costs of its own."""
    folder = cache_folder() / "costs"
    for worker in two:
        text("-m", deep, "--rpc", worker.endpoint)
    text("-m", deep)
    kept = [file.read_text() for file in folder.glob("deep-*.json") if not file.name.endswith(".exact.json")]
    for worker in two:
        assert any(f"RPC0 {worker.endpoint} " in curve for curve in kept)
    assert any("RPC" not in curve for curve in kept)


def test_devices_are_listed_in_the_order_of_their_names(two: list[Worker]) -> None:
    done = paceline("run", "--list-devices", "--rpc", two[1].endpoint, "--rpc-draft", two[0].endpoint)
    lines = done.stdout.splitlines()[1:]
    assert [line.split(" (")[0] for line in lines] == [f"  RPC{i}: {two[1 - i].endpoint}" for i in range(2)]
    assert all(re.search(r"\([1-9][0-9]* MiB, ", line) for line in lines)


def error(*words: str) -> str:
    done = paceline("run", *ASKED, *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_what_goes_wrong_is_one_line(two: list[Worker], deep: str) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    assert f"{nobody} cannot be reached (Connection refused)" in error(
        "-m", deep, "--rpc", f"{two[0].endpoint},{nobody}"
    )
    assert "there is no device RPC7; this build of libllama has RPC0, RPC1" in error(
        "-m", deep, "--rpc", addresses(two), "-dev", "RPC7"
    )
    unused = ["-m", deep, "--rpc", addresses(two), "-dev", "RPC0", "-ot", "ffn_down=RPC1"]
    assert "-ot puts tensors on RPC1, which this model does not use" in error(*unused)


def test_a_worker_has_one_client_at_a_time(deep: str) -> None:
    with lending(1) as [worker]:
        words = [sys.executable, "-m", "paceline", "run", *ASKED[:-1], "-n", "-1", "-m", deep, "--rpc", worker.endpoint]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as busy:
            assert busy.stdout
            assert busy.stdout.read(1)
            busy.send_signal(signal.SIGSTOP)  # it keeps its line
            try:
                assert "a worker has one at a time" in error("-m", deep, "--rpc", worker.endpoint)
            finally:
                busy.kill()
