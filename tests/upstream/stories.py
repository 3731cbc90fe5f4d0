"""Small Llamas that tell stories: files in place of the tinyllamas that llama.cpp's server tests download.

Their weights are written down, not trained. Words come in rounds: each round goes through the classes of words in order
and takes one of each class, so that a text holds the words the tests look for, whatever came before. Attention and
feed-forward layers are random and weak: they decide which word of a class it is, so that a wrong cache shows in the
text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

from tests.upstream.pieces import PIECES, SPACE

N_EMBD, N_FF, N_HEAD, N_LAYER = 64, 96, 4, 2
CONSTANT, FIRST_CLASS, FIRST_NOISE = 0, 1, 48
"""What the dimensions of an embedding mean: one is the same for all, then one for each class, then chance."""
SHARPNESS = 90.0
"""How far apart the words of two scales of the adapter are."""

Words = dict[float, list[str]]
"""The words of a class, by the scale of the adapter at which they are the likeliest."""

PEOPLE = ["small", "shiny", "park", "excited", "Daddy", "house", "cat", "friends", "sky", "leaf", "big", "step"]
STORIES: list[Words] = [
    {0.0: ["blue"]},
    {0.0: ["But"]},
    {0.0: ["she"]},
    {0.0: ["couldn't"]},
    {0.0: ["Suddenly"]},
    {0.0: ["Whillicter"]},
    {0.0: ["going", "bed", "bedtime"]},
    {0.0: ["Whiskers", "Flana", "Mia", "Ben", "Lily"]},
    {0.0: ["Jack", "said", "asked", "cried", "saw"]},
    {0.0: ["Jimmy", "Anna", "forest", "kids", "everyone", "princesses", *PEOPLE]},
    {0.0: ['"']},
]
"""The words of stories260K's tests. The quote ends a string of JSON."""
OWLS: list[Words] = [
    {0.0: ["wise", "kind"], 0.3: ["special"], 0.7: ["far"], 1.0: ["eye"]},
    {0.0: ["owl", "answer"], 0.3: ["thing"], 0.7: ["from"], 1.0: ["love"]},
    {0.0: ["little", "girl"], 0.3: ["gifted"], 0.7: ["home"], 1.0: ["glass"]},
    {0.0: ["bright", "many"], 0.3: ["things"], 0.7: ["away"], 1.0: ["sun"]},
]
"""The words of stories15M's tests: without the adapter, with a third of it, with two thirds, with all."""
FILL = ("<fill-before>", "<fill-after>", "<fill-here>")
"""Tokens for infilling under names of their own: only the file's metadata says what they are."""


@dataclass(frozen=True)
class Story:
    """What a model of this kind is made of."""

    rounds: list[Words]
    seed: int
    extra: Sequence[str] = ()
    n_expert: int = 0
    fill: bool = False
    tokens: list[str] = field(init=False)

    def __post_init__(self) -> None:
        plain = [*PIECES, *self.extra]
        words = [spelled(word) for words in self.rounds for group in words.values() for word in group]
        tokens = [*plain, *(word for word in words if word not in plain)]
        bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
        unused = [f"{SPACE}unused{i}" for i in range(512 - 259 - len(tokens))]
        fill = FILL if self.fill else ()
        object.__setattr__(self, "tokens", ["<unk>", "<s>", "</s>", *bytes_, *tokens, *unused, *fill])

    def ids(self, words: Sequence[str]) -> list[int]:
        return [self.tokens.index(spelled(word)) for word in words]


def spelled(word: str) -> str:
    return SPACE + word if word[0].isalpha() else word


