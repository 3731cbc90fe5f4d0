"""A student learns to say what the teacher says: both read the same text, and the student's chances are moved towards
the teacher's. Stops by the clock or after so many steps, and goes on where it was after a kill."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paceline.distill.eagle3 import Eagle3Head
from paceline.distill.loss import Distance, group_size
from paceline.distill.optimizing import optimizers
from paceline.distill.reading import Hyperparameters
from paceline.distill.rounding import plain_state, round_weights
from paceline.distill.script import WEIGHTS, TextKind
from paceline.distill.student import N_CTX, Student
from paceline.distill.target import Teacher, precision
from paceline.distill.texts import Rows
from paceline.errors import ConfigError, ModelError
from paceline.files import write_whole

RATE, EMBEDDING_RATE = 4e-3, 3e-3
LAST_RATE = 0.01
WARM_UP = 0.02
LONGEST_STEP = 1.0
MEASURED_EVERY = 0.1
"""Of a short training; a long one is measured by the clock."""
FAVOURITE = (0.1, 0.6)
"""How much the teacher's favourite counts beside its chances: at first, and from half of the time on up to."""
LONG_EVERY = 3
"""Each third step joins rows to long ones, so that the student has seen the positions it will stand at."""
BATCH_TOKENS = {"cuda": 32_768, "cpu": 4_096}
"""Four times as many run a third quicker on an H200, but small students learn by the number of steps."""
ROUNDED_FROM = 0.7
"""The share of the training after which weights are rounded as the file will round them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingParams:
    """Ends after `n_steps`, or where that is None after so many seconds of training."""

    seconds: float = 600.0
    n_steps: int | None = None
    batch_tokens: int | None = None
    rate: float = 1.0
    seed: int = 0
    checkpoint_seconds: float = 60.0
    kind: str = "F16"


@dataclass(slots=True)
class Standing:
    """How far it got. `agreement` is the last measured on held-out text."""

    n_steps: int = 0
    seconds: float = 0.0
    agreement: float = 0.0
    history: list[tuple[float, float]] = field(default_factory=list)


class Trainer:
    """One student, one teacher, the text on the device."""

    def __init__(
        self, teacher: Teacher, student: Student | Eagle3Head, text: Rows, held_out: Rows, params: TrainingParams
    ) -> None:
        self.teacher, self.student, self.params = teacher, student, params
        self.device = teacher.device
        self.tokens, self.kinds = self._placed(text)
        self.weights = torch.tensor([WEIGHTS[kind] for kind in TextKind], device=self.device)
        n_tokens = params.batch_tokens or BATCH_TOKENS["cuda" if self.device.startswith("cuda") else "cpu"]
        self.n_rows = even(min(len(self.tokens), max(1, n_tokens // self.tokens.shape[1])))
        self.held_out = self._placed(Rows(held_out.tokens[: self.n_rows], held_out.kinds[: self.n_rows]))
        self.n_joined = joined(self.n_rows, self.tokens.shape[1], student.shape.n_ctx)
        self.optimizers = self._optimizers()
        self.standing = Standing()
        self.order: tuple[int, torch.Tensor] | None = None
        teacher.hasten(self.device)
        student.hasten(self.device)

    def _placed(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(rows.tokens).to(self.device), torch.from_numpy(rows.kinds).to(self.device)

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        table = self.student.embedding.weight
        return optimizers(self.student, [table], rate=RATE, table_rate=EMBEDDING_RATE, device=self.device)

    @property
    def share(self) -> float:
        """Of the training, done."""
        if self.params.n_steps is not None:
            return min(1.0, self.standing.n_steps / self.params.n_steps)
        return min(1.0, self.standing.seconds / self.params.seconds)

    def run(self, checkpoint: Path, on_progress: Callable[[float, Standing, float], None]) -> Standing:
        """Trains to the end; the checkpoint is renewed every so often. `on_progress` hears the share done, the
        standing and the tokens a second."""
        if not self.standing.history:
            self._note()
        saved = time.monotonic()
        while self.share < 1:
            begun = time.monotonic()
            n_steps = self._some_steps()
            seconds = time.monotonic() - begun
            self.standing.seconds += seconds
            measured = self.standing.history[-1][0]
            if time.monotonic() - saved > self.params.checkpoint_seconds or self.share >= measured + MEASURED_EVERY:
                self._note()
                self.standing.seconds += time.monotonic() - begun - seconds
                self.save(checkpoint)
                saved = time.monotonic()
            on_progress(self.share, self.standing, n_steps * self.n_rows * self.tokens.shape[1] / seconds)
        self._note()
        self.save(checkpoint)
        return self.standing

    def _some_steps(self) -> int:
        """For about a second, without waiting for the device in between."""
        begun, before, loss = time.monotonic(), self.standing.n_steps, torch.zeros(())
        while time.monotonic() - begun < LONGEST_STEP and self.standing.n_steps != self.params.n_steps:
            loss = self.step()
            self.standing.n_steps += 1
        if not math.isfinite(float(loss)):
            raise ModelError("training came to no numbers; try --rate 0.5, or --dtype float32")
        return self.standing.n_steps - before

    def step(self) -> torch.Tensor:
        if self.share >= ROUNDED_FROM:
            round_weights(self.student.stored_small(), self.params.kind)
        for group in [group for optimizer in self.optimizers for group in optimizer.param_groups]:
            group["lr"] = group["rate"] * self.params.rate * pace(self.share)
        loss = self.loss(*self.batch(self.standing.n_steps))
        self.student.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach()

    def loss(self, tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), self.teacher.precision():
            wanted = self.teacher(tokens).hidden.flatten(0, 1)
        with self.teacher.precision():
            hidden = self.student(tokens).hidden.flatten(0, 1)
        b = torch.tensor(favourite(self.share), device=self.device)
        found: torch.Tensor = Distance.apply(
            hidden, self.student.output, wanted, self.teacher.output, weight.flatten(), b
        )
        return found

    def batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens, and how much the word after each of them counts. The same for the same number and seed."""
        per_epoch = max(1, len(self.tokens) // self.n_rows)
        epoch, place = divmod(number, per_epoch)
        if self.order is None or self.order[0] != epoch:
            rng = np.random.default_rng((self.params.seed, epoch))
            self.order = epoch, torch.from_numpy(rng.permutation(len(self.tokens))).to(self.device)
        chosen = self.order[1][place * self.n_rows : (place + 1) * self.n_rows]
        tokens, kinds = self.tokens[chosen], self.kinds[chosen]
        weight = torch.zeros_like(tokens, dtype=torch.float32)
        weight[:, :-1] = self.weights[kinds[:, 1:].long()]
        if number % LONG_EVERY == LONG_EVERY - 1 and self.n_joined > 1:
            shape = (self.n_rows // self.n_joined, -1)
            return tokens.reshape(shape), weight.reshape(shape)
        return tokens, weight

    def _note(self) -> None:
        self.standing.agreement = self.measure()
        self.standing.history.append((round(self.share, 4), round(self.standing.agreement, 4)))

    def measure(self) -> float:
        return agreement(self.student, *self.held_out, n_rows=self.n_rows)

    def save(self, path: Path) -> None:
        data = io.BytesIO()
        state: dict[str, Any] = {
            "shape": asdict(self.student.shape),
            "student": plain_state(self.student),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "standing": asdict(self.standing),
        }
        torch.save(state, data)
        try:
            write_whole(path, data.getvalue())
        except OSError as error:
            raise ConfigError(f"cannot write the checkpoint {path}: {error.strerror or error}") from None

    def resume(self, path: Path) -> None:
        state = torch.load(path, map_location=self.device, weights_only=True)
        if state["shape"] != asdict(self.student.shape):
            raise ConfigError(f"{path} holds a draft of another size; remove it, or ask for that size")
        self.student.load_state_dict(state["student"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.standing = Standing(**state["standing"])


def student_of(checkpoint: Path, device: str = "cpu") -> tuple[Student, Standing]:
    """What a checkpoint holds, for export."""
    if not checkpoint.exists():
        raise ConfigError(f"there is no checkpoint at {checkpoint} yet; `--stage train` makes it")
    state = torch.load(checkpoint, map_location=device, weights_only=True)
    student = Student(Hyperparameters(**state["shape"]))
    student.load_state_dict(state["student"])
    return student.to(device).eval(), Standing(**state["standing"])


def joined(n_rows: int, length: int, n_ctx: int = N_CTX) -> int:
    """How many rows make a long one."""
    n = max(1, n_ctx // length)
    while n_rows % n:
        n -= 1
    return n


def even(n_rows: int) -> int:
    """A multiple of 32 where there are so many: kernels are compiled for each size of a batch and its groups."""
    return n_rows if n_rows < 32 else n_rows - n_rows % 32


def pace(share: float) -> float:
    """How fast to learn: up at once, then down like a cosine."""
    warm = min(1.0, (share + 1e-3) / WARM_UP)
    return warm * (LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * share)))


def favourite(share: float) -> float:
    low, high = FAVOURITE
    return low + (high - low) * max(0.0, 2 * share - 1)


def agreement(student: Student, tokens: torch.Tensor, kinds: torch.Tensor, *, n_rows: int) -> float:
    """How often the student's favourite is what the target wrote at temperature 0."""
    right = counted = 0
    device = str(tokens.device)
    with torch.no_grad(), precision(device):
        for start in range(0, len(tokens), n_rows):
            some, who = tokens[start : start + n_rows], kinds[start : start + n_rows]
            hidden = student(some).hidden[:, :-1][who[:, 1:] == int(TextKind.GREEDY)]
            wanted = some[:, 1:][who[:, 1:] == int(TextKind.GREEDY)]
            for group, words in zip(
                hidden.split(group_size(student.output)), wanted.split(group_size(student.output)), strict=True
            ):
                right += int((student.logits(group).argmax(-1) == words).sum())
            counted += len(wanted)
    return right / max(1, counted)
