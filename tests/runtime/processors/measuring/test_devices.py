"""Builds on devices that this machine has not, measured as the child does it, over fakes of their libraries."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.clock import pause_s
from appliance.confinement.limits import ChildLimits
from appliance.domain import runs_at_once
from appliance.domain.hardware import PreparedForm, Reference
from appliance.domain.request import Tensors
from appliance.runtime.processors import KINDS
from appliance.runtime.processors.measuring import measure
from appliance.runtime.processors.providers.cuda_session import CudaSessions
from appliance.runtime.processors.sessions import sessions_of
from tests import toys
from tests.contracts.conftest import FAKED
from tests.fakes import accelerators

pytestmark = pytest.mark.gate("real runtimes compute")

PAUSE_S = 0.004


class Waiting(CudaSessions):
    """The processor idles while the device computes, for `PAUSE_S` of two rows."""

    def run(self, loaded: Any, inputs: Tensors, outputs: Sequence[str] | None, stop: Any = None) -> dict[str, Any]:
        pause_s(PAUSE_S * len(inputs["A"]) / 2)
        return super().run(loaded, inputs, outputs, stop)


def order(kind: str, form: PreparedForm, plain: Path, folder: Path) -> dict[str, Any]:
    """What the service would send for a form that is compared with the CPU."""
    inputs = {"A": np.ones((2, 4), np.float32), "B": np.arange(8, dtype=np.float32).reshape(2, 4)}
    own = PreparedForm("add@cpu", str(plain), 1, optimised=False)
    return {
        "kind": kind,
        "build_id": form.build_id,
        "path": form.path,
        "optimised": True,
        "computes_in": form.computes_in,
        "workers": 2,
        "reference": asdict(Reference(own, 1e-3)),
        "cases": [{"batch": 2, "file": measure.save_inputs(folder / "0.npz", inputs), "repeated": {}}],
    }


def prepared(kind: str, plain: Path, folder: Path) -> PreparedForm:
    (folder / "form").mkdir()
    name = sessions_of(kind, 2, 1).prepare(plain, folder / "form")
    assert name is not None
    return PreparedForm(f"add@{kind}", str(folder / "form" / name), 1, optimised=True, kind=kind)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind == "cuda" else pytest.mark.nightly("another kind")) for kind in FAKED],
)
def test_build_on_a_device_computes_like_the_cpu_and_is_measured(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows may share runs as far as was shown."""
    accelerators.install(monkeypatch)
    plain = toys.tiny_add(tmp_path / "add.onnx")
    sessions = sessions_of(kind, 2, 1)
    found = measure.profile_of(sessions, order(kind, prepared(kind, plain, tmp_path), plain, tmp_path))
    assert found["latencies"][0]["batch"] == 2
    assert found["asleep_bytes"] is None
    assert found["shared_rows_max"] == 2


def test_latency_on_a_device_includes_the_wait_for_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone and at once: what the processor did meanwhile is next to nothing, and says nothing."""
    accelerators.install(monkeypatch)
    plain = toys.tiny_add(tmp_path / "add.onnx")
    form = prepared("cuda", plain, tmp_path)
    found = measure.profile_of(Waiting(), order("cuda", form, plain, tmp_path))
    assert [row.get("concurrency", 1) for row in found["latencies"]] == [1, 2]
    assert all(row["p50_ms"] >= PAUSE_S * 1000 for row in found["latencies"])


def test_short_batch_is_measured_at_once_beside_a_long_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch that is measured alone is measured at once, too: a plan has no use for the others else."""
    accelerators.install(monkeypatch)
    monkeypatch.setattr(runs_at_once, "INTERFERING_MS_MIN", PAUSE_S * 1500)
    plain = toys.tiny_add(tmp_path / "add.onnx")
    wanted = order("cuda", prepared("cuda", plain, tmp_path), plain, tmp_path)
    rows = {name: np.ones((4, 4), np.float32) for name in ("A", "B")}
    wanted["cases"].append({"batch": 4, "file": measure.save_inputs(tmp_path / "4.npz", rows), "repeated": {}})
    found = measure.profile_of(Waiting(), wanted)
    assert [(row["batch"], row.get("concurrency", 1)) for row in found["latencies"]] == [(2, 1), (4, 1), (2, 2), (4, 2)]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_measuring_child_of_a_device_kind_may_use_the_device_nodes(kind: str) -> None:
    """And reserve addresses without end, as the device's driver does; a child of another kind may do neither."""
    wanted = {"do": "prepare", "kind": kind, "source": "/source", "target_dir": "/target"}
    readable, writable = measure.files_of(wanted)
    limits = measure.limits_of({**wanted, "limits": asdict(ChildLimits(memory_bytes=1 << 30))})
    is_on_device = KINDS[kind].device != "cpu"
    assert ("/dev/nvidiactl" in writable) is ("/proc/driver/nvidia" in readable) is is_on_device
    assert (limits.memory_bytes > 1 << 40) is is_on_device
    assert "/target" in writable
    assert "/source" not in writable