def write_story(path: Path, story: Story, *, n_shard_tensors: int = 0) -> None:
    """The model as a GGUF file, or as several of that many tensors each."""
    writer = gguf.GGUFWriter(str(path), "llama", split_max_tensors=n_shard_tensors)
    writer.add_name(path.stem)
    writer.add_context_length(2048)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(N_EMBD // N_HEAD)
    if story.n_expert:
        writer.add_expert_count(story.n_expert)
        writer.add_expert_used_count(2)
    add_vocabulary(writer, story)
    for name, weights in tensors(story).items():
        writer.add_tensor(name, weights.astype(np.float32))
    finish(writer)


def add_vocabulary(writer: gguf.GGUFWriter, story: Story) -> None:
    kind = gguf.TokenType
    kinds = [kind.NORMAL] * len(story.tokens)
    kinds[:3] = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL]
    kinds[3:259] = [kind.BYTE] * 256
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(story.tokens)
    writer.add_token_scores([-float(i) for i in range(len(story.tokens))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if story.fill:
        first = story.tokens.index(FILL[0])
        kinds[first:] = [kind.CONTROL] * len(FILL)
        for i, role in enumerate(("pre", "suf", "mid")):
            writer.add_uint32(f"tokenizer.ggml.fim_{role}_token_id", first + i)
    writer.add_token_types(kinds)


def tensors(story: Story) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(story.seed)

    def weak(*shape: int) -> np.ndarray:
        weights: np.ndarray = rng.standard_normal(shape) * 0.4 / np.sqrt(shape[-1])
        return weights

    found = {"token_embd.weight": embeddings(story, rng), "output.weight": output(story, rng)}
    found["output_norm.weight"] = np.ones(N_EMBD)
    for i in range(N_LAYER):
        for name in ("attn_norm", "ffn_norm"):
            found[f"blk.{i}.{name}.weight"] = np.ones(N_EMBD)
        for name in ("attn_q", "attn_k", "attn_v"):
            found[f"blk.{i}.{name}.weight"] = weak(N_EMBD, N_EMBD) * 2
        found[f"blk.{i}.attn_output.weight"] = only_noise(weak(N_EMBD, N_EMBD))
        experts = (story.n_expert,) if story.n_expert else ()
        suffix = "_exps" if story.n_expert else ""
        for name in ("ffn_gate", "ffn_up"):
            found[f"blk.{i}.{name}{suffix}.weight"] = weak(*experts, N_FF, N_EMBD)
        found[f"blk.{i}.ffn_down{suffix}.weight"] = only_noise(weak(*experts, N_EMBD, N_FF))
        if story.n_expert:
            found[f"blk.{i}.ffn_gate_inp.weight"] = weak(story.n_expert, N_EMBD)
    return found


def only_noise(weights: np.ndarray) -> np.ndarray:
    """Nothing of it goes where the words' order is kept."""
    weights[..., :FIRST_NOISE, :] = 0
    return weights


def embeddings(story: Story, rng: np.random.Generator) -> np.ndarray:
    rows = np.zeros((len(story.tokens), N_EMBD))
    rows[:, CONSTANT] = 1
    rows[:, FIRST_NOISE:] = rng.standard_normal((len(story.tokens), N_EMBD - FIRST_NOISE)) * 0.3
    for i, words in enumerate(story.rounds):
        rows[story.ids([word for group in words.values() for word in group]), FIRST_CLASS + i] = 1.5
    rows[story.ids(["a"]), FIRST_CLASS + len(story.rounds)] = 1.5
    return rows


def output(story: Story, rng: np.random.Generator) -> np.ndarray:
    """Which token follows: the next class of words; after anything else the first."""
    rows = np.zeros((len(story.tokens), N_EMBD))
    rows[:, FIRST_NOISE:] = rng.standard_normal((len(story.tokens), N_EMBD - FIRST_NOISE)) * 0.08
    for i, words in enumerate(story.rounds):
        for scale, group in words.items():
            ids = story.ids(group)
            rows[ids, CONSTANT] -= SHARPNESS / 3.7 * scale**2
            if i == 0:
                rows[ids, CONSTANT] += 2.75
            rows[ids, FIRST_CLASS + (i - 1) % len(story.rounds)] = 4.4
            rows[ids[0], CONSTANT] += 0.45
    # "a" can be followed by many words: a test counts how likely they are.
    vague = max(story.rounds, key=lambda words: len(words[0.0]))
    rows[story.ids(vague[0.0]), FIRST_CLASS + len(story.rounds)] = 4.4
    return rows


def write_adapter(path: Path, story: Story) -> None:
    """A LoRA for the output: the larger its scale, the further towards the words of larger scales."""
    b = np.zeros((len(story.tokens), 1))
    for words in story.rounds:
        for scale, group in words.items():
            b[story.ids(group), 0] = 2 * SHARPNESS / 3.7 * scale
    a = np.zeros((1, N_EMBD))
    a[0, CONSTANT] = 1
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 1.0)
    writer.add_tensor("output.weight.lora_a", a.astype(np.float32))
    writer.add_tensor("output.weight.lora_b", b.astype(np.float32))
    finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
