"""Execution providers, by a fake of the runtime that has them: who computes is looked at, who falls back is told."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.domain.errors import LoadFailed, RunStopped
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.probe import check
from appliance.runtime.processors.providers import cuda_session as cuda
from appliance.runtime.processors.providers.cuda import CUDA
from appliance.runtime.processors.providers.cuda_session import CudaSessions
from appliance.runtime.processors.providers.placement import HEAVY, misplaced, placed
from appliance.runtime.processors.sessions import sessions_of
from tests import toys
from tests.fakes import accelerators
from tests.fakes.onnxruntime import FakeOnnxRuntime

KINDS = ("cuda", "tensorrt", "xnnpack")
IMAGE = {"image": np.random.default_rng(0).standard_normal((1, 3, 64, 64), np.float32)}
FELL_BACK = "it fell back to CPUExecutionProvider"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeOnnxRuntime:
    return accelerators.install(monkeypatch)[0]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.conv_net(tmp_path_factory.mktemp("net") / "net.onnx", 1.0)


def plain(path: Path) -> PreparedForm:
    return PreparedForm("net@cuda", str(path), path.stat().st_size, optimised=False, kind="cuda")


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({}, ""),
        ({"has_driver": False}, FELL_BACK),
        ({"computes_elsewhere": True}, FELL_BACK),
        ({"computes_elsewhere": True, "tells_placement": False}, FELL_BACK),
    ],
    ids=["with a driver", "without a driver", "nodes run on the CPU", "only the profile shows that they do"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_probe_of_a_provider_tells_where_it_computes(
    runtime: FakeOnnxRuntime, kind: str, facts: dict[str, bool], told: str, tmp_path: Path
) -> None:
    """The runtime lists the provider, the session names it first, and computes on the CPU in silence."""
    for name, value in facts.items():
        setattr(runtime, name, value)
    assert check(sessions_of(kind, 1, 1), tmp_path) == told


@pytest.mark.parametrize("kind", KINDS)
def test_probe_of_a_provider_missing_in_the_runtime_says_so(kind: str, tmp_path: Path) -> None:
    """The real runtime here has none of the providers, and says nothing: the session would be the CPU's."""
    assert "this ONNX Runtime has no " in check(sessions_of(kind, 1, 1), tmp_path)


def test_probe_of_a_provider_that_runs_no_node_fails(runtime: FakeOnnxRuntime, tmp_path: Path) -> None:
    runtime.on_cpu = frozenset({"Add"})
    assert check(sessions_of("cuda", 1, 1), tmp_path) == "none of it runs on CUDAExecutionProvider"


def test_network_whose_convolutions_are_left_to_the_cpu_is_refused(
    runtime: FakeOnnxRuntime, net: Path, tmp_path: Path
) -> None:
    """Convolutions would take cores of other processors: no form, and no session. Trifles may stay on the CPU."""
    runtime.on_cpu = frozenset({"Conv"})
    (tmp_path / "form").mkdir()
    with pytest.raises(LoadFailed, match="it would leave Conv to the CPU"):
        CudaSessions().prepare(net, tmp_path / "form")
    assert list((tmp_path / "form").iterdir()) == []
    with pytest.raises(LoadFailed, match="it would leave Conv to the CPU"):
        CudaSessions().load(plain(net))
    runtime.on_cpu = frozenset({"Softmax", "Shape"})
    assert CudaSessions().load(plain(net))


def test_cuda_form_computes_the_same_as_the_plain_network(runtime: FakeOnnxRuntime, net: Path, tmp_path: Path) -> None:
    """Also where its folder was moved to."""
    (tmp_path / "made").mkdir()
    name = CudaSessions().prepare(net, tmp_path / "made")
    form = PreparedForm("net@cuda", str((tmp_path / "made").rename(tmp_path / "kept") / name), 1, True, kind="cuda")
    sessions, own = CudaSessions(), OnnxSessions(1)
    found = sessions.run(sessions.load(form), IMAGE, None)
    expected = own.run(own.load(PreparedForm("net", str(net), 1, False)), IMAGE, None)
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, atol=1e-4)


def test_stopped_cuda_run_leaves_the_session_usable(runtime: FakeOnnxRuntime, net: Path) -> None:
    sessions = CudaSessions()
    loaded, stop = sessions.load(plain(net)), sessions.stop()
    stop.terminate = True
    with pytest.raises(RunStopped):
        sessions.run(loaded, IMAGE, None, stop)
    assert sessions.run(loaded, IMAGE, None)


def test_placement_of_nodes_is_read_from_the_real_runtime(net: Path) -> None:
    """By operator types, without a run; all nodes are the CPU's here."""
    import onnxruntime

    sessions = CudaSessions()
    options = sessions.session_options(optimised=False)
    found = placed(onnxruntime.InferenceSession(str(net), options, providers=["CPUExecutionProvider"]))
    assert found is not None
    assert found.keys() == {"CPUExecutionProvider"}
    assert "Conv" in found["CPUExecutionProvider"] & HEAVY
    assert misplaced({cuda.PROVIDER: frozenset({"Conv"})}, [cuda.PROVIDER]) == ""
    assert misplaced(found, [cuda.PROVIDER]) == f"none of it runs on {cuda.PROVIDER}"
    assert misplaced(None, [cuda.PROVIDER]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_provider_supports_a_network_only_as_a_whole(
    runtime: FakeOnnxRuntime, kind: str, net: Path, tmp_path: Path
) -> None:
    """Trifles count, too."""
    sessions: Any = sessions_of(kind, 1, 1)
    assert sessions.supports(net)
    runtime.on_cpu = frozenset({"Softmax"})
    assert not sessions.supports(net)
    runtime.on_cpu, runtime.has_driver = frozenset(), False
    assert not sessions.supports(net)
    assert not sessions.supports(tmp_path / "missing.onnx")


@pytest.mark.anyio
async def test_cuda_processor_runs_side_by_side_and_in_shared_rows(runtime: FakeOnnxRuntime, net: Path) -> None:
    """On its own threads, and with a deadline."""
    processor = CUDA.processor(name="gpu", workers=2, threads_per_run=1, loads_parallel_max=1)
    assert processor.describe().memory_domain == "gpu"
    loaded = await processor.load(plain(net))
    runs = [processor.run(loaded, IMAGE, None, deadline_ns=1 << 62) for _ in range(4)]
    one, *others = await asyncio.gather(*runs)
    assert all(np.array_equal(each["probabilities"], one["probabilities"]) for each in others)
    first, second = await processor.run_rows(loaded, [IMAGE, IMAGE], [1, 1], None)
    np.testing.assert_allclose(first["probabilities"], second["probabilities"], atol=1e-4)
    await processor.unload(loaded)
    assert processor.device_memory.held_bytes == 0
    processor.close()
