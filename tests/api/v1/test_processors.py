"""A kind of processor that this machine does not have: the box starts without it, and says so."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from appliance import machine
from appliance.clock import pause_s
from appliance.domain.hardware import ProcessorDescription
from appliance.runtime import processors
from appliance.runtime.processors.cpu.session import OnnxProcessor, OnnxSessions
from appliance.runtime.processors.kind import Kind
from tests.api.stand import Stand, running, stand_on

BOTH = [{"kind": "cpu"}, {"kind": "abacus"}]


class Abacus(OnnxProcessor):
    """Registered in the service, and unknown to the child that probes it, as a device without its driver is."""

    def describe(self) -> ProcessorDescription:
        return replace(super().describe(), kind="abacus", fingerprint="abacus-1")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind(processor=Abacus, sessions=lambda workers, threads_per_run: OnnxSessions(threads_per_run))
    kinds = {**processors.KINDS, "abacus": kind}
    monkeypatch.setattr(processors, "KINDS", kinds)
    monkeypatch.setattr(machine, "KINDS", kinds)
    monkeypatch.setattr(machine, "PROCESSORS", {**processors.PROCESSORS, "abacus": Abacus})


async def shown(stand: Stand, who: str = "admin") -> dict[str, Any]:
    found: dict[str, Any] = (await stand.client(who).get("/v1/processors")).json()[1]
    return found


@pytest.mark.usefixtures("processes")
@pytest.mark.anyio
async def test_processor_kind_that_fails_its_probe_is_shown_as_unfit(tmp_path: Path) -> None:
    """The first kind serves from the start on; the reason is shown to an operator only."""
    async with stand_on(tmp_path, processors=BOTH) as stand:
        admin = stand.client()
        assert (await shown(stand))["state"] in {"not-run", "unfit"}  # a probe may be over already
        await admin.post("/v1/tenants", json={"name": "harbour"})
        key = (await admin.post("/v1/tenants/harbour/keys", json={})).json()["key"]
        stand = replace(stand, keys={**stand.keys, "harbour": key})
        while (await shown(stand))["state"] == "not-run":
            await asyncio.to_thread(pause_s, 0.05)
        found = await shown(stand)
        assert (found["state"], found["runs"]) == ("unfit", 0)
        assert "there is no kind of processor 'abacus'" in found["reason"]
        told = {name for name, value in (await shown(stand, "harbour")).items() if value is not None}
        assert told == {"name", "kind", "state"}
        assert "processor unfit" in [event.event for event in stand.appliance.running().telemetry.recent()]


@pytest.mark.anyio
async def test_processor_kind_that_passed_its_probe_before_serves_at_once(tmp_path: Path) -> None:
    """On this machine, with this version."""
    (tmp_path / "probes.json").write_text(json.dumps(["abacus-1"]))
    async with stand_on(tmp_path, processors=BOTH) as stand:
        assert (await shown(stand))["state"] == "serving"


@pytest.mark.anyio
async def test_processor_kind_without_guards_takes_no_guarded_model(tmp_path: Path) -> None:
    """And says so; guarded models go to the first kind."""
    (tmp_path / "probes.json").write_text(json.dumps(["abacus-1"]))
    async with stand_on(tmp_path, processors=BOTH) as stand:
        found = (await stand.client().get("/v1/processors")).json()
        assert {one["kind"]: one["takes_guarded"] for one in found} == {"cpu": True, "abacus": False}


@pytest.mark.usefixtures("processes")
@pytest.mark.anyio
@pytest.mark.skipif("XnnpackExecutionProvider" in onnxruntime.get_available_providers(), reason="XNNPACK is here")
async def test_processor_kind_without_its_provider_is_shown_as_unfit(tmp_path: Path) -> None:
    """With the reason, by its own probe in a child; the first kind serves."""
    async with stand_on(tmp_path, processors=[{"kind": "cpu"}, {"kind": "xnnpack"}]) as stand:
        while (await shown(stand))["state"] == "not-run":
            await asyncio.to_thread(pause_s, 0.05)
        found = await shown(stand)
        assert (found["state"], found["reason"]) == (
            "unfit",
            "this ONNX Runtime has no XnnpackExecutionProvider",
        )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ([{"kind": "rake"}], r"processors\[0\].kind: 'rake' is not one of: cpu, openvino, .*, abacus"),
        ([{"kind": "cpu"}, {"kind": "abacus", "name": "cpu"}], r"processors\[1\].name: 'cpu' is there twice"),
        (
            [{"kind": "cpu", "memory_bytes": 1 << 30}],
            r"processors\[0\].memory_bytes: 'cpu' computes in the machine's memory",
        ),
        ([{"kind": "cpu", "cores": [4096]}], r"processors\[0\].cores: 4096 is none of the cores"),
        ([{"kind": "cpu"}, {"kind": "abacus", "cores": [0]}], r"processors\[1\].cores: 'abacus' places its threads"),
    ],
)
async def test_start_with_a_wrong_processor_setting_fails_naming_the_key(
    wanted: list[dict[str, Any]], told: str, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match=told):
        async with running(tmp_path, processors=wanted):
            pass
