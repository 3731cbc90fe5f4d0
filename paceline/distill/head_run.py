"""An EAGLE-3 head from beginning to end: the stages of `making`, with a head for a draft."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from paceline.distill.eagle3 import Eagle3Head, HeadShape
from paceline.distill.exporting import KINDS
from paceline.distill.head_file import read_head, write_head
from paceline.distill.head_making import N_KNOWN, coverage, frequent, new_head, shape_for, with_vocabulary
from paceline.distill.head_training import HeadTrainer
from paceline.distill.making import MEASURED_ROWS, Making
from paceline.distill.script import TextKind
from paceline.distill.texts import HELD_OUT, Rows
from paceline.distill.training import Trainer, TrainingParams
from paceline.distill.work import Settings
from paceline.errors import ConfigError, LibraryError

BATCH_TOKENS = {"cuda": 32_768, "cpu": 2_048}
"""Fewer than for a model: each is computed several times."""
N_SAMPLE = 16
"""Rows on which the size of the target's states is measured."""
AGAIN = 0.3
"""How fast a head learns that is trained further."""


class HeadMaking(Making):
    """One run. It may share its folder, and so the text in it, with a draft model's."""

    checkpoint_name = "head.pt"

    def _check_ahead(self) -> None:
        super()._check_ahead()
        if self.recipe.kind not in KINDS:
            raise ConfigError(f"--quant: a head can be {', '.join(KINDS)}, not {self.recipe.kind!r}")

    def size_asked(self) -> Settings:
        return {"--head-tokens": self.recipe.n_known, "--head-ff": self.recipe.n_ff}

    def size_made(self, trainer: Trainer) -> Settings:
        shape = trainer.student.shape
        assert isinstance(shape, HeadShape)
        return {"--head-tokens": shape.n_tokens, "--head-ff": shape.n_ff}

    def trainer(self, params: TrainingParams) -> HeadTrainer:
        usual = BATCH_TOKENS["cuda" if self.teacher.device.startswith("cuda") else "cpu"]
        params = replace(params, batch_tokens=params.batch_tokens or usual)
        if self.recipe.start:
            params = replace(params, rate=AGAIN * params.rate)
        text = self.text.all()
        return HeadTrainer(self.teacher, self.head(text), text, self.text.load(HELD_OUT), params)

    def head(self, text: Rows) -> Eagle3Head:
        """What training begins with."""
        if self.checkpoint.exists():
            return head_of(self.checkpoint).to(self.teacher.device)
        torch.manual_seed(self.recipe.seed)
        written = torch.from_numpy(text.tokens[text.kinds != TextKind.GIVEN])
        start = read_head(Path(self.recipe.start)).to(self.teacher.device) if self.recipe.start else None
        n_known = self.recipe.n_known or (start.shape.n_tokens if start else N_KNOWN)
        known = frequent(written, self.shape.n_vocab, n_known, start.tokens if start else None)
        self.audience.tell(
            f"the head knows {len(known)} tokens: {coverage(written, known):.2%} of what the target writes"
        )
        if start:
            return with_vocabulary(start, known, self.teacher)
        shape = shape_for(self.teacher, len(known), n_ff=self.recipe.n_ff or 0)
        sample = torch.from_numpy(text.tokens[:N_SAMPLE]).long().to(self.teacher.device)
        return new_head(self.teacher, shape, known, sample)

    def described(self, trainer: Trainer) -> str:
        ahead = trainer.ahead if isinstance(trainer, HeadTrainer) else []
        found = " ".join(f"{1 + stands:.2f}" for stands in ahead)
        return f"{super().described(trainer)}, tokens per step with 1 to 8 drafted: {found}"

    def export(self) -> None:
        """The file, and what it is worth."""
        head = head_of(self.checkpoint)
        self.audience.stage("exporting")
        output, kind = Path(self.recipe.output), self.recipe.kind
        write_head(output, head, self.recipe.target, kind)
        size = output.stat().st_size
        self.audience.tell(f"{output}: {size / 2**20:.1f} MiB, {kind}, {n_params(head) / 1e6:.1f} M parameters")
        try:
            from paceline.distill.head_measuring import head_agreement
        except LibraryError:
            self.audience.tell("without libllama it cannot be measured; `--stage export` elsewhere does that")
            return
        self.audience.stage("measuring")
        found = head_agreement(
            self.recipe.target, str(output), self.text.load(HELD_OUT), MEASURED_ROWS, self.recipe.n_threads
        )
        self.audience.tell(f"agreement {found:.3f} on held-out text, as libllama computes it")


def n_params(head: Eagle3Head) -> int:
    return sum(values.numel() for values in head.parameters())


def head_of(checkpoint: Path) -> Eagle3Head:
    if not checkpoint.exists():
        raise ConfigError(f"there is no checkpoint at {checkpoint} yet; `--stage train` makes it")
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    head = Eagle3Head(HeadShape(**state["shape"]))
    head.load_state_dict(state["student"])
    return head.eval()
