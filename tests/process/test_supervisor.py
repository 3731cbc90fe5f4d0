"""The engine in a child process that dies: the same words, nothing twice, and trouble stays with who made it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paceline import Engine, Generation, Grammar, PacelineError
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.errors import ConfigError, ContextFull, EngineClosed, EngineDied, ModelError, PromptError, QueueFull
from paceline.process.supervisor import ChildEngine

pytestmark = pytest.mark.model

DEADLY = Path(__file__).parent / "deadly"
AWAY = Path(__file__).parent / "away"
OPTIONS: dict[str, Any] = {"n_ctx": 2048, "n_slots": 4, "n_threads": 1, "exact": True}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
ASKED: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.8, "seed": 3},
    "penalties": {"temperature": 0.8, "seed": 4, "repeat_penalty": 1.3, "dry_multiplier": 0.8, "presence_penalty": 0.5},
    "mirostat": {"temperature": 0.8, "seed": 5, "mirostat": 2},
    "xtc": {"temperature": 1.0, "seed": 6, "xtc_probability": 0.5},
    "grammar": {"temperature": 0.8, "seed": 7, "grammar": Grammar.json_schema(SCHEMA)},
    "logprobs": {"temperature": 0.8, "seed": 8, "logprobs": 3},
}


def child(engine: Engine) -> ChildEngine:
    assert isinstance(engine.backend, ChildEngine)
    return engine.backend


def pid_of(engine: Engine) -> int:
    """The child's, as soon as there is one."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if pid := child(engine).pid:
            return pid
        time.sleep(0.01)
    raise AssertionError("no child")


def kill(engine: Engine) -> None:
    os.kill(pid_of(engine), signal.SIGKILL)


def restarted(engine: Engine, n: int) -> None:
    until = time.monotonic() + 60
    while engine.health.n_restarts < n:
        assert time.monotonic() < until, "it was not noticed"
        time.sleep(0.002)


def start(engine: Engine, n: int = 120) -> dict[str, Generation]:
    return {
        name: engine.generate(f"{name}: on and on", max_tokens=n, ignore_eos="grammar" not in options, **options)
        for name, options in ASKED.items()
    }


def outcome(generation: Generation) -> tuple[Any, ...]:
    """All that must not depend on what happened on the way."""
    pieces = [piece for chunk in generation for piece in chunk.pieces]
    finish = generation.finish
    assert finish
    assert finish.timings.predicted_n == len(pieces)
    tokens = [(p.text, p.token.id, p.token.logprob, p.token.top_logprobs) for p in pieces]
    return tokens, finish.reason, finish.stop, finish.timings.cache_n + finish.timings.prompt_n


def test_texts_go_on_where_they_were(target: str) -> None:
    with Engine(target, **OPTIONS) as here:
        expected = {name: outcome(generation) for name, generation in start(here).items()}
        text = "".join(piece[0] for piece in expected["sampled"][0])
        stop = text[60:64]
        ended = outcome(here.generate("sampled: on and on", max_tokens=120, stop=[stop], **ASKED["sampled"]))
    assert ended[1:3] == ("stop", stop)
    with Engine(target, **OPTIONS, process=True) as engine:
        running = start(engine)
        with_stop = engine.generate("sampled: on and on", max_tokens=120, stop=[stop], **ASKED["sampled"])
        for n_kills, n_written in enumerate((3, 30, 60), 1):
            while len(child(engine)._pending) and longest(engine) < n_written:
                time.sleep(0.002)
            kill(engine)
            restarted(engine, n_kills)  # or the same process might be killed twice
        assert {name: outcome(generation) for name, generation in running.items()} == expected
        assert outcome(with_stop) == ended
        assert engine.health.n_restarts == 3
        assert "SIGKILL" in engine.health.reason


def test_texts_longer_than_their_slot_go_on_too(target: str) -> None:
    settings = Settings(
        model=ModelParams(path=target),
        context=ContextParams(n_ctx=256, n_threads=1),
        engine=EngineParams(exact=True, context_shift=True, spec_types=("suffix",)),
    )
    wish: dict[str, Any] = {"max_tokens": 1500, "ignore_eos": True, "n_keep": 4, **ASKED["sampled"]}
    with Engine.from_settings(settings) as here:
        expected = outcome(here.generate("on and on", **wish))
    with Engine.from_settings(settings, process=True) as engine:
        generation = engine.generate("on and on", **wish)
        while longest(engine) < 300:
            assert not generation.finish, "it was over before anybody looked"
            time.sleep(0.002)
        kill(engine)
        assert outcome(generation) == expected
        assert engine.health.n_restarts == 1


