"""Kinds that need hardware, on hardware: skipped, with the reason, where it or its libraries are not there.

`scripts/test tests/gpu` runs these alone, and says what it skipped and why.
"""

import asyncio
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from appliance.demo.zoo import toys
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.runtime.processors import KINDS, PROCESSORS
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.measuring.same import difference
from appliance.runtime.processors.probe import ChildProbe
from appliance.runtime.sensors.nvml import NvmlSensors

pytestmark = [pytest.mark.timeout(600)]
DEVICES = sorted(kind for kind, known in KINDS.items() if known.device != "cpu")
DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvhost-gpu", "/dev/nvgpu")


def missing(kind: str) -> str:
    """Why a kind cannot run here; empty where it may."""
    if not any(Path(one).exists() for one in DRIVERS):
        return "no NVIDIA GPU: there is no driver"
    if kind == "dla":
        return "" if find_spec("tensorrt") else "no TensorRT: its Python package is not installed"
    import onnxruntime

    provider = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}[kind]
    return "" if provider in onnxruntime.get_available_providers() else f"this ONNX Runtime has no {provider}"


@pytest.fixture(params=DEVICES)
def kind(request: pytest.FixtureRequest) -> str:
    if why := missing(request.param):
        pytest.skip(f"{request.param}: {why}")
    return str(request.param)


def test_its_probe(kind: str, tmp_path: Path) -> None:
    """In a child, as the box has it probed."""
    described = ProcessorDescription(kind, kind, 1, 1, "gpu", f"{kind}-1")
    assert asyncio.run(ChildProbe(tmp_path)(described)) == ""


def test_it_computes_the_same(kind: str, tmp_path: Path) -> None:
    """A network as it is prepared for the device, against the CPU."""
    path = toys.tiny_add(tmp_path / "add.onnx")
    (tmp_path / "form").mkdir()
    name = KINDS[kind].sessions(1, 1).prepare(path, tmp_path / "form")
    assert name is not None

    async def computed() -> dict[str, np.ndarray]:
        processor = PROCESSORS[kind](name="p", workers=1, threads_per_run=1, loads_parallel_max=1)
        size = path.stat().st_size
        loaded = await processor.load(PreparedForm("add", str(tmp_path / "form" / str(name)), size, True, kind=kind))
        found: dict[str, np.ndarray] = await processor.run(loaded, inputs, None)
        await processor.unload(loaded)
        processor.close()
        return found

    inputs = {"A": np.ones((3, 4), np.float32), "B": np.arange(12, dtype=np.float32).reshape(3, 4)}
    own = OnnxSessions(1)
    expected = own.run(own.load(PreparedForm("add", str(path), 1, False)), inputs, None)
    found = asyncio.run(computed())
    assert all(difference(array, found[key]) < 1e-2 for key, array in expected.items())


def test_nvml() -> None:
    """A card tells its temperature."""
    if not Path("/proc/driver/nvidia/version").exists():
        pytest.skip("nvml: no NVIDIA GPU: there is no driver")
    if find_spec("pynvml") is None:
        pytest.skip("nvml: nvidia-ml-py is not installed")
    sensors = NvmlSensors()
    sensors.look_round()
    assert any(one.value for one in sensors.read() if one.name == "gpu temperature")
