"""Several engines that look like one, in processes of the test's own: what Ray adds is in `test_serve.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from paceline.cluster.fleet import Fleet
from paceline.config import Settings
from paceline.errors import EngineClosed, ModelError, QueueFull
from paceline.generation import Generation
from paceline.library import Engine
from tests.cluster.place import Processes
from tests.server.live import live, settings

PROMPT = list(range(100))
LONG = 300


@contextmanager
def fleet(wanted: Settings, n_replicas: int = 2) -> Iterator[tuple[Engine, Processes]]:
    processes = Processes(wanted, n_replicas)
    with Engine.on(wanted, Fleet(processes, n_replicas)) as engine:
        yield engine, processes


@pytest.fixture(scope="module")
def exact(target: str) -> Settings:
    return settings(target, n_ctx=512, n_slots=2, exact=True)


@pytest.fixture(scope="module")
def pair(exact: Settings) -> Iterator[tuple[Engine, Processes]]:
    with fleet(exact) as both:
        yield both


def write(engine: Engine, first: int, n: int = LONG) -> Generation:
    return engine.generate([first, *PROMPT], max_tokens=n, temperature=1.0, seed=first, ignore_eos=True)


def homes(engine: Engine) -> list[int]:
    return [replica.n_running for replica in engine.health.replicas]


def until(done: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


@pytest.mark.model
def test_it_looks_like_one_engine(pair: tuple[Engine, Processes], exact: Settings) -> None:
    engine, _ = pair
    with Engine.from_settings(exact) as alone:
        assert engine.tokenize("the end") == alone.tokenize("the end")
        assert engine.vocab.eog == alone.vocab.eog
        assert [write(engine, n, 20).text() for n in range(4)] == [write(alone, n, 20).text() for n in range(4)]
    assert (engine.n_slots, engine.n_ctx) == (4, 512)


@pytest.mark.model
def test_slots_are_numbered_through_and_say_where_they_are(pair: tuple[Engine, Processes]) -> None:
    engine, _ = pair
    assert [(slot.id, slot.replica) for slot in engine.status().slots] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    generation = engine.generate(PROMPT, max_tokens=2, slot=3)
    generation.text()
    assert generation.slot == 3
    assert engine.erase_slot(3) > 0


@pytest.mark.model
def test_the_same_prefix_goes_to_the_same_replica(pair: tuple[Engine, Processes]) -> None:
    engine, _ = pair
    before = engine.health.replicas
    for last in range(6):
        engine.generate([*PROMPT, 7, 7, 7, last], max_tokens=1).text()
    had = sorted(b.n_requests - a.n_requests for a, b in zip(before, engine.health.replicas, strict=True))
    assert had == [0, 6]


@pytest.mark.model
def test_a_cancelled_request_frees_its_slot(pair: tuple[Engine, Processes]) -> None:
    engine, _ = pair
    generation = write(engine, 5)
    next(iter(generation))
    generation.cancel()
    until(lambda: all(slot.request is None for slot in engine.status().slots))
    until(lambda: homes(engine) == [0, 0])


@pytest.mark.model
def test_a_killed_replica_is_not_missed(target: str) -> None:
    """Requests go on elsewhere, to the byte; another replica takes the dead one's number."""
    exact = settings(target, n_ctx=1536, n_slots=2, exact=True)  # nobody is done before the kill
    with Engine.from_settings(exact) as alone:
        wanted = [write(alone, n, 1200).text() for n in range(4)]
    with fleet(exact) as (engine, processes):
        generations = [write(engine, n, 1200) for n in range(4)]
        until(lambda: all(homes(engine)) and all(len(g.request.prompt) for g in generations))
        until(lambda: sum(slot.n_generated > 3 for slot in engine.status().slots) >= 2)
        processes.kill("replica-0")
        assert [generation.text() for generation in generations] == wanted
        assert [replica.ready for replica in engine.health.replicas] == [False, True]
        processes.replace("replica-0")
        until(lambda: all(replica.ready for replica in engine.health.replicas))
        assert engine.health.n_restarts == 1
        assert [write(engine, n, 1200).text() for n in range(4)] == wanted


@pytest.mark.model
def test_without_any_replica_requests_wait(exact: Settings) -> None:
    with fleet(exact, 1) as (engine, processes):
        wanted = write(engine, 1).text()
        processes.kill("replica-0")
        until(lambda: not engine.health.ready)
        waiting, given_up = write(engine, 1), write(engine, 2)
        given_up.cancel()
        assert given_up.text() == ""
        processes.replace("replica-0")
        assert waiting.text() == wanted


@pytest.mark.model
def test_what_runs_at_the_end_is_told(target: str) -> None:
    with fleet(settings(target, n_ctx=8192, n_slots=1), 1) as (engine, _):
        generation = write(engine, 1, 8000)
    with pytest.raises(EngineClosed):
        generation.text()


@pytest.mark.model
def test_a_model_that_cannot_be_opened_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"broken\.gguf"), fleet(settings(str(tmp_path / "broken.gguf"))):
        pass


@pytest.mark.model
def test_more_than_the_queue_holds_are_told_to_come_back(target: str) -> None:
    wanted = settings(target, n_ctx=8192, n_slots=1, n_queue=2)
    with fleet(wanted) as (engine, _):
        generations = [write(engine, n, 8000) for n in range(4)]
        with pytest.raises(QueueFull):
            write(engine, 4)
        for generation in generations:
            generation.cancel()


@pytest.mark.model
def test_the_server_says_which_replica(exact: Settings) -> None:
    placement = Processes(exact, 2)
    with live(exact, open_backend=lambda _, on_progress: Fleet(placement, 2, on_progress)) as server:
        bodies = [server.post("/completion", prompt=f"{n} " + 80 * "the ", n_predict=4).json() for n in range(6)]
        assert {body["id_slot"] // 2 for body in bodies} == {0, 1}
        assert [replica["status"] for replica in server.http.get("/health").json()["replicas"]] == ["ok", "ok"]
        assert [slot["replica"] for slot in server.http.get("/slots").json()] == [0, 0, 1, 1]
        lines = server.http.get("/metrics").text.splitlines()
        counted = [int(line.split()[1]) for line in lines if line.startswith("paceline:replica_requests_total{")]
        assert sum(counted) == 6 and min(counted) > 0
        read = [int(line.split()[1]) for line in lines if line.startswith("paceline:replica_prompt_tokens_total{")]
        total = next(line for line in lines if line.startswith("llamacpp:prompt_tokens_total "))
        assert sum(read) == float(total.split()[1])


@pytest.mark.model
def test_nobody_without_the_word_is_served(pair: tuple[Engine, Processes]) -> None:
    """The port may be in reach of others."""
    _, processes = pair
    place = next(iter(processes._places.values()))
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://{place.host}:{place.port}/")
