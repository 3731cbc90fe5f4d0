"""What libllama sees, and by which names it is asked for."""

from __future__ import annotations

import pytest

from paceline.config import ModelParams
from paceline.errors import ConfigError
from paceline.llama import devices
from paceline.llama.devices import can_offload, device_lines, features, found_devices
from paceline.llama.lib import ggml_devices
from paceline.llama.model import Model

pytestmark = pytest.mark.model
no_gpu = pytest.mark.skipif(can_offload(), reason="there is a GPU")


def test_the_processor_is_always_there() -> None:
    found = found_devices()
    assert [device.handle for device in found] == ggml_devices()
    (processor,) = (device for device in found if device.kind == "CPU")
    assert processor.name == processor.family == "CPU"
    assert not processor.offloads
    assert processor.n_bytes > 2**28
    assert 0 < processor.n_free <= processor.n_bytes
    assert any(device.offloads for device in found) is can_offload()


def test_lines_are_for_what_is_beside_it() -> None:
    assert len(device_lines()) == len(found_devices()) - 1


def test_features_are_told_by_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert features()["CPU"]
    monkeypatch.setattr(devices, "system", lambda: "CUDA : ARCHS = 900 | GRAPHS = 1 | CPU : SSE3 = 1 | AVX = 0 | ")
    assert features() == {"CUDA": {"ARCHS": "900", "GRAPHS": "1"}, "CPU": {"SSE3": "1", "AVX": "0"}}


@pytest.mark.parametrize("name", ["GPU7", "CUDA-0", "cudazero", "x"])
def test_a_device_that_is_none_is_refused_by_name(target: str, name: str) -> None:
    known = ", ".join(device.name for device in found_devices() if device.kind != "CPU") or "the CPU alone"
    with pytest.raises(ConfigError, match=f"^there is no device {name}; this build of libllama has {known}$"):
        Model(ModelParams(path=target, devices=(name,)))


def test_a_memory_that_is_none_is_refused_by_name(target: str) -> None:
    with pytest.raises(ConfigError, match=r"no memory called VRAM for -ot; here there is CPU"):
        Model(ModelParams(path=target, tensors=(("exps", "VRAM"),)))


@no_gpu
@pytest.mark.parametrize("name", ["CUDA0", "cuda:0", "ROCm1", "Vulkan0", "MTL0", "Metal", "SYCL0", "RPC[host:1]"])
def test_a_gpu_of_another_machine_is_passed_over(target: str, name: str) -> None:
    """Its user is warned: see the flags' own tests."""
    assert devices.device_named(name) is None
    assert devices.buffer_named(name) is None
    Model(ModelParams(path=target, devices=(name,), tensors=(("exps", name),))).close()


def test_where_there_is_a_gpu_a_wrong_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "can_offload", lambda: True)
    with pytest.raises(ConfigError, match="there is no device CUDA77"):
        devices.device_named("CUDA77")
    with pytest.raises(ConfigError, match="no memory called CUDA77"):
        devices.buffer_named("CUDA77")
