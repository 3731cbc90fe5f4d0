"""An EAGLE-3 head from a tiny target alone: written text, training, a file, drafts that stand in the real engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `distill`")

from paceline import Engine  # noqa: E402
from paceline.config import ContextParams, ModelParams  # noqa: E402
from paceline.distill.eagle3 import Eagle3Head  # noqa: E402
from paceline.distill.head_file import read_head, write_head  # noqa: E402
from paceline.distill.head_measuring import head_agreement, measured_head, read_text  # noqa: E402
from paceline.distill.head_run import HeadMaking, head_of  # noqa: E402
from paceline.distill.making import Recipe  # noqa: E402
from paceline.distill.texts import HELD_OUT  # noqa: E402
from paceline.distill.unrolling import steps, teach  # noqa: E402
from paceline.llama.context import Context  # noqa: E402
from paceline.llama.hidden import Hidden  # noqa: E402
from paceline.llama.model import Model  # noqa: E402
from tests.distill.files import write_target  # noqa: E402

LENGTH, N_ROWS = 48, 128
N_COMPARED = 8
SMALL: dict[str, Any] = {"n_ctx": 256, "n_threads": 1}
LITERAL = {"n_max": 4, "p_min": 0.0}


class Lines:
    """Who watches, and remembers."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def stage(self, name: str) -> None: ...
    def progress(self, share: float, note: str) -> None: ...
    def tell(self, line: str) -> None:
        self.told.append(line)


class Run:
    """One run, from the target to the file, and an untrained head beside it."""

    def __init__(self, folder: Path) -> None:
        self.target = write_target(
            folder / "target.gguf", seed=1, n_layer=3, n_embd=32, n_head=2, n_head_kv=2, sharpness=4.0, tied=False
        )
        recipe = Recipe(
            target=self.target,
            output=str(folder / "head.gguf"),
            folder=folder / "work",
            kind="Q8_0",
            n_rows=N_ROWS,
            length=LENGTH,
            n_text=2 * N_ROWS * LENGTH,
            n_steps=120,
            batch_tokens=12 * LENGTH,
            rate=4.0,
            n_known=200,
            n_ff=64,
            n_threads=1,
        )
        self.lines = Lines()
        self.making = HeadMaking(recipe, self.lines)
        self.making.run()
        self.head = recipe.output
        self.held_out = self.making.text.load(HELD_OUT)
        untrained = HeadMaking(recipe, Lines())
        untrained.checkpoint = folder / "none"
        self.untrained = str(folder / "untrained.gguf")
        write_head(Path(self.untrained), untrained.head(untrained.text.all()), self.target, "Q8_0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("run"))


def test_it_agrees_with_the_target_far_more_than_an_untrained_one(run: Run) -> None:
    trained, untrained = (
        head_agreement(run.target, path, run.held_out, 16, n_threads=1) for path in (run.head, run.untrained)
    )
    assert trained > untrained + 0.3, (trained, untrained, run.lines.told)


def test_it_says_what_it_made(run: Run) -> None:
    said = "\n".join(run.lines.told)
    assert "the head knows 200 tokens" in said
    assert "tokens per step with 1 to 8 drafted" in said
    assert "as libllama computes it" in said


def test_torch_and_libllama_draft_the_same(run: Run, tmp_path: Path) -> None:
    """First tokens of drafts at every position of some rows, by the file at half precision."""
    head, path = head_of(run.making.checkpoint), tmp_path / "half.gguf"
    write_head(path, head, run.target, "F16")
    ours = drafted(run, head)
    theirs = np.array(libllama_drafted(run, str(path)))
    assert (ours == theirs).mean() >= 0.99
    assert torch.equal(read_head(path).tokens, head.tokens)


def drafted(run: Run, head: Eagle3Head) -> npt.NDArray[np.int64]:
    tokens = torch.from_numpy(run.held_out.tokens[:N_COMPARED]).long()
    taught = teach(run.making.teacher, head, tokens, torch.ones(tokens.shape))
    with torch.no_grad():
        rows = next(iter(steps(head, taught, 1)))[:, :-2]
        found: npt.NDArray[np.int64] = head.tokens[head.scores(rows).argmax(-1)].numpy()
    return found


def libllama_drafted(run: Run, path: str) -> list[list[int]]:
    params = ContextParams(n_ctx=2 * LENGTH, n_batch=LENGTH, n_threads=1, n_threads_batch=1)
    with (
        Model(ModelParams(path=run.target)) as model,
        Context(model, params) as context,
        measured_head(path, context, 1) as head,
    ):
        hidden = Hidden(context.handle, model, [head.source])
        texts = [[int(token) for token in row] for row in run.held_out.tokens[:N_COMPARED]]
        return [head.firsts(read_text(context, hidden, head.source, text[:-1]), text) for text in texts]


def test_it_drafts_in_the_engine(run: Run) -> None:
    """The very text of the target alone, in far fewer steps than with an untrained head."""
    prompt = [int(token) for token in run.held_out.tokens[0, :8]]
    steps_of, texts = {}, []
    for path in (run.untrained, run.head):
        with Engine(
            run.target, draft=path, spec_types=["draft-eagle3"], spec_policy="fixed", exact=True, **SMALL
        ) as engine:
            generation = engine.generate(prompt, max_tokens=64, temperature=0, ignore_eos=True, speculative=LITERAL)
            texts.append([piece.token.id for chunk in generation for piece in chunk.pieces])
            assert generation.finish
            steps_of[path] = generation.finish.timings.n_steps
    assert texts[0] == texts[1]
    assert steps_of[run.head] < 0.75 * steps_of[run.untrained]
