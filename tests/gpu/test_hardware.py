"""Kinds that need hardware, on hardware. What is not there is skipped with the reason: all at once without a GPU.

`scripts/test tests/gpu` runs these alone.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.runtime.processors import KINDS, PROCESSORS
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.measuring.same import difference
from appliance.runtime.processors.probe import ChildProbe
from appliance.runtime.sensors.nvml import NvmlSensors
from tests import toys

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.timeout(600)]
DEVICES = sorted(kind for kind, known in KINDS.items() if known.device != "cpu")
CARD = Path("/proc/driver/nvidia/version")
DRIVERS = (CARD, Path("/dev/nvhost-gpu"), Path("/dev/nvgpu"))


def missing(kind: str) -> str:
    """Why a kind cannot run on a machine with a GPU; empty where it can."""
    if kind == "nvml":
        if not CARD.exists():
            return "nvml: no NVIDIA card: a GPU of a Jetson has none"
        return "" if find_spec("pynvml") else "nvml: nvidia-ml-py is not installed"
    if kind == "dla":
        return "" if find_spec("tensorrt") else "dla: the Python package of TensorRT is not installed"
    import onnxruntime

    provider = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}[kind]
    return "" if provider in onnxruntime.get_available_providers() else f"{kind}: this ONNX Runtime has no {provider}"


def skipped(name: str, reason: str) -> Any:
    return pytest.param(None, id=name, marks=pytest.mark.skip(reason=reason))


def checks() -> list[Any]:
    """Those of each kind that can run here, and one skip for each that cannot; without any GPU one for all."""
    if not any(driver.exists() for driver in DRIVERS):
        return [skipped("all", "no NVIDIA GPU: there is no driver")]
    of_kind = {**dict.fromkeys(DEVICES, (probes, computes_the_same)), "nvml": (tells_temperature,)}
    found = []
    for kind, its_checks in of_kind.items():
        if why := missing(kind):
            found.append(skipped(kind, why))
        else:
            found += [pytest.param(partial(check, kind), id=f"{kind} {check.__name__}") for check in its_checks]
    return found


def probes(kind: str, tmp_path: Path) -> None:
    """In a child, as the box has it probed."""
    described = ProcessorDescription(kind, kind, 1, 1, "gpu", f"{kind}-1")
    assert asyncio.run(ChildProbe(tmp_path)(described)) == ""


def computes_the_same(kind: str, tmp_path: Path) -> None:
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


def tells_temperature(_kind: str, _folder: Path) -> None:
    """Of a card."""
    sensors = NvmlSensors()
    sensors.look_round()
    assert any(one.value for one in sensors.read() if one.name == "gpu temperature")


@pytest.mark.parametrize("check", checks())
def test_processor_kind_works_on_its_hardware(check: Callable[[Path], None], tmp_path: Path) -> None:
    check(tmp_path)
