"""The target's flags for devices and memory: each is read back from libllama, or its effect is seen."""

from __future__ import annotations

import ctypes
import logging
import sys
from pathlib import Path

import pytest

from paceline.llama.devices import can_offload, found_devices
from paceline.llama.lib import c
from paceline.llama.loading import BufferOverride, ModelStruct, is_numa, start_numa
from tests.placing import locked, mapped, moved, opened, settings_of
from tests.tiny import write_model

pytestmark = pytest.mark.model
linux = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
no_gpu = pytest.mark.skipif(can_offload(), reason="there is a GPU")
EXPERTS = {f"blk.{i}.ffn_{part}_exps.weight" for i in range(3) for part in ("gate", "up", "down")}


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("moe") / "moe.gguf", n_layer=3, n_expert=4)


@pytest.fixture
def chatty(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="paceline.llama")
    return caplog


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("-ngl 3", "n_gpu_layers", 3),
        ("-ngl99", "n_gpu_layers", 99),
        ("--gpu-layers all", "n_gpu_layers", -1),
        ("-sm none", "split_mode", 0),
        ("--split-mode layer", "split_mode", 1),
        ("--split-mode graph", "split_mode", 1),
        ("-sm row", "split_mode", 2),
        ("-mg 2", "main_gpu", 2),
        ("--main-gpu 2 --main-gpu 1", "main_gpu", 1),
        ("--mlock", "load_mode", 3),
        ("--no-mmap", "load_mode", 0),
        ("--no-mmap --mlock", "load_mode", 2),
        ("-lm dio", "load_mode", 4),
        ("--no-repack", "use_extra_bufts", False),
        ("--no-host", "no_host", True),
        ("--check-tensors", "check_tensors", True),
    ],
)
def test_a_flag_reaches_the_struct(target: str, line: str, field: str, value: int) -> None:
    usual = ModelStruct(settings_of("", target).model).raw
    raw = ModelStruct(settings_of(line, target).model).raw
    assert getattr(raw, field) == value
    changed = {name for name, _ in raw._fields_ if isinstance(getattr(raw, name), int)}
    assert {name for name in changed if getattr(raw, name) != getattr(usual, name)} <= {field}


@pytest.mark.parametrize("line", ["-ts 3,1", "--tensor-split 3/1"])
def test_shares_reach_the_struct(target: str, line: str) -> None:
    struct = ModelStruct(settings_of(line, target).model)
    assert list(struct.raw.tensor_split[:2]) == [3.0, 1.0]
    assert list(struct.raw.tensor_split[2 : c.llama_max_devices()]) == [0.0] * (c.llama_max_devices() - 2)


def test_no_device_is_an_empty_list(target: str) -> None:
    """NULL would be all there are."""
    assert not ModelStruct(settings_of("", target).model).raw.devices
    struct = ModelStruct(settings_of("-dev none", target).model)
    assert ctypes.cast(struct.raw.devices, ctypes.POINTER(ctypes.c_void_p))[0] is None


def test_a_device_is_named_as_others_name_it_too(target: str) -> None:
    for device in found_devices():
        if device.offloads:
            for name in (device.name, device.name.lower(), f"{device.name[:-1]}:{device.name[-1]}"):
                struct = ModelStruct(settings_of(f"-dev {name}", target).model)
                assert ctypes.cast(struct.raw.devices, ctypes.POINTER(ctypes.c_void_p))[0] == device.handle


def test_patterns_reach_the_struct_in_order(target: str) -> None:
    struct = ModelStruct(settings_of(r"-ot 'blk\.1=CPU,output' -ot=exp -ncmoe 1", target).model)
    rows = ctypes.cast(struct.raw.tensor_buft_overrides, ctypes.POINTER(BufferOverride))
    assert [rows[i].pattern for i in range(3)] == [rb"blk\.1", b"output", b"exp"]
    assert rows[3].pattern.startswith(rb"blk\.0\.ffn_")
    assert rows[4].pattern is None
    assert all(rows[i].buffer for i in range(4))


@pytest.mark.parametrize(
    ("line", "tensors"),
    [
        (r"-ot 'blk\.1\.attn_[qk]=CPU'", {"blk.1.attn_q.weight", "blk.1.attn_k.weight"}),
        ("-ot=exp", EXPERTS),
        ("--override-tensor ffn_up_exps=CPU", {name for name in EXPERTS if "up" in name}),
        ("-cmoe", EXPERTS),
        ("--cpu-moe", EXPERTS),
        ("-ncmoe 2", {name for name in EXPERTS if not name.startswith("blk.2")}),
        ("--n-cpu-moe 0", set()),
        ("", set()),
    ],
)
def test_tensors_go_where_they_are_put(
    moe: str, chatty: pytest.LogCaptureFixture, line: str, tensors: set[str]
) -> None:
    with opened(line, moe):
        found = moved(chatty)
    assert set(found) == tensors
    assert {memory.split("_")[0] for memory in found.values()} <= {"CPU"}


