"""A tiny target distils to a tinier draft, through the command, on a CPU."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

import numpy as np
import pytest

from paceline.cli.main import EXIT_ERROR, EXIT_INTERRUPTED, main
from paceline.errors import ConfigError
from tests.distill.files import libllama_logits, write_target

torch = pytest.importorskip("torch", reason="distilling needs torch: pip install 'paceline[distill]'")

from paceline.distill.exporting import export  # noqa: E402
from paceline.distill.measuring import agreement_of  # noqa: E402
from paceline.distill.student import Student  # noqa: E402
from paceline.distill.target import Teacher  # noqa: E402
from paceline.distill.texts import HELD_OUT, TextFolder  # noqa: E402
from paceline.distill.training import student_of  # noqa: E402
from paceline.distill.writing import rows_that_fit  # noqa: E402

pytestmark = pytest.mark.model

N_HELD_OUT = 16
PATIENCE = 300.0


@contextmanager
def one_thread() -> Iterator[None]:
    """Two would wait for each other on a busy machine, and add up in another order."""
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n)


def words(folder: Path, *more: str) -> list[str]:
    fixed = "--size 32:1 --length 64 --rows 64 --text-tokens 24000 --steps 60 --batch-tokens 2048 --rate 3"
    files = ["-m", str(folder / "target.gguf"), "-o", str(folder / "draft.gguf")]
    return ["distill", *files, *fixed.split(), "--device", "cpu", "-t", "1", *more]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target, its draft, and the run that made it."""
    folder = tmp_path_factory.mktemp("made")
    write_target(folder / "target.gguf", tied=False, sharpness=3.0, n_embd=32, n_layer=1, n_head=2, n_head_kv=1)
    with one_thread():
        assert main(words(folder)) == 0
    return folder


def test_the_draft_learned_what_the_target_says(made: Path) -> None:
    _, standing = student_of(made / "draft.gguf.work" / "checkpoint.pt")
    untrained, learned = standing.history[0][1], standing.history[-1][1]
    assert len(standing.history) >= 4  # people see how it gets on, however short it is
    assert learned >= untrained + 0.4
    held_out = TextFolder(made / "draft.gguf.work" / "text").load(HELD_OUT)
    assert agreement_of(str(made / "draft.gguf"), held_out, N_HELD_OUT, n_threads=1) >= untrained + 0.4


def test_the_file_says_what_the_student_says(made: Path, tmp_path: Path) -> None:
    student, _ = student_of(made / "draft.gguf.work" / "checkpoint.pt")
    export(student, str(made / "target.gguf"), tmp_path / "draft.gguf", kind="F16")
    text = TextFolder(made / "draft.gguf.work" / "text").load(HELD_OUT).tokens[:8]
    with torch.no_grad():
        ours = student.logits(student(torch.from_numpy(text)).hidden).argmax(-1).numpy()
    theirs = np.stack([libllama_logits(str(tmp_path / "draft.gguf"), row.tolist()).argmax(-1) for row in text])
    assert np.mean(ours == theirs) >= 0.99


