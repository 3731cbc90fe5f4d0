"""Rounding as the file will round, and optimizers that leave nobody out."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'paceline[distill]'")
gguf = pytest.importorskip("gguf")

from torch import nn  # noqa: E402

from paceline.distill.optimizing import optimizers  # noqa: E402
from paceline.distill.rounding import plain_state, q4_0, round_weights  # noqa: E402


def test_rounds_as_the_file_does() -> None:
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(1)) * 0.05
    weight[3, :32] = 0
    kind = gguf.GGMLQuantizationType.Q4_0
    stored = gguf.quants.dequantize(gguf.quants.quantize(weight.numpy(), kind), kind)
    assert np.abs(stored - q4_0(weight).numpy()).max() < 1e-6
    assert np.abs(stored - weight.numpy()).max() > 1e-3


def small() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(8, 32), nn.Linear(32, 16, bias=False), nn.RMSNorm(16))


def test_rounded_students_still_learn_and_keep_their_names() -> None:
    student = small()
    names, before = list(student.state_dict()), student[1].weight.detach().clone()
    movers = optimizers(student, [student[0].weight], rate=0.1, table_rate=0.1, device="cpu")
    round_weights(student.modules(), "Q4_0")
    round_weights(student.modules(), "Q4_0")
    assert sorted(plain_state(student)) == sorted(names)
    assert torch.equal(student[1].weight, q4_0(before))
    student(torch.arange(8)).square().sum().backward()
    for mover in movers:
        mover.step()
    moved = plain_state(student)
    assert not torch.equal(moved["1.weight"], before)
    assert {name for name, value in moved.items() if value.grad_fn is not None} == set()


def test_other_kinds_are_left_alone() -> None:
    student = small()
    round_weights(student.modules(), "Q8_0")
    assert list(student.state_dict()) == list(small().state_dict())


def test_every_weight_has_one_mover() -> None:
    student = small()
    movers = optimizers(student, [student[0].weight], rate=0.1, table_rate=0.1, device="cpu")
    moved = [id(p) for mover in movers for group in mover.param_groups for p in group["params"]]
    assert sorted(moved) == sorted(id(p) for p in student.parameters())
