"""An EAGLE-3 head in torch computes what libllama computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `distill`")

from paceline.distill.eagle3 import Eagle3Head, HeadShape, Memory  # noqa: E402
from paceline.distill.head_file import read_head, write_head  # noqa: E402
from tests.heads import reference  # noqa: E402
from tests.heads.heads import write_eagle3  # noqa: E402
from tests.heads.reference import Reference, Rows  # noqa: E402
from tests.tiny import write_model  # noqa: E402

TEXT = [int(token) for token in np.random.default_rng(3).integers(0, 256, 120)]
SOME = sorted(int(token) for token in np.random.default_rng(5).permutation(256)[:100])
N_CHAINED = 6


def write_normed(path: Path, target: str) -> str:
    """A random head of the shape that is trained here, with every norm's weights drawn."""
    torch.manual_seed(3)
    head = Eagle3Head(HeadShape(64, (1, 2, 3), len(SOME), n_head=4, n_kv=2, head_width=16, n_ff=96))
    with torch.no_grad():
        for name, values in head.named_parameters():
            values.mul_(3) if values.ndim > 1 else values.uniform_(0.5, 2.0 if "norm" in name else 1.0)
    write_head(path, head.with_tokens(torch.tensor(SOME)), target, "F32")
    return str(path)


@pytest.fixture(scope="module", params=["ours", "normed", "raw", "all tokens"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pair")
    target = write_model(folder / "target.gguf", seed=1, n_layer=4, scale=4.0)
    path = folder / "head.gguf"
    if request.param == "ours":
        return target, write_normed(path, target)
    d2t = None if request.param == "all tokens" else SOME
    return target, write_eagle3(path, own_embeddings=False, d2t=d2t, normed=request.param != "raw")


class Libllama:
    """Raw calls: the rows of the target, what the encoder makes of them, and logits and rows of steps."""

    def __init__(self, target: str, head: str) -> None:
        self.both = Reference(target, head)
        self.features = self.both.rows(TEXT[:-1])

    def steps(self, n: int) -> tuple[Rows, list[tuple[Rows, Rows]], list[int]]:
        """The encoder's rows; logits and own rows of every pair, then of steps that go on greedily; tokens written."""
        with reference.context(self.both.target) as target, reference.context(self.both.head, other=target) as head:
            reference.set_nextn(head, True, True)
            reference.encode(head, self.features)
            encoded = rows = reference.nextn(head, self.both.head, len(TEXT) - 1)
            tokens, positions, found, written = TEXT[1:], list(range(len(TEXT) - 1)), [], list[int]()
            for _ in range(n):
                reference.decode(head, tokens, rows, positions)
                logits = np.stack([reference.logits(head, self.both.head, i) for i in range(len(tokens))])
                rows = reference.nextn(head, self.both.head, len(tokens))
                found.append((logits, rows))
                written.append(int(logits[-1].argmax()))
                rows, tokens, positions = rows[-1:], written[-1:], [positions[-1] + 1]
        return encoded, found, written

    def close(self) -> None:
        self.both.close()


def test_torch_and_libllama_compute_the_same(pair: tuple[str, str]) -> None:
    target, path = pair
    there = Libllama(target, path)
    encoded, steps, written = there.steps(N_CHAINED)
    head = read_head(Path(path))
    embeddings = embeddings_of(target)
    with torch.no_grad():
        rows = head.read(torch.from_numpy(there.features)[None])
        np.testing.assert_allclose(rows[0].numpy(), encoded, rtol=1e-3, atol=1e-3 * np.abs(encoded).max())
        memory: Memory = []
        tokens, first = TEXT[1:], 0
        agreed = list[bool]()
        for step, (logits, own) in enumerate(steps):
            seen = None if not step else torch.ones(1, len(TEXT) - 1 + step, dtype=torch.bool)
            turns = head.turns(first, len(tokens))
            rows = head(embeddings[tokens][None], rows, memory, seen, turns)
            scores = head.scores(rows)[0].numpy()
            there_known = logits[:, head.tokens.numpy()]
            assert np.abs(scores - there_known).max() < 0.02 * np.abs(there_known).max()
            np.testing.assert_allclose(rows[0].numpy(), own, rtol=1e-2, atol=5e-3 * np.abs(own).max())
            agreed += list(head.tokens.numpy()[scores.argmax(-1)] == logits.argmax(-1))
            rows, tokens, first = rows[:, -1:], written[step : step + 1], len(TEXT) - 1 + step
    there.close()
    assert len(agreed) == len(TEXT) - 1 + N_CHAINED - 1
    assert np.mean(agreed) >= 0.99


def embeddings_of(target: str) -> Any:
    import gguf

    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(target).tensors}
    return torch.from_numpy(np.array(stored["token_embd.weight"].data))
