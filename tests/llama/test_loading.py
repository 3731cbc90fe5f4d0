"""What the user asks for beside the model file, as libllama takes it: memory, devices, metadata, positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from paceline.config import LOAD_MODES, ContextParams, ModelParams
from paceline.errors import ConfigError, ModelError
from paceline.llama.context import Context, fingerprint
from paceline.llama.lib import Floats
from paceline.llama.model import Model
from tests.tiny import write_adapter

pytestmark = pytest.mark.model


def logits(path: str, context: ContextParams | None = None, **model: Any) -> Floats:
    """Of the last of twenty tokens."""
    params = context or ContextParams(n_ctx=64, n_threads=1)
    with Model(ModelParams(path=path, **model)) as loaded, Context(loaded, params) as opened:
        batch = opened.new_batch()
        batch.add(0, range(60, 80), 0, 1)
        return np.array(opened.decode(batch)[0])


@pytest.fixture(scope="module")
def plain(target: str) -> Floats:
    return logits(target)


@pytest.mark.parametrize("mode", LOAD_MODES)
def test_every_way_to_read_a_file_reads_the_same(target: str, plain: Floats, mode: str) -> None:
    assert np.array_equal(logits(target, load_mode=mode), plain)


def test_weights_are_the_same_wherever_they_live(target: str, plain: Floats) -> None:
    placed = logits(target, tensors=((r"blk\.0\.ffn_(up|down|gate)\.", "CPU"), ("output", "CPU")), devices=())
    assert np.array_equal(placed, plain)
    assert np.array_equal(logits(target, no_host=True, lazy_mode="on", numa="distribute"), plain)


def test_metadata_can_be_read_otherwise(target: str) -> None:
    changed = ("tokenizer.ggml.add_bos_token=bool:true", "tokenizer.ggml.bos_token_id=int:65")
    with Model(ModelParams(path=target)) as model:
        before = model.vocab.tokenize("hi")
    with Model(ModelParams(path=target, metadata=changed)) as model:
        assert model.vocab.tokenize("hi") == [65, *before]
    with Model(ModelParams(path=target, metadata=("llama.context_length=int:1234",))) as model:
        assert model.n_ctx_train == 1234


@pytest.mark.parametrize("entry", ["x", "x=int", "x=long:5", "x=int:five", "x=bool:1", "=int:5", f"x=str:{'y' * 128}"])
def test_metadata_that_is_none_is_refused(target: str, entry: str) -> None:
    with pytest.raises(ConfigError, match="--override-kv"):
        Model(ModelParams(path=target, metadata=(entry,)))


def test_weights_are_checked_when_asked_to_be(tmp_path: Path, target: str) -> None:
    spoilt = tmp_path / "spoilt.gguf"
    data = bytearray(Path(target).read_bytes())
    tensor = next(t for t in gguf.GGUFReader(target).tensors if t.name == "blk.0.ffn_up.weight")
    data[tensor.data_offset : tensor.data_offset + 4] = np.float32(np.nan).tobytes()
    spoilt.write_bytes(data)
    Model(ModelParams(path=str(spoilt))).close()
    with pytest.raises(ModelError, match="invalid data"):
        Model(ModelParams(path=str(spoilt), check_tensors=True))


def test_positions_can_be_stretched(target: str, plain: Floats) -> None:
    def stretched(**positions: Any) -> Floats:
        return logits(target, ContextParams(n_ctx=64, n_threads=1, **positions))

    assert np.array_equal(stretched(rope_freq_base=10000.0, rope_freq_scale=1.0), plain)
    half = stretched(rope_scaling="linear", rope_freq_scale=0.5)
    assert not np.array_equal(half, plain)
    assert not np.array_equal(stretched(rope_freq_base=20000.0), plain)
    yarn = stretched(rope_scaling="yarn", rope_freq_scale=0.5, yarn_orig_ctx=32, yarn_ext_factor=1.0)
    assert not np.array_equal(yarn, half)
    with pytest.raises(ConfigError, match="RoPE scaling 'longrope'"):
        ContextParams(rope_scaling="longrope")


def test_what_is_placed_otherwise_is_measured_anew(target: str) -> None:
    context = ContextParams(n_threads=1)
    usual = fingerprint(ModelParams(path=target), context)
    assert fingerprint(ModelParams(path=target, split_mode="layer"), context) == usual
    assert fingerprint(ModelParams(path=target, tensors=(("exps", "CPU"),)), context) != usual


def test_an_adapter_changes_what_the_model_says_by_its_scale(tmp_path: Path, target: str, plain: Floats) -> None:
    path = write_adapter(tmp_path / "lora.gguf")
    whole = logits(target, adapters=((path, 1.0),)) - plain
    assert np.all(whole[0::2] == 0)
    assert np.all(whole[1::2] != 0)
    assert np.allclose(logits(target, adapters=((path, 0.5),)) - plain, whole / 2, atol=1e-5)
    twice = logits(target, adapters=((path, 1.0), (path, 1.0)))
    assert np.allclose(twice - plain, 2 * whole, atol=1e-5)


def test_what_is_no_adapter_is_refused(tmp_path: Path, target: str) -> None:
    for path, words in ((target, "cannot use the adapter"), (str(tmp_path / "none"), "not found")):
        with pytest.raises(ModelError, match=words):
            Model(ModelParams(path=target, adapters=((path, 1.0),)))


def test_slots_saved_under_an_adapter_are_not_for_others(tmp_path: Path, target: str) -> None:
    path = write_adapter(tmp_path / "lora.gguf")
    owners = set()
    for adapters in ((), ((path, 1.0),), ((path, 0.5),)):
        params = ModelParams(path=target, adapters=adapters)
        with Model(params) as model, Context(model, ContextParams(n_ctx=64, n_threads=1)) as context:
            owners.add(context.owner)
    assert len(owners) == 3