def test_feed_forward_parts_of_dense_layers_too(target: str, chatty: pytest.LogCaptureFixture) -> None:
    with opened("-ncffn 1", target):
        assert set(moved(chatty)) == {f"blk.0.ffn_{part}.weight" for part in ("gate", "up", "down")}


@linux
def test_a_file_is_mapped_or_read(target: str) -> None:
    for line, is_mapped in (("", True), ("--mmap", True), ("--no-mmap", False), ("-lm none", False)):
        with opened(line, target):
            assert mapped(target) is is_mapped, line
    assert not mapped(target)


@linux
def test_locked_memory_stays(target: str, chatty: pytest.LogCaptureFixture) -> None:
    with opened("", target):
        before = locked()
    with opened("--mlock", target):
        held = locked() - before
    refused = any("failed to mlock" in message for message in chatty.messages)
    assert refused or held >= Path(target).stat().st_size // 1024 - 64
    assert locked() == before


@linux
def test_memory_nodes(target: str, caplog: pytest.LogCaptureFixture) -> None:
    """This machine has one, and says so; several would be libllama's to use."""
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    start_numa.cache_clear()
    with opened("--numa distribute", target), opened("--numa distribute", target):
        warned = [message for message in caplog.messages if "--numa distribute cannot act here" in message]
    assert is_numa() is (nodes > 1)
    assert len(warned) == (0 if nodes > 1 else 1)


def n_bytes_of(line: str, path: str) -> tuple[int, int]:
    """Of a hundred tokens in the cache; and what the cache takes."""
    with opened(line, path) as parts:
        batch = parts.context.new_batch()
        batch.add(0, range(100), 0, 1)
        parts.context.decode(batch)
        return parts.context.state_size(0), parts.context.n_bytes_cache


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("-ctk q8_0", (16 + 8.5) / 32),
        ("-ctv q8_0 -fa on", (16 + 8.5) / 32),
        ("--cache-type-k q4_0 --cache-type-v q4_0 -fa on", 4.5 / 16),
        ("-ctk f32 -ctv f32", 2.0),
        ("-ctk bf16", 1.0),
    ],
)
def test_cache_types_show_in_the_memory_used(target: str, line: str, share: float) -> None:
    usual, whole = n_bytes_of("", target)
    found, cache = n_bytes_of(line, target)
    assert found / usual == pytest.approx(share, abs=0.1)
    assert cache / whole == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    ("line", "writing", "reading"),
    [("", 1, 1), ("-t 3", 3, 3), ("-t 3 -tb 2", 3, 2), ("-tb 2", 1, 2), ("--threads 2 --threads-batch 4", 2, 4)],
)
def test_threads_are_the_contexts(target: str, line: str, writing: int, reading: int) -> None:
    with opened(line, target) as parts:
        assert c.llama_n_threads(parts.context.handle) == writing
        assert c.llama_n_threads_batch(parts.context.handle) == reading


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("-ngl 99", "-ngl 99"),
        ("-dev CUDA0", "-dev"),
        ("-dev cuda:0,Vulkan1", "-dev"),
        ("-sm row", "-sm"),
        ("-ts 1,1,1", "-ts"),
        ("-mg 1", "-mg"),
        ("-ot exps=CUDA0", "-ot/-cmoe/-ncmoe"),
        ("-cmoe", "-ot/-cmoe/-ncmoe"),
        ("-nkvo", "-nkvo"),
        ("--no-kv-offload", "-nkvo"),
        ("--no-op-offload", "--no-op-offload"),
        ("--no-host", "--no-host"),
    ],
)
@no_gpu
def test_what_only_a_gpu_could_obey_is_one_warning(
    target: str, caplog: pytest.LogCaptureFixture, line: str, named: str
) -> None:
    caplog.set_level(logging.WARNING, logger="paceline")
    with opened(line, target):
        warnings = [record.getMessage() for record in caplog.records if record.name == "paceline"]
    assert [warning for warning in warnings if f": {named} cannot act" in warning] == warnings
    assert len(warnings) == 1


@no_gpu
@pytest.mark.parametrize("line", ["", "-ngl 0", "-ngl all", "-dev none", "-dev CPU", "-sm layer", "-mg 0"])
def test_what_holds_here_anyway_is_none(target: str, caplog: pytest.LogCaptureFixture, line: str) -> None:
    with opened(line, target):
        warnings = [record for record in caplog.records if record.name == "paceline"]
    assert warnings == []
