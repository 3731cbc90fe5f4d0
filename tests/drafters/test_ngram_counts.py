from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.drafters.ngram_counts import (
    N_FOLLOWERS,
    Followers,
    NgramCounts,
    build_static,
    read_counts,
    write_counts,
)
from paceline.errors import ConfigError
from tests.drafters.lookup import histories

GOOD = struct.pack("<4i i 2i 2i", 7, 8, -1, -1, 2, 5, 3, 6, 1) + struct.pack("<4i i 2i", 1, 2, 3, 4, 1, 9, 2)


def table(counts: NgramCounts) -> dict[tuple[int, ...], dict[int, int]]:
    return {ngram: dict(followers.counts) for ngram, followers in counts.items()}


def test_reads_the_upstream_format(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(GOOD)
    assert table(read_counts(str(tmp_path / "cache"))) == {(7, 8): {5: 3, 6: 1}, (1, 2, 3, 4): {9: 2}}


def test_writes_the_upstream_format(tmp_path: Path) -> None:
    counts = NgramCounts()
    counts.add((7, 8), 6, 2)
    counts.add((7, 8), 5, 3)
    write_counts(str(tmp_path / "cache"), counts)
    assert (tmp_path / "cache").read_bytes() == struct.pack("<9i", 7, 8, -1, -1, 2, 6, 2, 5, 3)


def test_an_empty_file_is_an_empty_cache(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    assert len(read_counts(str(tmp_path / "cache"))) == 0


@pytest.mark.parametrize("n_bytes", [n for n in range(1, len(GOOD)) if n != 36])
def test_a_cut_file_is_refused_by_name(tmp_path: Path, n_bytes: int) -> None:
    (tmp_path / "cut.bin").write_bytes(GOOD[:n_bytes])
    with pytest.raises(ConfigError, match=r"cut\.bin"):
        read_counts(str(tmp_path / "cut.bin"))


@pytest.mark.parametrize(
    "numbers",
    [
        (-1, -1, -1, -1, 1, 5, 1),
        (-1, 7, -1, -1, 1, 5, 1),
        (7, -1, 8, -1, 1, 5, 1),
        (7, -2, -1, -1, 1, 5, 1),
        (7, -1, -1, -1, 1, -5, 1),
        (7, -1, -1, -1, 1, 5, 0),
        (7, -1, -1, -1, 0),
        (7, -1, -1, -1, -1, 5, 1),
        (7, -1, -1, -1, 2**31 - 1, 5, 1),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    (tmp_path / "bad.bin").write_bytes(struct.pack(f"<{len(numbers)}i", *numbers))
    with pytest.raises(ConfigError, match=r"bad\.bin"):
        read_counts(str(tmp_path / "bad.bin"))


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        read_counts(str(tmp_path / "nowhere"))


def test_who_reads_the_old_file_goes_on_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    path.write_bytes(GOOD)
    with path.open("rb") as reader:
        write_counts(str(path), NgramCounts())
        assert reader.read() == GOOD
    assert path.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache"
    path.write_bytes(GOOD)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        write_counts(str(path), NgramCounts())
    assert path.read_bytes() == GOOD
    assert list(tmp_path.iterdir()) == [path]


@settings(max_examples=50)
@given(st.lists(histories, max_size=3))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]]) -> None:
    path = str(tmp_path_factory.mktemp("counts") / "cache")
    counts = NgramCounts()
    for tokens in texts:
        counts.learn(tokens)
    write_counts(path, counts)
    again = read_counts(path)
    assert table(again) == table(counts)
    assert [f.best for _, f in again.items()] == [f.best for _, f in counts.items()]


@given(st.lists(histories, max_size=3))
def test_a_static_cache_counts_what_follows_each_2_gram(texts: list[list[int]]) -> None:
    triples = Counter(tuple(t[i : i + 3]) for t in texts for i in range(len(t) - 2))
    expected: dict[tuple[int, ...], dict[int, int]] = {}
    for (first, second, token), count in triples.items():
        expected.setdefault((first, second), {})[token] = count
    assert table(build_static(texts)) == expected


def test_the_best_is_the_most_frequent_and_of_equals_the_last_seen() -> None:
    followers = Followers()
    bests = []
    for token in (1, 2, 1, 2, 3):
        followers.add(token)
        bests.append(followers.best)
    assert bests == [1, 2, 1, 2, 2]


@given(st.lists(st.integers(0, 4), max_size=20))
def test_counting_at_once_is_counting_one_by_one(tokens: list[int]) -> None:
    followers = Followers()
    for token in tokens:
        followers.add(token)
    at_once = Followers.of(tokens[::-1])
    assert (at_once.total, at_once.best, at_once.counts) == (followers.total, followers.best, followers.counts)


def test_an_n_gram_keeps_few_followers_and_never_loses_the_best() -> None:
    followers = Followers()
    for token in [7] * 3 + list(range(100, 100 + 3 * N_FOLLOWERS)):
        followers.add(token)
    assert len(followers.counts) == N_FOLLOWERS
    assert followers.best == 7
    assert followers.total == 3 + 3 * N_FOLLOWERS


def test_the_n_grams_unseen_for_longest_are_forgotten() -> None:
    counts = NgramCounts(8)
    for token in range(8):
        counts.add((token,), 1)
    counts.add((0,), 1)
    counts.add((99,), 1)
    assert len(counts) == 8
    assert counts.get((1,)) is None
    assert counts.get((0,)) is not None
