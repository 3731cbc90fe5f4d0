"""The worker: one thread for everybody, which ends when nobody needs it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep

import pytest

from paceline.engine.worker import Worker
from paceline.errors import EngineFailed


def until(condition: object, seconds: float = 60.0) -> bool:
    assert callable(condition)
    end = monotonic() + seconds
    while not condition() and monotonic() < end:
        sleep(0.001)
    return bool(condition())


class Countdown:
    """Has something to do for so many turns."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.threads: set[int] = set()

    def turn(self) -> bool:
        self.threads.add(threading.get_ident())
        self.n = max(0, self.n - 1)
        return self.n > 0


def test_everybody_has_turns_on_the_same_thread() -> None:
    worker, a, b = Worker(), Countdown(50), Countdown(30)
    worker.join(a.turn)
    worker.join(b.turn)
    worker.wake()
    assert until(lambda: a.n == b.n == 0)
    assert a.threads == b.threads == {worker.call(threading.get_ident)}
    worker.leave(a.turn)
    worker.leave(b.turn)


def test_it_sleeps_until_woken() -> None:
    worker, counter = Worker(), Countdown(0)
    worker.join(counter.turn)
    assert worker.call(lambda: 1) == 1
    counter.n = 5
    worker.wake()
    assert until(lambda: counter.n == 0)
    worker.leave(counter.turn)


def test_the_thread_ends_with_its_last_user_and_comes_back() -> None:
    worker, counter = Worker(), Countdown(0)
    assert worker.call(lambda: 2) == 2
    assert until(lambda: worker._thread is None)
    worker.join(counter.turn)
    thread = worker._thread
    worker.leave(counter.turn)
    assert thread
    assert until(lambda: not thread.is_alive())
    assert worker.call(lambda: 3) == 3


def test_a_call_s_error_is_the_caller_s_and_calls_may_call() -> None:
    worker = Worker()
    with pytest.raises(ZeroDivisionError):
        worker.call(lambda: 1 // 0)
    assert worker.call(lambda: worker.call(lambda: 4)) == 4


def test_nobody_waits_for_a_thread_that_ended() -> None:
    worker, heard = Worker(), list[BaseException]()
    entered, go = threading.Event(), threading.Event()

    def turn() -> bool:
        entered.set()
        go.wait(60)
        raise ZeroDivisionError("a bug")

    worker.join(turn, heard.append)
    worker.wake()
    assert entered.wait(60)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(worker.call, lambda: 1)
        assert until(lambda: len(worker._calls) == 1)
        go.set()
        with pytest.raises(EngineFailed, match="ZeroDivisionError: a bug"):
            asked.result(60)
    assert [str(error) for error in heard] == ["the computing thread ended: ZeroDivisionError: a bug"]
    assert worker.call(lambda: 2) == 2
    assert worker.alive
