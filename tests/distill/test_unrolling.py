"""Steps that all positions take together are those that drafts take one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `distill`")

from paceline.distill import unrolling  # noqa: E402
from paceline.distill.divergence import divergence  # noqa: E402
from paceline.distill.eagle3 import Eagle3Head, HeadShape, Memory  # noqa: E402
from paceline.distill.target import Teacher  # noqa: E402
from paceline.distill.unrolling import Taught, accepted, lesson, steps, teach  # noqa: E402
from tests.tiny import write_model  # noqa: E402

N_TEXT, N_STEPS = 24, 4


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Teacher:
    path = write_model(tmp_path_factory.mktemp("target") / "target.gguf", seed=1, n_layer=4, scale=2.0)
    return Teacher.read(path)


@pytest.fixture(scope="module")
def head() -> Eagle3Head:
    torch.manual_seed(1)
    return Eagle3Head(HeadShape(64, (1, 2, 3), 200, n_head=4, n_kv=2, head_width=16, n_ff=96))


@pytest.fixture(scope="module")
def taught(teacher: Teacher, head: Eagle3Head) -> Taught:
    tokens = torch.randint(0, 256, (2, N_TEXT), generator=torch.Generator().manual_seed(2))
    return teach(teacher, head, tokens, torch.ones(tokens.shape))


def test_all_positions_at_once_are_each_alone(head: Eagle3Head, taught: Taught) -> None:
    with torch.no_grad():
        together = list(steps(head, taught, N_STEPS))
        for begin in (0, 3, 11):
            rows, memory = head.read(taught.features[:, : begin + 1]), Memory()
            for step in range(N_STEPS):
                first, n = (0, begin + 1) if step == 0 else (begin + step, 1)
                seen = None if step == 0 else torch.ones(1, begin + 1 + step, dtype=torch.bool)
                embedded = taught.embedded[:, first : first + n]
                rows = head(embedded, rows, memory, seen, head.turns(first, n))[:, -1:]
                torch.testing.assert_close(rows[:, 0], together[step][:, begin + step], rtol=1e-4, atol=1e-4)


def test_what_the_target_says_is_what_comes_after_the_pair(teacher: Teacher, head: Eagle3Head, taught: Taught) -> None:
    tokens = torch.randint(0, 256, (2, N_TEXT), generator=torch.Generator().manual_seed(2))
    chances = teacher.logits(teacher(tokens).hidden).softmax(-1)
    real = taught.weights > 0
    rows, columns = taught.places[real] // N_TEXT, taught.columns[real]
    torch.testing.assert_close(taught.chances[real], chances[rows, columns + 1][:, head.tokens])
    torch.testing.assert_close(taught.embedded[:, :-1], teacher.embedding.weight[tokens[:, 1:]])
    assert taught.places[real].tolist() == [i for i in range(2 * N_TEXT) if i % N_TEXT < N_TEXT - 2]


def test_what_does_not_count_is_left_out_and_changes_nothing(
    teacher: Teacher, head: Eagle3Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 256, (2, N_TEXT), generator=generator)
    weights = (torch.rand(2, N_TEXT, generator=generator) < 0.3) * torch.rand(2, N_TEXT, generator=generator)
    monkeypatch.setattr(unrolling, "CHUNK", 4)
    few = teach(teacher, head, tokens, weights)
    monkeypatch.setattr(unrolling, "counted", lambda weights: (torch.arange(len(weights)), weights))
    every = teach(teacher, head, tokens, weights)
    assert len(few.places) < len(every.places) // 2 and len(few.places) % 4 == 0
    losses = [lesson(head, taught, N_STEPS).loss for taught in (few, every)]
    slopes = [torch.autograd.grad(loss, list(head.parameters()), allow_unused=True) for loss in losses]
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-4, atol=1e-6)
    assert accepted(head, few, 2).tolist() == accepted(head, every, 2).tolist()


def test_the_slope_is_that_of_the_whole_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.distill.divergence.CHUNK", 3)
    torch.manual_seed(0)
    states, output = torch.randn(8, 5, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    told = torch.rand(8, 7).softmax(-1) * 0.8
    weights = torch.rand(8)
    ours = divergence(states, output, told, told.argmax(-1), weights)
    sure = (states @ output.T).log_softmax(-1)
    share = told / told.sum(-1, keepdim=True)
    theirs = (weights * 0.8 * (share * (share.log() - sure)).sum(-1)).sum()
    torch.testing.assert_close(ours.loss, theirs)
    wanted = torch.autograd.grad(theirs, (states, output), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(2 * ours.loss, (states, output)), tuple(2 * g for g in wanted))
    assert ours.right.tolist() == (sure.argmax(-1) == told.argmax(-1)).float().tolist()


def test_a_lesson_is_learned(head: Eagle3Head, taught: Taught) -> None:
    """One batch by heart: each step agrees more, and drafts stand longer."""
    optimizer = torch.optim.AdamW(head.parameters(), 3e-3)
    before = lesson(head, taught, N_STEPS)
    short = accepted(head, taught, N_STEPS)
    for _ in range(60):
        optimizer.zero_grad()
        lesson(head, taught, N_STEPS).loss.backward()
        optimizer.step()
    after = lesson(head, taught, N_STEPS)
    long = accepted(head, taught, N_STEPS)
    assert after.loss < before.loss / 2
    assert (after.agreement > before.agreement + 0.3).all()
    assert len(short) == 2 * (N_TEXT - N_STEPS - 1)
    assert long.mean() > short.mean() + 1


def test_half_precision_teaches_nearly_the_same(teacher: Teacher, head: Eagle3Head, tmp_path: Path) -> None:
    """As on a GPU: the target's weights and all multiplications in bfloat16, the head's own weights in float32."""
    half = Teacher.read(write_model(tmp_path / "target.gguf", seed=1, n_layer=4, scale=2.0), dtype=torch.bfloat16)
    tokens = torch.randint(0, 256, (2, N_TEXT), generator=torch.Generator().manual_seed(2))
    found = []
    for each in (teacher, half):
        told = teach(each, head, tokens, torch.ones(tokens.shape), boost=0.5)
        with each.precision():
            loss = lesson(head, told, N_STEPS).loss
        head.zero_grad()
        loss.backward()
        assert all(values.grad.dtype == torch.float32 for values in head.parameters())
        found.append((loss.detach(), told.chances.dtype))
    assert [kind for _, kind in found] == [torch.float32, torch.bfloat16]
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0.1, atol=0.02)
