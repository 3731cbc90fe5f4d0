"""Targets and heads that must agree: whatever the head drafts, the target writes.

A token's embedding is (u, 0), where u is 32 signs. The target's first layer looks at the token before and adds
what it knows of it: the hidden row is h = (u, A u_before), A orthogonal; its other layers pass that on. So the next
token depends on the last two, and a head needs its token and the row of the one before, (u_before, ...), to make the
same h by a linear map. With a row of another token it would be wrong. What a head hands to its next step is again h.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.heads.files import HEAD_WIDTH, MASK, WIDTH, File, Matrix
from tests.heads.heads import BLOCK
from tests.heads.targets import STEP_WINDOW, add_gemma_attention_keys

HALF = WIDTH // 2
NORMED = np.sqrt(2.0)
"""What a norm multiplies (u, 0) by; h it leaves as it is."""
STRONG = 400.0
"""Attention to one place, and none to any other."""
LAYERS = 4
CONTROL = [256, 257]


def write_right_llama(path: Path, *, seed: int = 31, n_layer: int = LAYERS, n_ff: int | None = None) -> str:
    """All of a seed say the same, however many layers they have; a large `n_ff` makes one slow."""
    file = File(path, "llama", seed=seed, n_layer=n_layer, n_ff=n_ff)
    file.writer.add_rope_dimension_count(HEAD_WIDTH)
    mix = add_tokens(file)
    for i in range(n_layer):
        add_block(file, i, mix, neighbours=True)
    return file.done()


def write_right_eagle3(path: Path, *, seed: int = 31) -> str:
    """To the llama of the same seed. It borrows embeddings and output, and reads the last of its three layers.

    The token reaches an EAGLE-3 head through attention only, so each position must hear itself: the heads look for
    what equals their own u, u_before and A u_before_that, and find it here (or where it is the same).
    """
    file = File(path, "eagle3", seed=seed, n_head=3)
    _, mix, _ = weights(file, file.vocab())
    file.keys({"target_layers": [0, 1, 3], "target_hidden_size": WIDTH})
    file.keys({"attention.key_length": HEAD_WIDTH, "attention.value_length": HEAD_WIDTH})
    file.ones(("output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm"))
    file.tensor("fc.weight", np.hstack([zeros(WIDTH, 2 * WIDTH), np.eye(WIDTH, dtype=np.float32)]))
    one, none = np.eye(HALF, dtype=np.float32), zeros(HALF, HALF)
    look = np.block([[one / NORMED, none, none, none], [none, none, one, none], [none, none, none, one]])
    file.tensor("blk.0.attn_q.weight", as_floats(STRONG * look))
    file.tensor("blk.0.attn_k.weight", as_floats(look))
    file.tensor("blk.0.attn_v.weight", as_floats(look))
    # The row that was read is added to this, by the head's residual; so it is taken away here.
    file.tensor("blk.0.attn_output.weight", as_floats(np.block([[one, -one, none], [none, mix, -one]])))
    add_silence(file, "blk.0")
    return file.done()


def write_right_step35(path: Path, *, seed: int = 32, n_heads: int = 1, n_layer: int = LAYERS) -> str:
    """With NextN blocks in its own file that only mix their two inputs, or `n_heads` of them in a chain."""
    n_all = n_layer + n_heads
    file = File(path, "step35", seed=seed, n_layer=n_all)
    file.keys({"attention.sliding_window": STEP_WINDOW, "expert_feed_forward_length": 2 * WIDTH})
    file.keys({"attention.sliding_window_pattern": [i % 2 == 0 for i in range(n_all)]})
    file.keys({"nextn_predict_layers": n_heads})
    mix = add_tokens(file)
    for i in range(n_all):
        add_block(file, i, mix, neighbours=False)
    one, none = np.eye(HALF, dtype=np.float32), zeros(HALF, HALF)
    for i in range(n_layer, n_all):
        join = np.block([[one / NORMED, none, none, none], [none, none, mix, none]])
        file.tensor(f"blk.{i}.nextn.eh_proj.weight", as_floats(join))
        file.ones((f"blk.{i}.nextn.enorm", f"blk.{i}.nextn.hnorm"))
    return file.done()


def write_right_dflash(path: Path, *, seed: int = 31) -> str:
    """To the llama of the same seed; right in its first token. Further ones would need the tokens between.

    The first mask hears the token before it, which is in the block, and the row before that; and takes away itself.
    """
    file = File(path, "dflash", seed=seed)
    embeddings, mix, _ = weights(file, file.vocab())
    output = np.block([[np.eye(HALF, dtype=np.float32), zeros(HALF, HALF)], [zeros(HALF, HALF), mix]])
    output[:HALF, 0] -= embeddings[MASK, :HALF]
    add_block_drafter(file, looks=(1, 2), output=output)
    file.ones(("output_norm",))
    return file.done()


def write_right_dspark(path: Path, *, seed: int = 31) -> str:
    """To the llama of the same seed; right in its first two tokens.

    Its Markov part has what the target's output says of the token before; its rows have what it says of the one before
    that, heard from one position back, and nothing of their own token.
    """
    file = File(path, "dflash", seed=seed)
    embeddings, mix, says = weights(file, file.vocab())
    output = np.block([[-np.eye(HALF, dtype=np.float32), zeros(HALF, HALF)], [zeros(HALF, HALF), mix]])
    add_block_drafter(file, looks=(0, 1), output=output)
    file.ones(("output_norm",), value=1 / NORMED)
    file.tensor("markov_w1.weight", embeddings[:, :HALF])
    file.tensor("markov_w2.weight", says[:, :HALF])
    file.keys({"sample_from_anchor": True, "has_confidence_head": False})
    return file.done()


def write_right_gemma4(path: Path, *, seed: int = 33, n_layer: int = LAYERS) -> str:
    file = File(path, "gemma4", seed=seed, n_layer=n_layer)
    file.keys({"embedding_length_per_layer_input": 0})
    add_gemma_attention_keys(file, n_layer)
    embeddings, mix, says = weights(file, file.vocab())
    file.tensor("token_embd.weight", embeddings / np.float32(np.sqrt(WIDTH)))
    file.tensor("output.weight", says)
    file.ones(("output_norm",))
    for i in range(n_layer):
        add_block(file, i, mix, neighbours=False)
        file.ones((f"blk.{i}.attn_q_norm",), HEAD_WIDTH, STRONG)
        file.ones((f"blk.{i}.attn_k_norm",), HEAD_WIDTH)
        file.ones((f"blk.{i}.post_attention_norm", f"blk.{i}.post_ffw_norm"), value=1 / NORMED)
    file.tensor("rope_freqs.weight", np.ones(HEAD_WIDTH // 2, np.float32))
    return file.done()


def write_right_gemma4_assistant(path: Path, *, seed: int = 33) -> str:
    """To the gemma4 of the same seed: twice as wide, for the widths must differ, and empty in its second half."""
    file = File(path, "gemma4-assistant", seed=seed, width=2 * WIDTH, n_layer=2)
    file.keys({"embedding_length_out": WIDTH, "nextn_predict_layers": 2})
    add_gemma_attention_keys(file, 2)
    _, mix, says = weights(file, file.vocab())
    file.tensor("token_embd.weight", np.hstack([says, np.zeros_like(says)]))
    file.ones(("output_norm",), value=1 / NORMED)
    one, none = np.eye(HALF, dtype=np.float32), zeros(HALF, HALF)
    join = np.block([[one, none, none, none], [none, none, mix, none]])
    file.tensor("nextn.pre_projection.weight", as_floats(np.vstack([join, np.zeros_like(join)])))
    file.tensor("nextn.post_projection.weight", np.eye(WIDTH, 2 * WIDTH, dtype=np.float32))
    for i in range(2):
        block = f"blk.{i}"
        file.tensor(f"{block}.attn_q.weight", zeros(WIDTH, file.width))
        file.tensor(f"{block}.attn_output.weight", zeros(file.width, WIDTH))
        file.ones(f"{block}.{name}" for name in ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"))
        file.ones((f"{block}.attn_q_norm",), HEAD_WIDTH)
        file.ones((f"{block}.layer_output_scale",), 1)
        add_silence(file, block)
    file.tensor("rope_freqs.weight", np.ones(HEAD_WIDTH // 2, np.float32))
    return file.done()


def add_block_drafter(file: File, *, looks: tuple[int, int], output: Matrix) -> None:
    """One layer of two heads, which hear the u of one place each: so many positions back."""
    file.writer.add_mask_token_id(MASK)
    file.keys({"target_layers": [0, 1, 3], "block_size": BLOCK})
    file.tensor("fc.weight", np.eye(WIDTH, 3 * WIDTH, 2 * WIDTH, np.float32) * (np.arange(WIDTH) < HALF)[:, None])
    file.ones(("enc.output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"))
    file.ones(("blk.0.attn_q_norm",), HEAD_WIDTH, STRONG)
    file.ones(("blk.0.attn_k_norm",), HEAD_WIDTH)
    query, key, value = (zeros(WIDTH, WIDTH) for _ in range(3))
    query[:, 0] = np.concatenate([turned_back(steps, neighbours=False) for steps in looks])
    key[:, 0] = 1
    value[:, :HALF] = np.vstack([np.eye(HALF), np.eye(HALF)]) / NORMED
    for name, values in (("attn_q", query), ("attn_k", key), ("attn_v", value), ("attn_output", output)):
        file.tensor(f"blk.0.{name}.weight", as_floats(values))
    add_silence(file, "blk.0")


def add_tokens(file: File) -> Matrix:
    """Vocabulary, embeddings and output; the matrix A."""
    embeddings, mix, output = weights(file, file.vocab())
    file.tensor("token_embd.weight", embeddings)
    file.ones(("output_norm",))
    file.tensor("output.weight", output)
    return mix


def weights(file: File, n_vocab: int) -> tuple[Matrix, Matrix, Matrix]:
    """Embeddings, A and the output that belong to a seed, whoever asks.

    The first sign is always plus: something that attention can hold on to. No text ends by itself: control tokens are
    never likely.
    """
    signs = file.rng.choice(np.array([-1, 1], np.float32), (n_vocab, HALF))
    signs[:, 0] = 1
    mix, _ = np.linalg.qr(file.rng.standard_normal((HALF, HALF)))
    output = file.random(n_vocab, WIDTH, 4.0)
    output[CONTROL] = 0
    return np.hstack([signs, zeros(n_vocab, HALF)]), as_floats(mix), output


def add_block(file: File, i: int, mix: Matrix, *, neighbours: bool) -> None:
    """Block 0 looks back by one; the others say nothing. `neighbours`: which numbers of a head turn together."""
    block = f"blk.{i}"
    file.ones((f"{block}.attn_norm", f"{block}.ffn_norm"))
    query, key, value, output = (zeros(WIDTH, WIDTH) for _ in range(4))
    if i == 0:
        query[:HALF, 0] = STRONG * turned_back(1, neighbours=neighbours)
        key[:HALF, 0] = 1
        value[:HALF, :HALF] = np.eye(HALF) / NORMED
        output[HALF:, :HALF] = mix
    for name, values in (("attn_q", query), ("attn_k", key), ("attn_v", value), ("attn_output", output)):
        file.tensor(f"{block}.{name}.weight", values)
    add_silence(file, block)


def turned_back(steps: int, *, neighbours: bool) -> Matrix:
    """A query that meets keys of ones best which stand `steps` positions before it, by how positions turn them."""
    angles = steps * 10000.0 ** (-np.arange(HALF // 2) / (HALF // 2))
    pair = [np.cos(angles) + np.sin(angles), np.cos(angles) - np.sin(angles)]
    return as_floats(np.stack(pair, axis=1).ravel() if neighbours else np.concatenate(pair))


def add_silence(file: File, block: str) -> None:
    """A feed-forward that adds nothing."""
    file.tensor(f"{block}.ffn_gate.weight", zeros(file.n_ff, file.width))
    file.tensor(f"{block}.ffn_up.weight", zeros(file.n_ff, file.width))
    file.tensor(f"{block}.ffn_down.weight", zeros(file.width, file.n_ff))


def zeros(rows: int, columns: int) -> Matrix:
    return np.zeros((rows, columns), np.float32)


def as_floats(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Matrix:
    return np.ascontiguousarray(values, np.float32)
