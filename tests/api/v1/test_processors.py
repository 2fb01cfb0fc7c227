"""A kind of processor that this machine does not have: the box starts without it, and says so."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from appliance import machine
from appliance.domain.hardware import ProcessorDescription
from appliance.runtime import processors
from appliance.runtime.processors.cpu.session import OnnxProcessor, OnnxSessions
from appliance.runtime.processors.kind import Kind
from tests.api.stand import Stand, made_key, running, shown_when, stand_on

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


async def judged(stand: Stand) -> Any:
    """The second processor, as an operator sees it, once its probe is over."""
    return (await shown_when(stand.client(), "/v1/processors", lambda shown: shown[1]["state"] != "not-run"))[1]


@pytest.mark.usefixtures("processes")
@pytest.mark.anyio
async def test_processor_kind_that_fails_its_probe_is_shown_as_unfit(tmp_path: Path) -> None:
    """The first kind serves from the start on; the reason is shown to an operator only."""
    async with stand_on(tmp_path, processors=BOTH) as stand:
        admin = stand.client()
        await admin.post("/v1/tenants", json={"name": "harbour"})
        found = await judged(stand)
        assert (found["state"], found["runs"]) == ("unfit", 0)
        assert "there is no kind of processor 'abacus'" in found["reason"]
        harbour = stand.client(key=await made_key(admin, "harbour"))
        _, told = (await harbour.get("/v1/processors")).json()
        assert {name for name, value in told.items() if value is not None} == {"name", "kind", "state"}
        assert "processor unfit" in [event.event for event in stand.appliance.running().telemetry.recent()]


@pytest.mark.anyio
async def test_processor_kind_that_passed_its_probe_before_serves_at_once(tmp_path: Path) -> None:
    """On this machine, with this version; guarded models go to the first kind, for this one has no guards."""
    (tmp_path / "probes.json").write_text(json.dumps(["abacus-1"]))
    async with stand_on(tmp_path, processors=BOTH) as stand:
        found = (await stand.client().get("/v1/processors")).json()
        assert [(one["kind"], one["takes_guarded"]) for one in found] == [("cpu", True), ("abacus", False)]
        assert found[1]["state"] == "serving"


@pytest.mark.usefixtures("processes")
@pytest.mark.anyio
@pytest.mark.skipif("XnnpackExecutionProvider" in onnxruntime.get_available_providers(), reason="XNNPACK is here")
async def test_processor_kind_without_its_provider_is_shown_as_unfit(tmp_path: Path) -> None:
    """With the reason, by its own probe in a child; the first kind serves."""
    async with stand_on(tmp_path, processors=[{"kind": "cpu"}, {"kind": "xnnpack"}]) as stand:
        found = await judged(stand)
        assert (found["state"], found["reason"]) == ("unfit", "this ONNX Runtime has no XnnpackExecutionProvider")


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
