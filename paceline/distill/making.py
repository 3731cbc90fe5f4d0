"""A draft from beginning to end: prepare, write, train, export. Each stage leaves its result in the run's folder, so
that a run can be interrupted, resumed, and carried to another machine between stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Protocol

import torch

from paceline.distill import ahead, own
from paceline.distill.exporting import export
from paceline.distill.material import Material, prepare
from paceline.distill.reading import GgufFile, Hyperparameters, hyperparameters
from paceline.distill.script import ScriptWriter
from paceline.distill.student import SIZES, Size, Student, shape_of, size_of
from paceline.distill.target import Teacher
from paceline.distill.texts import HELD_OUT, TextFolder
from paceline.distill.training import Standing, Trainer, TrainingParams, student_of
from paceline.distill.work import NONE, Part, Settings, WorkFolder, fingerprint
from paceline.distill.writing import Writer, rows_that_fit, write
from paceline.errors import ConfigError, LibraryError

STAGES = ("prepare", "write", "train", "export")
MATERIAL, TEXT = "material.json", "text"
N_OPENINGS = 6000
N_HELD_OUT = 256
WRITING_SHARE = 0.3
MEASURED_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All that decides about a run. Where steps and numbers of tokens are given, minutes do not matter."""

    target: str
    output: str
    folder: Path
    size: str = "auto"
    minutes: float = 30.0
    own_prompts: tuple[str, ...] = ()
    kind: str = "Q4_0"
    device: str | None = None
    dtype: str | None = None
    n_rows: int | None = None
    length: int = 768
    n_text: int | None = None
    n_steps: int | None = None
    batch_tokens: int | None = None
    rate: float = 1.0
    seed: int = 0
    n_threads: int = 0
    checkpoint_seconds: float = 60.0
    start: str | None = None
    """A draft or head that is trained further."""
    n_known: int | None = None
    """Tokens that a head knows."""
    n_ff: int | None = None
    """How wide its feed-forward part is."""


class Audience(Protocol):
    """Who watches. `stage` names what begins, `progress` how much of it is done, `tell` says a line that stays."""

    def stage(self, name: str) -> None: ...
    def progress(self, share: float, note: str) -> None: ...
    def tell(self, line: str) -> None: ...


