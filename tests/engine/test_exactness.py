"""Which layouts are found on contexts whose bits depend on the size of a batch, and what the engine does with them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from paceline.engine.exactness import ALONE, BORDER, CANDIDATES, Layout, Trial, find, step_seconds, ways
from paceline.errors import ContextFull
from paceline.llama.context import Batch
from paceline.llama.lib import Floats
from tests.fakes import Client, FakeContext, Prophet, continuation, make_engine, run

Kernel = Callable[[int, int, int, int], int]  # by batch size, place in the batch, position and sequence


class Rounding(FakeContext):
    """Rounds as its kernel does; a token's own rounding goes on in all that follow it."""

    def __init__(self, kernel: Kernel, n_ctx: int = 1024, n_ubatch: int = 512, n_seqs: int = 1) -> None:
        super().__init__(n_ctx=n_ctx * n_seqs, n_batch=n_ubatch, n_ubatch=n_ubatch, n_seqs=n_seqs)
        self.n_ctx_seq = n_ctx
        self.kernel = kernel
        self.kinds: list[list[int]] = [[] for _ in range(n_seqs)]
        self.n_decoded = 0

    def decode(self, batch: Batch) -> Floats:
        seq = (int(batch._seq_pointers[0]) - batch._seq_address[0]) // 4
        start, n = int(batch._positions[0]), batch.n_tokens
        kinds = self.kinds[seq]
        del kinds[start:]
        kinds += [self.kernel(n, i, start + i, seq) if batch.n_outputs else 0 for i in range(n)]
        self.n_decoded += n
        rows = super().decode(batch)
        for i, row in enumerate(rows):
            row[0] = np.float32(1) + np.float32(1e-6) * sum(kinds[: start + n - len(rows) + i + 1])
        return rows


def test_a_context_that_rounds_alike_from_two_tokens_on_is_padded_to_two() -> None:
    assert find(Rounding(lambda n, i, at, seq: n == 1)) == Layout(2, 62)


def test_kernels_that_change_at_eight_tokens_ask_for_eight() -> None:
    assert find(Rounding(lambda n, i, at, seq: n < 8)) == Layout(8, 62)


def test_groups_of_four_rows_ask_for_one_size() -> None:
    assert find(Rounding(lambda n, i, at, seq: i >= n - n % 4)) == Layout(8, 8)


def test_a_device_where_every_size_rounds_in_its_own_way_gets_one_size() -> None:
    assert find(Rounding(lambda n, i, at, seq: n)) == Layout(8, 8)
    assert find(Rounding(lambda n, i, at, seq: n if n >= 16 else 100 * n + i)) == Layout(16, 16)


def test_a_place_in_the_batch_that_matters_leaves_nothing() -> None:
    assert find(Rounding(lambda n, i, at, seq: i)) is None


def test_what_only_shows_behind_the_border_is_seen() -> None:
    def split(n: int, i: int, at: int, seq: int) -> int:
        return n * (at - i + n > BORDER)

    assert find(Rounding(split, n_ctx=BORDER)) == Layout(2, 62)
    assert find(Rounding(split)) == Layout(8, 8, BORDER)
    for layout in CANDIDATES:
        found = find(Rounding(split), [layout])
        assert found == (layout if layout.border else None)


def test_another_sequence_is_tried_too() -> None:
    def kernel(n: int, i: int, at: int, seq: int) -> int:
        return seq if n < 16 else 0

    assert find(Rounding(kernel)) == Layout(2, 62)
    assert find(Rounding(kernel, n_seqs=3)) == Layout(16, 16)


@pytest.mark.parametrize("odd", [2, 3, 5, 8, 17, 62])
def test_one_size_that_differs_is_found(odd: int) -> None:
    found = find(Rounding(lambda n, i, at, seq: n == odd), [Layout(2, 62)])
    assert found is None


def test_trying_leaves_the_context_empty() -> None:
    for kernel in (lambda n, i, at, seq: 0, lambda n, i, at, seq: i):
        context = Rounding(kernel, n_seqs=2)
        find(context)
        step_seconds(context, 2)
        assert context.cells == [[], []]


