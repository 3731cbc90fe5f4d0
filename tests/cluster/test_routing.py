"""Where requests are sent: to their prefix, within reason."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.routing import BLOCK, Routes, prefix_hashes
from paceline.engine.request import Request, Tokens


def request(*tokens: int, adapter: str | None = None) -> Request:
    return Request(id=1, prompt=(Tokens(list(tokens)),), adapter=adapter)


def routes(n_replicas: int, *, n_slots: int = 2, n_remembered: int = 1000) -> Routes:
    found = Routes(n_slots, n_remembered)
    for number in range(n_replicas):
        found.join(f"r{number}")
    return found


def send(to: Routes, *hashes: int) -> str:
    chosen = to.choose(hashes, to.loads.keys())
    to.sent(hashes, chosen)
    return chosen


def test_prompts_share_hashes_as_far_as_they_share_blocks() -> None:
    common = list(range(2 * BLOCK))
    first, second = prefix_hashes(request(*common, *range(BLOCK))), prefix_hashes(request(*common, *([7] * BLOCK)))
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    assert len(prefix_hashes(request(*common, 1))) == 2
    assert prefix_hashes(request(*range(BLOCK - 1))) == []


def test_with_another_adapter_nothing_is_shared() -> None:
    tokens = range(2 * BLOCK)
    assert not set(prefix_hashes(request(*tokens))) & set(prefix_hashes(request(*tokens, adapter="0.5")))


def test_a_prefix_stays_at_home_and_strangers_go_where_there_is_least() -> None:
    found = routes(3)
    homes = [send(found, n, 10 * n) for n in (1, 2, 3)]
    assert len(set(homes)) == 3
    for home in homes:
        found.done(home)
    assert [send(found, n, 10 * n + 1) for n in (1, 2, 3)] == homes


def test_the_longest_part_known_decides() -> None:
    found = routes(2, n_slots=9)
    first = send(found, 1, 2)
    found.sent([1, 5], other := next(name for name in found.loads if name != first))
    assert send(found, 1, 2, 3) == first
    assert send(found, 1, 5, 6) == other


def test_a_busy_replica_does_not_collect_everything() -> None:
    found = routes(4)
    homes = [send(found, 1, 100 + n) for n in range(40)]
    assert max(homes.count(name) for name in found.loads) <= 1.25 * 40 / 4 + 1


def test_one_that_has_left_gets_nothing() -> None:
    found = routes(2)
    home = send(found, 1)
    found.leave(home)
    assert send(found, 1) != home


def test_memory_is_bounded() -> None:
    found = routes(2, n_remembered=10)
    for n in range(50):
        send(found, n)
    assert len(found._readers) <= 10


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.booleans()), max_size=200))
def test_what_is_counted_is_what_there_is(steps: list[tuple[int, int, bool]]) -> None:
    found, sent = routes(3, n_remembered=7), []
    for prefix, length, ends in steps:
        sent.append(send(found, *range(100 * prefix, 100 * prefix + length)))
        if ends:
            found.done(sent.pop(0))
    assert found.loads == {name: sent.count(name) for name in found.loads}
    assert sum(map(len, found._readers.values())) == found._n_pairs <= 7
    assert sum(found._n_blocks.values()) == found._n_pairs
