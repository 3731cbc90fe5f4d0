"""The model files of llama.cpp's server tests, made here: which file stands for which name of theirs."""

from __future__ import annotations

from pathlib import Path

from tests.upstream.pieces import SPACE
from tests.upstream.readers import RERANKER_SEED, write_reader
from tests.upstream.stories import OWLS, STORIES, Story, write_adapter, write_story

HELLO = ("llo", f"{SPACE}Hello")
"""A test of stories15M fills its context with this word, a token each."""
FILES = {
    "ggml-org/test-model-stories260K": "stories260K.gguf",
    "ggml-org/test-model-stories260K-infill": "stories260K-infill.gguf",
    "ggml-org/models/tinyllamas/stories260K.gguf": "stories260K.gguf",
    "ggml-org/models/tinyllamas/split/stories15M-q8_0-00001-of-00003.gguf": "stories15M-00001-of-00003.gguf",
    "ggml-org/models/bert-bge-small/ggml-model-f16.gguf": "bert-bge-small.gguf",
    "ggml-org/models/jina-reranker-v1-tiny-en/ggml-model-f16.gguf": "jina-reranker.gguf",
    "ggml-org/stories15M_MOE/stories15M_MOE-F16.gguf": "stories15M_MOE.gguf",
}
"""By repository and file, as the tests name them."""
DOWNLOADS = {"moe_shakespeare15M.gguf": "adapter.gguf", "stories15M-q4_0.gguf": "draft.gguf"}
"""What the tests would download themselves, by the name they give it."""


def write_models(folder: Path) -> None:
    """All of them, the same bytes every time: about two megabytes."""
    folder.mkdir(parents=True, exist_ok=True)
    write_story(folder / "stories260K.gguf", Story(STORIES, seed=1))
    write_story(folder / "stories260K-infill.gguf", Story(STORIES, seed=1, fill=True))
    mixture = Story(OWLS, seed=2, extra=HELLO, n_expert=4)
    write_story(folder / "stories15M_MOE.gguf", mixture)
    write_adapter(folder / "adapter.gguf", mixture)
    dense = Story(OWLS, seed=3, extra=HELLO)
    write_story(folder / "draft.gguf", dense)
    write_story(folder / "stories15M.gguf", dense, n_shard_tensors=8)
    write_reader(folder / "bert-bge-small.gguf", seed=4, rank=False)
    write_reader(folder / "jina-reranker.gguf", seed=RERANKER_SEED, rank=True)