class Making:
    """One run."""

    checkpoint_name = "checkpoint.pt"

    def __init__(self, recipe: Recipe, audience: Audience) -> None:
        self.recipe, self.audience = recipe, audience
        self.folder = recipe.folder
        self.work = WorkFolder(recipe.folder)
        self.text = TextFolder(self.folder / TEXT)
        self.checkpoint = self.folder / self.checkpoint_name
        self.shape = hyperparameters(GgufFile(recipe.target))
        self._teacher: Teacher | None = None
        self.own_requests = [request for path in recipe.own_prompts for request in own.load(path)]
        self._check_ahead()

    def _check_ahead(self) -> None:
        ahead.check_output(self.recipe.output, self.recipe.target)
        ahead.check_kind(self.recipe.kind)
        ahead.check_size(self.recipe.size)
        ahead.check_device(self.recipe.device)

    def parts(self) -> list[Part]:
        """What comes to lie in the folder, and what it depends on."""
        recipe = self.recipe
        asked = ", ".join(fingerprint(path) for path in recipe.own_prompts) or NONE
        start = fingerprint(recipe.start) if recipe.start else NONE
        return [
            Part("prepare", MATERIAL, {"-m": fingerprint(recipe.target), "--seed": recipe.seed, "--log": asked}),
            Part("write", TEXT, {"--length": recipe.length}),
            Part("train", self.checkpoint_name, {"--continue": start, **self.size_asked()}),
        ]

    def size_asked(self) -> Settings:
        if self.recipe.size == "auto":
            return {"--size": None}
        size = size_of(self.recipe.size)
        return {"--size": f"{size.width}:{size.n_layers}"}

    def size_made(self, trainer: Trainer) -> Settings:
        shape = trainer.student.shape
        assert isinstance(shape, Hyperparameters)
        return {"--size": f"{shape.n_embd}:{shape.n_layer}"}

    @property
    def teacher(self) -> Teacher:
        if self._teacher is None:
            self.audience.stage("reading the target")
            dtype = getattr(torch, self.recipe.dtype) if self.recipe.dtype else None
            self._teacher = Teacher.read(self.recipe.target, device=self.recipe.device, dtype=dtype)
        return self._teacher

    def run(self, stages: tuple[str, ...] = STAGES) -> None:
        self.work.settle(self.parts(), stages)
        try:
            for stage in stages:
                getattr(self, stage)()
        except torch.cuda.OutOfMemoryError:
            raise ConfigError("the device's memory is full; try half the --rows to write, or --batch-tokens") from None

    def prepare(self) -> Material:
        """The texts to begin with, as tokens."""
        file = self.folder / MATERIAL
        if file.exists():
            return Material.load(file)
        self.audience.stage("preparing")
        material = prepare(self.recipe.target, n_each=N_OPENINGS, seed=self.recipe.seed, own=self.own_requests)
        if material.requests:
            n_answers = sum(bool(answer) for _, answer in material.requests)
            self.audience.tell(f"{len(material.requests)} requests of your own, {n_answers} with recorded answers")
        self.work.note(MATERIAL)
        with writable(self.folder):
            material.save(file)
        return material

    def write(self) -> None:
        """The target writes."""
        material, recipe, teacher = self.prepare(), self.recipe, self.teacher
        self.audience.stage("writing text")
        self.work.note(TEXT)
        seconds = 60 * recipe.minutes * WRITING_SHARE
        n_rows = recipe.n_rows or rows_that_fit(teacher, recipe.length, inf if recipe.n_text else seconds)
        if not self.text.has(HELD_OUT):
            measured = ScriptWriter(material, recipe.length, greedy=True)
            n_held_out = min(N_HELD_OUT, n_rows)
            self.text.save(HELD_OUT, Writer(teacher, measured, n_held_out, seed=recipe.seed).round(HELD_OUT))
        write(
            Writer(teacher, ScriptWriter(material, recipe.length), n_rows, seed=recipe.seed),
            self.text,
            seconds=seconds,
            n_tokens=recipe.n_text,
            on_progress=lambda share, n: self.audience.progress(share, f"{n:,} tokens"),
        )

    def train(self) -> Standing:
        """The student learns."""
        recipe = self.recipe
        params = TrainingParams(
            seconds=60 * recipe.minutes * (1 - WRITING_SHARE),
            n_steps=recipe.n_steps,
            batch_tokens=recipe.batch_tokens,
            rate=recipe.rate,
            seed=recipe.seed,
            checkpoint_seconds=recipe.checkpoint_seconds,
            kind=recipe.kind,
        )
        trainer = self.trainer(params)
        self.work.note(self.checkpoint_name, self.size_made(trainer))
        if self.checkpoint.exists():
            trainer.resume(self.checkpoint)
        self.audience.stage("training")
        standing = trainer.run(self.checkpoint, self._hear)
        self.audience.tell(
            f"{self.described(trainer)}; {standing.n_steps} steps, {standing.seconds / 60:.1f} minutes: "
            f"agreement {standing.agreement:.3f} on held-out text"
        )
        return standing

    def trainer(self, params: TrainingParams) -> Trainer:
        student = Student.fresh(self.student_shape(), self.teacher, self.recipe.seed)
        return Trainer(self.teacher, student, self.text.all(), self.text.load(HELD_OUT), params)

    def described(self, trainer: Trainer) -> str:
        n_params = sum(weights.numel() for weights in trainer.student.parameters())
        return f"{n_params / 1e6:.1f} M parameters"

    def _hear(self, share: float, standing: Standing, speed: float) -> None:
        self.audience.progress(share, f"agreement {standing.agreement:.3f}, {speed:,.0f} tokens/s")

    def student_shape(self) -> Hyperparameters:
        """Of the run so far, if there is one and no size was asked for."""
        if self.recipe.size == "auto" and self.checkpoint.exists():
            return student_of(self.checkpoint)[0].shape
        size = self.best_size() if self.recipe.size == "auto" else size_of(self.recipe.size)
        return shape_of(size, self.shape)

    def best_size(self) -> Size:
        """Which of the sizes promises most: an untrained draft of each takes as long as a trained one."""
        try:
            from paceline.distill.measuring import cost_curve, expectation
        except LibraryError as error:
            raise ConfigError(f"--size auto measures with libllama, which is not here; name a size ({error})") from None
        self.audience.stage("measuring sizes")
        target, found = cost_curve(self.recipe.target, self.recipe.n_threads), {}
        for name, size in SIZES.items():
            trial = self.folder / f"trial-{name}.gguf"
            self.quantized(Student(shape_of(size, self.shape)), trial)
            expected = expectation(target, cost_curve(str(trial), self.recipe.n_threads), size.agreement or 0.0)
            found[name] = expected.speed_up
            trial.unlink()
        best = max(found, key=lambda name: found[name])
        listed = ", ".join(f"{name} {speed_up:.2f}" for name, speed_up in found.items())
        why = "" if found[best] > 1 else "none makes this target faster on this machine; "
        self.audience.tell(f"expected speed-up by size: {listed}; {why}taking {best}")
        return SIZES[best]

    def quantized(self, student: Student, path: Path) -> None:
        """Through libllama at half precision first, where it is there; else as gguf quantises, which knows less."""
        try:
            from paceline.llama.model import quantize
        except LibraryError:
            export(student, self.recipe.target, path, kind=self.recipe.kind, name=path.stem)
            return
        whole = self.folder / "whole.gguf"
        export(student, self.recipe.target, whole, kind="F16", name=path.stem)
        with writable(path.parent):
            quantize(str(whole), str(path), self.recipe.kind, n_threads=self.recipe.n_threads, pure=True)

    def export(self) -> None:
        """The file, and what it is worth."""
        student, standing = student_of(self.checkpoint)
        self.audience.stage("exporting")
        output = Path(self.recipe.output)
        self.quantized(student, output)
        size = output.stat().st_size
        self.audience.tell(
            f"{output}: {size / 2**20:.1f} MiB, {self.recipe.kind}, {student.shape.n_params / 1e6:.1f} M parameters"
        )
        try:
            from paceline.distill.measuring import agreement_of, cost_curve, expectation
        except LibraryError:
            self.audience.tell("without libllama it cannot be measured; `--stage export` elsewhere does that")
            return
        self.audience.stage("measuring")
        held_out = self.text.load(HELD_OUT)
        agreement = agreement_of(str(output), held_out, MEASURED_ROWS, self.recipe.n_threads)
        target, draft = (cost_curve(path, self.recipe.n_threads) for path in (self.recipe.target, str(output)))
        expected = expectation(target, draft, agreement)
        self.audience.tell(
            f"agreement {agreement:.3f} on held-out text (before quantising {standing.agreement:.3f}); a token costs "
            f"{draft.predict(1) / target.predict(1):.3f} of the target's"
        )
        if not expected.n_draft:
            self.audience.tell("expect no gain on this machine: drafting costs more here than it saves")
            return
        self.audience.tell(
            f"expect {expected.speed_up:.2f} times the plain speed here with {expected.n_draft} tokens a draft on such "
            f"text; people's prompts agree less"
        )


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """A full disk or a folder of somebody else's, in one line."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror or error}") from None
