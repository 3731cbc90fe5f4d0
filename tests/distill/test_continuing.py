"""A draft and a head that are trained further."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `distill`")

from paceline.distill.continuing import Continuing, making_of, student_from  # noqa: E402
from paceline.distill.exporting import export  # noqa: E402
from paceline.distill.head_file import read_head, write_head  # noqa: E402
from paceline.distill.head_making import coverage, frequent, new_head, shape_for, with_vocabulary  # noqa: E402
from paceline.distill.head_run import HeadMaking  # noqa: E402
from paceline.distill.making import Making, Recipe  # noqa: E402
from paceline.distill.script import TextKind  # noqa: E402
from paceline.distill.student import Student, shape_of, size_of  # noqa: E402
from paceline.distill.target import Teacher  # noqa: E402
from paceline.errors import ConfigError  # noqa: E402
from tests.distill.files import write_target  # noqa: E402
from tests.tiny import write_model  # noqa: E402


class Silent:
    def stage(self, name: str) -> None: ...
    def progress(self, share: float, note: str) -> None: ...
    def tell(self, line: str) -> None: ...


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("target") / "target.gguf"
    return write_target(path, seed=1, n_layer=3, n_embd=32, n_head=2, n_head_kv=2, sharpness=4.0, tied=False)


@pytest.fixture(scope="module")
def teacher(target: str) -> Teacher:
    return Teacher.read(target)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """As `serve --record` writes it."""
    path = tmp_path / "requests.jsonl"
    entries = [{"time": 1.0, "model": "tiny", "prompt": f"<|start|>user\nrow {i}", "answer": "x"} for i in range(8)]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def recipe(target: str, start: Path, folder: Path, log: Path) -> Recipe:
    return Recipe(
        target=target,
        output=str(folder / "again.gguf"),
        folder=folder / "work",
        kind="F16",
        own_prompts=(str(log),),
        n_rows=32,
        length=48,
        n_text=32 * 48,
        n_steps=3,
        batch_tokens=8 * 48,
        n_threads=1,
        start=str(start),
    )


def test_a_draft_is_itself_again(target: str, teacher: Teacher, tmp_path: Path, log: Path) -> None:
    student = Student.fresh(shape_of(size_of("64:2"), teacher.shape), teacher)
    path = tmp_path / "draft.gguf"
    export(student, target, path, kind="F32")
    tokens = torch.arange(24)[None]
    with torch.no_grad():
        before, after = (each.logits(each(tokens).hidden) for each in (student, student_from(str(path))))
    torch.testing.assert_close(before, after, rtol=1e-4, atol=1e-4)
    making = making_of("model", recipe(target, path, tmp_path, log), Silent())
    assert isinstance(making, Continuing)
    making.run()
    assert (tmp_path / "again.gguf").stat().st_size > 0


def test_a_head_is_trained_further_on_what_was_asked(target: str, teacher: Teacher, tmp_path: Path, log: Path) -> None:
    known = frequent(torch.arange(200), teacher.shape.n_vocab, 200)
    head = new_head(teacher, shape_for(teacher, 200, n_ff=64), known, torch.arange(64)[None])
    path = tmp_path / "head.gguf"
    write_head(path, head, target, "F32")
    making = making_of("model", recipe(target, path, tmp_path, log), Silent())
    assert isinstance(making, HeadMaking)
    making.run()
    again = read_head(Path(making.recipe.output))
    assert again.shape == head.shape
    written = torch.from_numpy(making.text.all().tokens)
    assert coverage(written, again.tokens) > coverage(written, head.tokens)
    assert (again.fc.weight - head.fc.weight).abs().max() > 1e-5
    text = making.text.all()
    asked = b"row "
    own = [row for row in text.tokens if asked in bytes(token % 256 for token in row[:24])]
    assert 0.25 < len(own) / len(text.tokens) < 0.75
    assert (text.kinds != TextKind.GIVEN).mean() > 0.3


def test_a_head_keeps_what_it_knows_of_a_token(teacher: Teacher) -> None:
    head = new_head(teacher, shape_for(teacher, 40, n_ff=64), torch.arange(40), torch.arange(64)[None])
    with torch.no_grad():
        head.output.weight.add_(1.0)
    text = torch.tensor([*range(100, 110)] * 9 + [200, 201])
    known = frequent(text, teacher.shape.n_vocab, 46, head.tokens)
    assert known.tolist() == [*range(36), *range(100, 110)]
    again = with_vocabulary(head, known, teacher)
    torch.testing.assert_close(again.output.weight[:36], head.output.weight[:36])
    torch.testing.assert_close(again.output.weight[36:], teacher.output[100:110].float())
    assert torch.equal(again.fc.weight, head.fc.weight)


def test_what_does_not_fit_is_told_of(target: str, tmp_path: Path, log: Path) -> None:
    other = Path(write_model(tmp_path / "other.gguf", n_extra=3))
    with pytest.raises(ConfigError, match="speaks other tokens"):
        making_of("model", recipe(target, other, tmp_path, log), Silent())
    with pytest.raises(ConfigError, match="was not made by distill"):
        student_from(target)
    fresh = replace(recipe(target, other, tmp_path, log), start=None)
    assert type(making_of("model", fresh, Silent())) is Making
    assert type(making_of("eagle3", replace(fresh, folder=tmp_path / "head"), Silent())) is HeadMaking
