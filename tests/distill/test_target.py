"""The rebuilt target writes what libllama writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.errors import ModelError
from tests.distill.files import libllama_logits, write_target

torch = pytest.importorskip("torch", reason="distilling needs torch: pip install 'paceline[distill]'")

from paceline.distill.target import Teacher  # noqa: E402

pytestmark = pytest.mark.model

PASSAGE = """\
<|im_start|>system
You are a helpful assistant.<|im_end|>
<|im_start|>user
Why does the sea look blue, although a glass of its water has no colour at all?<|im_end|>
<|im_start|>assistant
The sea looks blue because water absorbs the red part of sunlight more strongly than the blue part. In a glass there is
too little water for that to be seen. Over many metres the red light is lost, and what comes back to the eye is mostly
blue. Small particles and algae scatter light too, which is why some seas are green and some rivers brown.<|im_end|>
"""


def torch_logits(path: str, tokens: list[int]) -> np.ndarray:
    teacher = Teacher.read(path, device="cpu")
    with torch.no_grad():
        return np.asarray(teacher.logits(teacher(torch.tensor([tokens])).hidden)[0])


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "own output"])
@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_logits_are_those_of_libllama(tmp_path: Path, arch: str, tied: bool) -> None:
    path = write_target(tmp_path / "target.gguf", arch, tied=tied, factors=arch == "llama", sharpness=3.0)
    tokens = np.random.default_rng(5).integers(0, 256, 200).tolist()
    ours, theirs = torch_logits(path, tokens), libllama_logits(path, tokens)
    assert np.mean(ours.argmax(-1) == theirs.argmax(-1)) >= 0.99
    assert np.abs(ours - theirs).max() < 0.05 * theirs.std()


def test_the_demo_model_agrees(demo: str) -> None:
    from paceline.config import ModelParams
    from paceline.llama.model import Model

    with Model(ModelParams(path=demo)) as model:
        tokens = model.vocab.tokenize(PASSAGE)
    ours, theirs = torch_logits(demo, tokens), libllama_logits(demo, tokens)
    assert np.mean(ours.argmax(-1) == theirs.argmax(-1)) >= 0.97


def test_writing_step_by_step_is_the_same_as_reading_at_once(tmp_path: Path) -> None:
    teacher = Teacher.read(write_target(tmp_path / "target.gguf", "qwen3"), device="cpu")
    tokens = torch.randint(0, 256, (3, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole = teacher(tokens, layers=(0, 1, 2))
        memory = teacher.memory(3, 32)
        first = teacher(tokens[:, :5], memory)
        second = teacher(tokens[:, 5:9], memory)
        rest = [teacher(tokens[:, i : i + 1], memory, layers=(2,)) for i in range(9, 24)]
    steps = torch.cat([first.hidden, second.hidden, *(step.hidden for step in rest)], dim=1)
    assert torch.allclose(whole.hidden, steps, atol=1e-4)
    assert torch.allclose(whole.inputs[2][:, 23:], rest[-1].inputs[0], atol=1e-4)
    assert torch.equal(whole.inputs[0], teacher.embedding(tokens))


def test_half_precision_keeps_the_argmax(demo: str) -> None:
    tokens = torch.arange(100, 164)[None]
    whole, half = (Teacher.read(demo, device="cpu", dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    with torch.no_grad():
        wanted = whole.logits(whole(tokens).hidden).argmax(-1)
        with half.precision():
            found = half(tokens)
            half.check_finite(found.hidden)
            assert (half.logits(found.hidden).argmax(-1) == wanted).float().mean() >= 0.9


@pytest.mark.parametrize(
    ("arch", "extra", "why"),
    [
        ("gemma", None, "distill knows the architectures llama, qwen2, qwen3; .* is 'gemma'"),
        ("llama", "blk.0.ffn_gate_inp.weight", "does not know, as blk.0.ffn_gate_inp.weight"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused_by_name(tmp_path: Path, arch: str, extra: str | None, why: str) -> None:
    path = write_target(tmp_path / "target.gguf", arch, extra=extra)
    with pytest.raises(ModelError, match=why):
        Teacher.read(path, device="cpu")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not found"):
        Teacher.read(str(tmp_path / "nothing.gguf"))
    (tmp_path / "text.gguf").write_text("words")
    with pytest.raises(ModelError, match="not a GGUF file"):
        Teacher.read(str(tmp_path / "text.gguf"))
    (tmp_path / "short.gguf").write_bytes(Path(write_target(tmp_path / "whole.gguf")).read_bytes()[:3000])
    with pytest.raises(ModelError, match="cannot read"):
        Teacher.read(str(tmp_path / "short.gguf"))