def test_a_slow_context_is_tried_on_fewer_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Rounding(lambda n, i, at, seq: 0)
    find(quick)
    monkeypatch.setattr("paceline.engine.exactness.step_seconds", lambda context, n: 60.0)
    monkeypatch.setattr("paceline.engine.exactness.SECONDS", 0.0)
    slow = Rounding(lambda n, i, at, seq: 0)
    assert find(slow) == Layout(2, 62)
    assert slow.n_decoded < quick.n_decoded / 4


def test_a_layout_stays_within_what_the_context_takes_at_once() -> None:
    assert find(Rounding(lambda n, i, at, seq: 0, n_ubatch=16)) == Layout(2, 16)
    assert find(Rounding(lambda n, i, at, seq: n, n_ubatch=4)) == Layout(4, 4)
    assert find(Rounding(lambda n, i, at, seq: n if n > 4 else i, n_ubatch=4)) is None
    assert Layout(16, 16).within(FakeContext(n_ctx=24)) is None


def test_every_way_stays_within_the_layout() -> None:
    sizes: list[int] = []
    for layout in CANDIDATES:
        context = Rounding(lambda n, i, at, seq: sizes.append(n) or 0)  # type: ignore[func-returns-value]
        trial = Trial(context)
        sizes.clear()
        assert trial.passes(layout)
        assert (min(sizes), max(sizes)) == (layout.least, layout.most)
        assert len(ways(layout)) > 4


@pytest.mark.parametrize("n", [4, 8, 32])
def test_a_token_is_always_computed_in_view_of_the_same_cells(n: int) -> None:
    layout = Layout(n, n, BORDER)
    seen: dict[int, set[int]] = {}
    for start in range(3 * BORDER):
        for token in range(start, start + 1 + layout.n_drafts(start)):
            seen.setdefault(token, set()).add((start + n - 1) // BORDER)
    assert all(len(views) == 1 for views in seen.values())
    assert max(layout.n_drafts(start) for start in range(BORDER)) == n - 1


# -- the engine by a layout


@pytest.mark.parametrize("layout", [*CANDIDATES, ALONE, Layout(8, 8, 16)], ids=str)
@pytest.mark.parametrize("p", [0.0, 0.7, 1.0])
def test_the_text_is_the_same_by_every_layout(layout: Layout, p: float) -> None:
    prophet = Prophet(p)
    context = FakeContext(n_ctx=400, n_ubatch=64, n_seqs=2, layout=layout)
    prompts = [[token % 40 for token in range(n)] for n in (1, 30, 70)]
    clients = [Client(prompt, max_tokens=40) for prompt in prompts]
    run(make_engine(context, prophet), *clients)
    for client, prompt in zip(clients, prompts, strict=True):
        assert client.tokens == continuation(prompt, 40)
    decoding = [len(batch) for batch in context.batches if len(batch) <= layout.most]
    assert min(decoding) >= layout.least
    assert max(n for n, _ in [*prophet.accepted, (0, 0)]) <= layout.most - 1


def test_a_fixed_size_is_the_only_one_after_the_prompt() -> None:
    context = FakeContext(n_ctx=256, n_ubatch=64, layout=Layout(16, 16))
    run(make_engine(context, Prophet(0.8)), Client(list(range(40)), max_tokens=60))
    assert [len(context.batches[0])] == [40]
    assert {len(batch) for batch in context.batches[1:]} == {16}


@pytest.mark.parametrize("n_prompt", [1, 3, 49])
def test_a_text_ends_where_its_padding_would_not_fit(n_prompt: int) -> None:
    """The fake context refuses more cells than it has."""
    layout = Layout(16, 16)
    engine = make_engine(FakeContext(n_ctx=64, layout=layout), Prophet(0.9))
    client = Client(list(range(n_prompt)), max_tokens=None)
    run(engine, client)
    assert engine.n_room == 64 - 14
    assert client.reason == "length"
    assert client.tokens == continuation(list(range(n_prompt)), 50 - n_prompt)
    with pytest.raises(ContextFull, match="a slot holds 50"):
        engine.submit(Client(list(range(40)) + list(range(10))).active)
