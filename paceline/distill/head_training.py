"""An EAGLE-3 head learns: the loop of `training`, with steps that the head takes by itself."""

from __future__ import annotations

import torch

from paceline.distill.eagle3 import Eagle3Head
from paceline.distill.optimizing import optimizers
from paceline.distill.script import TextKind
from paceline.distill.training import Trainer, favourite
from paceline.distill.unrolling import accepted, lesson, teach

RATE, OUTPUT_RATE = 1.2e-3, 5e-4
"""The output is the target's own to begin with, and changes slowly."""
N_STEPS = 3
"""Tokens ahead that a head is trained for: those that most drafts get to. Each takes as long as the first."""
FADING = 0.8
N_MEASURED = 8
"""Tokens of a draft when it is measured."""
MEASURED_TOKENS = 32_768
"""Of held-out text, at a time."""


class HeadTrainer(Trainer):
    """`Trainer` with a head for a student."""

    student: Eagle3Head
    ahead: list[float]
    """Tokens of a draft that stand, on average, for drafts of one to eight tokens; as of the last measurement."""

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        table = self.student.output.weight
        return optimizers(self.student, [table], rate=RATE, table_rate=OUTPUT_RATE, device=self.device)

    def loss(self, tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        taught = teach(self.teacher, self.student, tokens, weight, favourite(self.share))
        with self.teacher.precision():
            return lesson(self.student, taught, N_STEPS, FADING).loss

    def measure(self) -> float:
        """What drafts would come to on the text that the target wrote at temperature 0."""
        tokens, kinds = self.held_out
        n_rows = 1 << (max(1, MEASURED_TOKENS // tokens.shape[1]).bit_length() - 1)
        parts = []
        for start in range(0, len(tokens), n_rows):
            some, who = tokens[start : start + n_rows], kinds[start : start + n_rows]
            weight = (who.roll(-1, 1) == int(TextKind.GREEDY)).float()
            taught = teach(self.teacher, self.student, some, weight)
            with self.teacher.precision():
                parts.append(accepted(self.student, taught, N_MEASURED))
        stand = torch.cat(parts)
        self.ahead = [round(float(stand.clamp(max=k).mean()), 3) for k in range(1, N_MEASURED + 1)]
        return self.ahead[0]
