"""The engine's process dies under load, and no client notices: `benchmarks.kills`, in short."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.answers import Broken, Lost, difference, streamed, whole
from benchmarks.bodies import CHAT, NATIVE, TEXT, kinds, stop_in
from benchmarks.kills import N_CTX, disturb, references, tiny_model
from benchmarks.server import serving

HELLO = [
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n',
    b"data: [DONE]\n\n",
]


@pytest.mark.model
def test_nothing_is_lost_or_changed(tmp_path: Path) -> None:
    pytest.importorskip("paceline.process.child")
    with serving(tiny_model(str(tmp_path)), 2, 2 * N_CTX, ["--exact", "-t", "1"]) as server:
        cases = references(server, kinds()[::3])
        tally = disturb(server, cases, n_kills=8, n_clients=3, every=0.2, seconds=0, seed=1)
        assert server.alive
    assert (tally.lost, tally.changed, tally.broken, tally.n_reconnects) == ({}, [], [], 0)
    assert tally.restarts >= tally.n_kills == 8
    assert tally.n_hits > 0


# -- the comparison notices


def test_the_same_text_in_other_pieces_is_the_same() -> None:
    once = b"".join(HELLO)
    again = once.replace(b'"Hel"', b'"H"').replace(b'"lo"', b'"ello"').replace(b"data: [", b": waiting\n\ndata: [")
    assert not difference(streamed(CHAT, once), streamed(CHAT, again))


@pytest.mark.parametrize("at", [1, 2])
def test_an_event_twice_or_never_is_a_change(at: int) -> None:
    was = streamed(CHAT, b"".join(HELLO))
    twice = [*HELLO[: at + 1], *HELLO[at:]]
    never = [*HELLO[:at], *HELLO[at + 1 :]]
    assert "choice 0" in difference(was, streamed(CHAT, b"".join(twice)))
    assert "choice 0" in difference(was, streamed(CHAT, b"".join(never)))


@pytest.mark.parametrize(
    "events",
    [
        HELLO[:-1],
        [*HELLO, HELLO[-1]],
        [*HELLO[:3], HELLO[-1]],
        [HELLO[0], *HELLO],
        [*HELLO[:4], HELLO[2], HELLO[4]],
        [*HELLO[:2], HELLO[2][:30], *HELLO[2:]],
        [*HELLO[:-1], HELLO[-1][:-1]],
        [],
    ],
    ids=["no DONE", "DONE twice", "no end", "a role twice", "after the end", "half an event", "cut", "nothing"],
)
def test_a_stream_that_nobody_can_read_is_broken(events: list[bytes]) -> None:
    with pytest.raises(Broken):
        streamed(CHAT, b"".join(events))


def test_an_error_in_a_stream_is_an_answer_lost() -> None:
    with pytest.raises(Lost, match="gone"):
        streamed(CHAT, b"".join([*HELLO[:2], b'data: {"error":{"message":"gone"}}\n\n', HELLO[-1]]))


def test_probabilities_and_counts_are_compared() -> None:
    reply = b'{"choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"stop"}],"usage":%s}'
    usage = b'{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":3}'
    assert "usage" in difference(whole(TEXT, reply % (usage % 1)), whole(TEXT, reply % (usage % 2)))
    part = b'data: {"index":0,"content":"a","tokens":[1],"stop":false,"completion_probabilities":[{"logprob":%s}]}\n\n'
    last = b'data: {"index":0,"content":"","tokens":[],"stop":true,"stop_type":"limit","stopping_word":"","prompt":"",'
    last += b'"tokens_predicted":1,"tokens_evaluated":1,"has_new_line":false,"truncated":false,'
    last += b'"generation_settings":{}}\n\n'
    was, now = (streamed(NATIVE, part % number + last) for number in (b"-0.5", b"-0.25"))
    assert "logprobs" in difference(was, now)


def test_a_stop_string_comes_late_and_is_readable() -> None:
    assert stop_in("aaaaaa\ufffdbcdef") == "bcd"
    assert stop_in("aaaaaaaaaaaa") is None