def longest(engine: Engine) -> int:
    return max((len(getattr(live, "tokens", ())) for live in list(child(engine)._pending.values())), default=0)


@pytest.mark.parametrize("when", ["waiting", "done"])
def test_a_death_before_or_after_an_answer_changes_nothing(target: str, when: str) -> None:
    with Engine(target, n_ctx=512, n_threads=1, process=True) as engine:
        first = engine.generate("hello", max_tokens=20, temperature=0).text()
        if when == "done":
            kill(engine)
        generation = engine.generate("hello", max_tokens=20, temperature=0)
        if when == "waiting":
            kill(engine)
        assert generation.text() == first


@contextmanager
def deadly(target: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Iterator[Engine]:
    monkeypatch.setenv("PYTHONPATH", str(DEADLY))
    with Engine(target, **{"n_ctx": 2048, "n_slots": 3, "n_threads": 1, "process": True} | options) as engine:
        yield engine


@pytest.mark.parametrize(
    ("poison", "n_deaths"), [([7, 7, 7], 3), ([9, 9, 9], 4), ([5, 5, 5], 3)], ids=["stuck", "creeping", "at once"]
)
def test_who_ends_the_engine_again_and_again_is_given_up_and_takes_nobody_along(
    target: str, monkeypatch: pytest.MonkeyPatch, poison: list[int], n_deaths: int
) -> None:
    with Engine(target, n_ctx=2048, n_threads=1) as here:
        expected = here.generate("innocent", max_tokens=150, temperature=0, ignore_eos=True).text()
    with deadly(target, monkeypatch) as engine:
        guilty = engine.generate(poison, max_tokens=50, temperature=0, ignore_eos=True)
        others = [engine.generate("innocent", max_tokens=150, temperature=0, ignore_eos=True) for _ in range(3)]
        with pytest.raises(EngineDied, match=r"3 times over this request.*SIGABRT"):
            guilty.text()
        assert [other.text() for other in others] == [expected] * 3
        assert engine.health.n_restarts == n_deaths
        with pytest.raises(EngineDied, match="3 times"):
            engine.tokenize("deadly")
        assert engine.generate("innocent", max_tokens=150, temperature=0, ignore_eos=True).text() == expected


@pytest.mark.parametrize(
    ("prompt", "why"), [([8, 8, 8], "the computing thread ended: SystemExit"), ([6, 6, 6], "nothing was computed")]
)
def test_a_computing_thread_that_ends_or_hangs_is_replaced(
    target: str, monkeypatch: pytest.MonkeyPatch, prompt: list[int], why: str
) -> None:
    asked: dict[str, Any] = {"max_tokens": 40, "temperature": 0, "ignore_eos": True}
    with Engine(target, n_ctx=2048, n_threads=1) as here:
        expected = [here.generate(prompt, **asked).text(), here.generate("innocent", **asked).text()]
    with deadly(target, monkeypatch) as engine:
        running = [engine.generate(prompt, **asked), engine.generate("innocent", **asked)]
        assert [generation.text() for generation in running] == expected
        assert engine.health.n_restarts == 1
        assert why in engine.health.reason


def test_an_engine_that_cannot_be_started_again_says_so_and_comes_back(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.process.supervisor.DELAYS", (0.0, 0.05))
    path = tmp_path / "model.gguf"
    shutil.copy(target, path)
    with Engine(str(path), n_ctx=16384, n_threads=1, process=True) as engine:
        generation = engine.generate("on and on", temperature=0, ignore_eos=True, max_tokens=16000)
        path.rename(tmp_path / "elsewhere.gguf")
        kill(engine)
        with pytest.raises(EngineDied, match="model file not found"):
            generation.text()
        assert not engine.health.ready
        with pytest.raises(EngineDied, match="model file not found"):
            engine.generate("no", max_tokens=1)
        (tmp_path / "elsewhere.gguf").rename(path)
        pid_of(engine)
        assert engine.generate("yes", max_tokens=5).text() is not None


def test_requests_wait_for_a_machine_that_is_away(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = tmp_path / "away"
    monkeypatch.setattr("paceline.process.supervisor.DELAYS", (0.0, 0.05))
    monkeypatch.setenv("PYTHONPATH", str(AWAY))
    monkeypatch.setenv("AWAY", str(away))
    options: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": 400}
    with Engine(target, n_ctx=16384, n_threads=1, process=True) as engine:
        expected = engine.generate("on and on", **options).text()
        generation = engine.generate("on and on", **options)
        away.touch()
        kill(engine)
        until = time.monotonic() + 60
        while engine.health.n_restarts < 5:  # more than a model that cannot be loaded is given
            assert time.monotonic() < until
            time.sleep(0.02)
        assert "waits to be started again: the RPC worker there:1 cannot be reached" in engine.health.reason
        assert not engine.health.ready
        away.unlink()
        assert generation.text() == expected
        assert "SIGKILL" in engine.health.reason
        monkeypatch.setattr("paceline.process.supervisor.AWAY", 0.1)
        away.touch()
        lost = engine.generate("on and on", **{**options, "max_tokens": 16000})
        kill(engine)
        with pytest.raises(EngineDied, match="there:1 cannot be reached"):
            lost.text()


def test_what_is_wrong_is_told_as_it_is_in_one_process(target: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not found"):
        Engine(str(tmp_path / "missing.gguf"), process=True)
    with Engine(target, n_ctx=256, n_threads=1, process=True) as engine:
        with pytest.raises(ContextFull, match="300 tokens"):
            engine.generate([65] * 300)
        with pytest.raises(PromptError, match="UTF-8"):
            engine.generate(b"\xff\xfe")
        with pytest.raises(ConfigError):
            engine.generate("x", grammar=Grammar.gbnf("root ::= missing-rule")).text()
        assert engine.generate("x", max_tokens=3).text() is not None
        vector = engine.embed("hello")
        assert abs(sum(x * x for x in vector) - 1) < 1e-3
    with pytest.raises(EngineClosed):
        engine.tokenize("late")


def test_the_queue_is_bounded(target: str) -> None:
    from paceline.config import ContextParams, EngineParams, ModelParams, Settings

    context = ContextParams(n_ctx=16384, n_threads=1)
    settings = Settings(model=ModelParams(path=target), context=context, engine=EngineParams(n_queue=1))
    with Engine.from_settings(settings, process=True) as engine:
        running = [engine.generate("on and on", ignore_eos=True) for _ in range(2)]
        with pytest.raises(QueueFull, match="1 requests are waiting"):
            engine.generate("one too many")
        for generation in running:
            generation.cancel()
            generation.text()
            assert generation.finish
            assert generation.finish.reason == "cancelled"
        assert engine.generate("room again", max_tokens=2).text() is not None


def test_cancelling_while_there_is_no_child(target: str) -> None:
    with Engine(target, n_ctx=16384, n_threads=1, process=True) as engine:
        generation = engine.generate("on and on", ignore_eos=True)
        kill(engine)
        generation.cancel()
        generation.text()
        assert generation.finish
        assert generation.finish.reason == "cancelled"


def test_closing_ends_what_runs_and_leaves_no_process(target: str) -> None:
    engine = Engine(target, n_ctx=16384, n_threads=1, process=True)
    generation = engine.generate("on and on", ignore_eos=True)
    pid = pid_of(engine)
    engine.close()
    with pytest.raises(EngineClosed):
        generation.text()
    assert not Path(f"/proc/{pid}").exists()
    engine.close()


def test_a_child_does_not_outlive_its_front(target: str) -> None:
    program = (
        "import sys, time; from paceline import Engine\n"
        f"engine = Engine({target!r}, n_ctx=512, n_threads=1, process=True)\n"
        "print(engine.backend.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as front:
        assert front.stdout
        pid = int(front.stdout.readline())
        front.kill()
    until = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_a_front_without_an_engine_of_its_own_never_loads_libllama(target: str) -> None:
    program = (
        f"import sys; from paceline import Engine\n"
        f"with Engine({target!r}, n_ctx=512, n_threads=1, process=True) as engine:\n"
        "    engine.generate('x', max_tokens=3).text()\n"
        "print(sorted({'llama_cpp', 'llguidance', 'paceline.planner.policy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_errors_cross_by_name() -> None:
    from paceline.errors import EngineFailed, named

    assert isinstance(named("ContextFull", "no room"), ContextFull)
    unforeseen = named("ZeroDivisionError", "division by zero")
    assert isinstance(unforeseen, EngineFailed)
    assert isinstance(unforeseen, PacelineError)
    assert "ZeroDivisionError" in str(unforeseen)