def test_the_draft_drafts(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the engine, beside the target: some of what it proposes stands."""
    files = ["-m", str(made / "target.gguf"), "-md", str(made / "draft.gguf")]
    policy = [
        "--spec-type",
        "draft-simple",
        "--spec-policy",
        "fixed",
        "--draft-max",
        "3",
        "--draft-p-min",
        "0",
        "-t",
        "1",
    ]
    assert main(["run", *files, *policy, "-p", "Why is the sea", "-n", "40", "--temp", "0", "--json"]) == 0
    timings = json.loads(capsys.readouterr().out)["timings"]
    assert timings["draft_n"] >= 10
    assert timings["draft_n_accepted"] >= 5


def test_after_a_kill_it_goes_on_to_the_same_end(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "target.gguf", tmp_path)
    shutil.copytree(made / "draft.gguf.work", tmp_path / "draft.gguf.work")
    checkpoint = tmp_path / "draft.gguf.work" / "checkpoint.pt"
    _, whole = student_of(checkpoint)
    checkpoint.unlink()
    code = (
        "import sys, torch; torch.set_num_threads(1); from paceline.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, *words(tmp_path, "--stage", "train", "--save-every", "0")],
        stderr=subprocess.DEVNULL,
    )
    wait_for(checkpoint, child)
    child.kill()
    child.wait()
    _, part = student_of(checkpoint)
    assert part.n_steps <= whole.n_steps
    with one_thread():
        assert main(words(tmp_path, "--stage", "train,export")) == 0
    _, again = student_of(checkpoint)
    assert again.n_steps == whole.n_steps
    assert abs(again.agreement - whole.agreement) <= 0.03
    assert (tmp_path / "draft.gguf").stat().st_size > 0


def test_an_interrupted_run_says_how_to_go_on(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "target.gguf", tmp_path)
    command = [sys.executable, "-m", "paceline", *words(tmp_path), "--text-tokens", "100000000", "--stage", "write"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        try:
            wait_for(tmp_path / "draft.gguf.work" / "text" / "00000.npz", child)
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=PATIENCE)
        finally:
            child.kill()
    assert child.returncode == EXIT_INTERRUPTED
    assert "interrupted; the same command goes on from what is in" in said
    assert "Traceback" not in said


def wait_for(file: Path, child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while not file.exists():
        assert child.poll() is None, "it ended too soon"
        assert time.monotonic() < until, "nothing came of it"
        time.sleep(0.05)


def test_without_libllama_it_writes_and_trains(made: Path, tmp_path: Path) -> None:
    """As on a machine that has a GPU and nothing else; even the file comes out, at the kinds that gguf knows."""
    shutil.copy(made / "target.gguf", tmp_path)
    (tmp_path / "draft.gguf.work").mkdir()
    for name in ("material.json", "run.json"):
        shutil.copy(made / "draft.gguf.work" / name, tmp_path / "draft.gguf.work")
    code = (
        "import sys; sys.modules['llama_cpp'] = None; from paceline.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    few = words(tmp_path, "--text-tokens", "4096", "--steps", "2", "--quant", "Q4_0")
    done = subprocess.run([sys.executable, "-c", code, *few], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "`--stage export` elsewhere does that" in done.stderr
    assert main([*few, "--stage", "export"]) == 0
    with torch.no_grad():
        student, _ = student_of(tmp_path / "draft.gguf.work" / "checkpoint.pt")
    assert student.shape.n_embd == 32


def failing(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that is left of a run that cannot be."""
    assert main(["distill", *arguments]) == EXIT_ERROR
    said = [line for line in capsys.readouterr().err.splitlines() if not line.endswith(("...", " tokens"))]
    assert len(said) == 1
    return said[0].removeprefix("paceline: error: ")


def test_wrong_input_is_one_line(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, output = str(made / "target.gguf"), str(tmp_path / "draft.gguf")
    strange = write_target(tmp_path / "gemma.gguf", "gemma")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n\n")
    (tmp_path / "wrong.jsonl").write_text('{"messages": []}\n')
    assert "-o FILE is needed" in failing(capsys, "-m", target)
    assert "llama, qwen2, qwen3" in failing(capsys, "-m", strange, "-o", output)
    assert "not found" in failing(capsys, "-m", str(tmp_path / "none.gguf"), "-o", output)
    assert "holds no prompts" in failing(capsys, "-m", target, "-o", output, "--log", str(empty))
    assert "line 1: expected" in failing(capsys, "-m", target, "-o", output, "--log", str(tmp_path / "wrong.jsonl"))
    assert "none of prepare, write, train, export" in failing(capsys, "-m", target, "-o", output, "--stage", "bake")
    assert "multiple of 32" in failing(capsys, *words(made, "--size", "33:2", "--stage", "train")[1:])
    assert "width:layers" in failing(capsys, "-m", target, "-o", output, "--size", "huge").lower()
    assert "a draft can be" in failing(capsys, "-m", target, "-o", output, "--quant", "Q9_9")
    assert "cannot write to" in failing(capsys, "-m", target, "-o", str(tmp_path))
    assert "is the target itself" in failing(capsys, "-m", target, "-o", target)
    assert "was not made by distill" in failing(capsys, "-m", target, "-o", output, "--continue", target)
    assert "torch cannot use it" in failing(capsys, "-m", target, "-o", output, "--device", "abacus")
    assert "no text in" in failing(capsys, "-m", target, "-o", output, "--stage", "train", "--size", "s")
    assert "no checkpoint at" in failing(capsys, "-m", target, "-o", output, "--stage", "export")
    assert "a head can be" in failing(capsys, "-m", target, "-o", output, "--type", "eagle3", "--quant", "Q6_K")
    assert "--size is for draft models" in failing(
        capsys, "-m", target, "-o", output, "--type", "eagle3", "--size", "s"
    )
    assert "are for heads" in failing(capsys, "-m", target, "-o", output, "--head-ff", "64")


def test_a_full_disk_is_one_line(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No file may grow beyond some bytes, which is how a full disk feels."""
    shutil.copy(made / "target.gguf", tmp_path)
    shutil.copytree(made / "draft.gguf.work", tmp_path / "draft.gguf.work")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        said = failing(capsys, *words(tmp_path, "--text-tokens", "48000", "--stage", "write")[1:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot write text to" in said
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("n_bytes", [500, 4096])
def test_a_full_disk_at_the_end_is_one_line(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], n_bytes: int
) -> None:
    resume = words(made, "--stage", "export", "-o", str(tmp_path / "draft.gguf"), "--work", str(tmp_path / "work"))[1:]
    shutil.copytree(made / "draft.gguf.work", tmp_path / "work")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
        said = failing(capsys, *resume)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot write" in said and ("no room" in said or "too large" in said)
    assert not list(tmp_path.rglob("*.part"))
    assert main(["distill", *resume]) == 0


def test_minutes_are_kept_on_a_slow_machine(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rows are written side by side where all would take too long; where not even one is done, it is told."""
    teacher = Teacher.read(str(made / "target.gguf"), device="cpu")
    assert rows_that_fit(teacher, 100, inf) == 64
    monkeypatch.setattr(teacher, "logits", lambda hidden: time.sleep(0.004 * (1 + len(hidden))))
    assert rows_that_fit(teacher, 100, inf) == 64
    assert 5 <= rows_that_fit(teacher, 100, 5 * 0.4 * 11) <= 11
    assert rows_that_fit(teacher, 100, 2.5) == 1
    with pytest.raises(ConfigError, match="a text of 100 tokens here, and --minutes leaves 1 for writing"):
        rows_that_fit(teacher, 100, 1.0)


def test_minutes_are_what_writing_and_training_take(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "target.gguf", tmp_path)
    (tmp_path / "draft.gguf.work").mkdir()
    shutil.copy(made / "draft.gguf.work" / "material.json", tmp_path / "draft.gguf.work")
    files = ["-m", str(tmp_path / "target.gguf"), "-o", str(tmp_path / "draft.gguf"), "--device", "cpu"]
    begun = time.monotonic()
    with one_thread():
        assert main(["distill", *files, "--size", "32:1", "--minutes", "0.1", "--stage", "write,train"]) == 0
    assert 4 < time.monotonic() - begun < 20
    _, standing = student_of(tmp_path / "draft.gguf.work" / "checkpoint.pt")
    assert standing.n_steps > 0 and len(standing.history) >= 3


def test_without_torch_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; from paceline.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "distill", "-m", "target.gguf", "-o", "draft.gguf"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_ERROR
    assert done.stderr.count("\n") == 1
    assert "distill needs torch" in done.stderr
    assert "pip install 'paceline[distill]'" in done.stderr


def test_the_same_words_write_the_same_text(made: Path, tmp_path: Path) -> None:
    from paceline.distill.material import Material
    from paceline.distill.script import ScriptWriter
    from paceline.distill.writing import Writer

    teacher = Teacher.read(str(made / "target.gguf"), device="cpu")
    material = Material.load(made / "draft.gguf.work" / "material.json")
    rounds = [Writer(teacher, ScriptWriter(material, 48), 8, seed=s).round("00000") for s in (1, 1, 2)]
    assert np.array_equal(rounds[0].tokens, rounds[1].tokens)
    assert not np.array_equal(rounds[0].tokens, rounds[2].tokens)


def test_a_student_wider_than_its_target_can_be_made(made: Path) -> None:
    from paceline.distill.student import shape_of, size_of

    teacher = Teacher.read(str(made / "target.gguf"), device="cpu")
    student = Student.fresh(shape_of(size_of("96:1"), teacher.shape), teacher)
    assert student.embedding.weight.shape == (teacher.shape.n_vocab, 96)
    assert bool(torch.isfinite(student.logits(student(torch.arange(8)[None]).hidden)).all())


def test_the_size_is_chosen_by_what_it_costs_here(made: Path, tmp_path: Path) -> None:
    from paceline.cli.distill import Printed
    from paceline.distill.making import Making, Recipe
    from paceline.distill.student import SIZES

    told: list[str] = []

    class Heard(Printed):
        def tell(self, line: str) -> None:
            told.append(line)

    recipe = Recipe(
        target=str(made / "target.gguf"), output=str(tmp_path / "x.gguf"), folder=tmp_path, device="cpu", n_threads=1
    )
    assert Making(recipe, Heard()).best_size() in SIZES.values()
    assert "expected speed-up by size: s " in told[-1]
    assert not list(tmp_path.glob("trial*"))


def test_people_see_a_bar() -> None:
    from io import StringIO

    from rich.console import Console
    from rich.progress import Progress, TextColumn

    from paceline.cli.distill import Shown

    text = StringIO()
    columns = (TextColumn("{task.description}"), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(file=text, force_terminal=True, width=80)) as bars:
        shown = Shown(bars)
        shown.stage("training")
        shown.progress(0.5, "agreement 0.700")
        shown.tell("a line that stays")
        bars.refresh()
    assert "a line that stays" in text.getvalue()
    assert "agreement 0.700" in text.getvalue()
