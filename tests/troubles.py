"""Twelve troubles that a box may be in, each staged for real; shared by the tests of REST and of the pages.

A trouble is prepared before the box starts (its state folder, the machine below it), and brought about over HTTP while
it runs. That a box is away is a trouble of its caller: the tests of the pages and of the command line stage it.
"""

import datetime
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cv2
import httpx
import numpy as np
import pytest

from appliance import machine
from appliance.clock import Clock, SystemClock
from appliance.domain.hardware import ProcessorDescription
from appliance.domain.health.conditions import Trouble
from appliance.runtime import processors
from appliance.runtime.processors.cpu.session import OnnxProcessor, OnnxSessions
from appliance.runtime.processors.kind import Kind
from appliance.runtime.sensors.sensors import Sensors
from appliance.runtime.sensors.sysfs import SysfsSensors
from appliance.settings import SensorSettings
from tests.api.stand import IMAGE, good, imported
from tests.runtime.sensors.sensor_files import LAPTOP, tree

ASKED = 4
"""Requests that are enough for a promise to count as broken."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Where a trouble is prepared: a copy of the furnished state folder, and the process of the test."""

    state_dir: Path
    scratch: Path
    patch: pytest.MonkeyPatch


Clients = Callable[[str], httpx.AsyncClient]
"""A client of the running box with the key of this name."""


async def _nothing(_: Clients) -> None:
    """The trouble is there since the start."""


@dataclass(frozen=True, kw_only=True)
class Staged:
    """A trouble and how it comes about."""

    name: str
    trouble: Trouble
    page: str
    """Address of a page that shows what has the trouble."""
    subject: str
    """Where on that page, as a selector of CSS."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Prepared], None] = lambda _: None
    happen: Callable[[Clients], Awaitable[None]] = _nothing


def _grow(prepared: Prepared) -> None:
    """The network was measured to take more than the whole budget."""
    change = "UPDATE variant SET profile = json_set(profile, '$.resident_bytes', ?, '$.peak_bytes', ?)"
    _in_store(prepared, f"{change} WHERE model_id = 'harbour/digits'", 2**24, 2**24)


async def _ask_in_vain(clients: Clients) -> None:
    for _ in range(ASKED):
        answer = await clients("harbour").post("/v2/models/digits/infer", json=IMAGE)
        assert answer.is_server_error, answer.text


async def _send_late_frames(clients: Clients) -> None:
    harbour = clients("harbour")
    stages = [{"name": "read", "application": "digits"}]
    await good(harbour.post("/v1/pipelines", json={"name": "signs", "latency_slo_ms": 1, "stages": stages}))
    _, picture = cv2.imencode(".png", np.zeros((4000, 4000), np.uint8))  # to decode it takes many times the SLO
    for _ in range(ASKED):
        await harbour.post(
            "/v1/pipelines/signs/predict", content=picture.tobytes(), headers={"Content-Type": "image/png"}
        )


async def _load_and_unload(clients: Clients) -> None:
    for _ in range(ASKED):
        await good(clients("harbour").post("/v1/applications/digits/load"))
        await good(clients("harbour").post("/v1/applications/digits/unload"))
    await good(clients("harbour").post("/v1/applications/digits/load"))


def _heat(prepared: Prepared) -> None:
    root = tree(prepared.scratch / "root", {**LAPTOP, "class/thermal/thermal_zone0/temp": "106000\n"})

    def sensors(settings: SensorSettings, clock: Clock) -> Sensors:
        return Sensors(clock, [SysfsSensors(clock, root)], settings.interval_s)

    prepared.patch.setattr(machine, "sensors_of", sensors)


def _fill_disk(prepared: Prepared) -> None:
    usage = shutil.disk_usage(prepared.state_dir)
    prepared.patch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**6))


class _Abacus(OnnxProcessor):
    """Registered in the service, and unknown to the child that probes it, as a device without its driver is."""

    def describe(self) -> ProcessorDescription:
        return replace(super().describe(), kind="abacus", fingerprint="abacus-1")


def _lose_processor(prepared: Prepared) -> None:
    kind = Kind(processor=_Abacus, sessions=lambda workers, threads_per_run: OnnxSessions(threads_per_run))
    kinds = {**processors.KINDS, "abacus": kind}
    prepared.patch.setattr(processors, "KINDS", kinds)
    prepared.patch.setattr(machine, "KINDS", kinds)
    prepared.patch.setattr(machine, "PROCESSORS", {**processors.PROCESSORS, "abacus": _Abacus})


async def _break_promise(clients: Clients) -> None:
    harbour = clients("harbour")
    await good(harbour.patch("/v1/applications/digits", json={"latency_slo_ms": 0.001}))
    for _ in range(ASKED):
        await harbour.post("/v2/models/digits/infer", json=IMAGE)


async def _import_junk(clients: Clients) -> None:
    job = await imported(clients("harbour"), "junk", b"no model")
    assert job["state"] == "failed"


def _turn_clock_back(prepared: Prepared) -> None:
    then = datetime.datetime(2025, 6, 1, tzinfo=datetime.UTC)
    prepared.patch.setattr(SystemClock, "wall_now", lambda _: then)


def _expire_key(prepared: Prepared) -> None:
    ended = SystemClock().wall_now() - datetime.timedelta(hours=1)
    _in_store(prepared, "UPDATE access_key SET expires_at = ? WHERE role = 'device'", ended.isoformat())


def _quarantine(prepared: Prepared) -> None:
    change = "UPDATE variant SET state = 'quarantined', reason = 'its process ended three times'"
    _in_store(prepared, f"{change} WHERE model_id = 'harbour/digits'")


def _in_store(prepared: Prepared, change: str, *values: object) -> None:
    """Change the database of the box, which does not run yet."""
    with closing(sqlite3.connect(prepared.state_dir / "appliance.db")) as connection:
        assert connection.execute(change, values).rowcount
        connection.commit()


STAGED = (
    Staged(
        name="over-budget",
        trouble=Trouble.APPLICATION_NEVER_FITS,
        page="/applications",
        subject='tbody tr:has-text("digits")',
        settings={"memory": {"budget_bytes": 2**20, "wait_ms_max": 50}},
        prepare=_grow,
        happen=_ask_in_vain,
    ),
    Staged(
        name="late-pipeline",
        trouble=Trouble.PIPELINE_LATE,
        page="/pipelines",
        subject='tbody tr:has-text("signs")',
        happen=_send_late_frames,
    ),
    Staged(
        name="thrash",
        trouble=Trouble.RESIDENCY_THRASHES,
        page="/applications",
        subject='tbody tr:has-text("digits")',
        settings={
            "residency": {"reloads_per_min_max": 1},
            "memory": {"asleep_share": 0},
        },  # a wake is no load, unload forgets
        happen=_load_and_unload,
    ),
    Staged(name="hot", trouble=Trouble.BOX_HOT, page="/box", subject="main .card:has(.checks)", prepare=_heat),
    Staged(
        name="disk-full", trouble=Trouble.DISK_FULL, page="/box", subject="main .card:has(.checks)", prepare=_fill_disk
    ),
    Staged(
        name="lost-processor",
        trouble=Trouble.PROCESSOR_LOST,
        page="/processors",
        subject='main .card:has-text("abacus")',
        settings={"processors": [{"kind": "cpu"}, {"kind": "abacus"}]},
        prepare=_lose_processor,
    ),
    Staged(
        name="broken-promise",
        trouble=Trouble.APPLICATION_LATE,
        page="/applications",
        subject='tbody tr:has-text("digits")',
        happen=_break_promise,
    ),
    Staged(
        name="import-failed",
        trouble=Trouble.IMPORT_FAILED,
        page="/models",
        subject='tbody tr:has-text("junk")',
        happen=_import_junk,
    ),
    Staged(
        name="clock-wrong",
        trouble=Trouble.CLOCK_WRONG,
        page="/box",
        subject="main .card:has(.checks)",
        prepare=_turn_clock_back,
    ),
    Staged(
        name="key-expired",
        trouble=Trouble.KEY_EXPIRED,
        page="/tenants/harbour",
        subject='tbody tr:has-text("expired")',
        prepare=_expire_key,
    ),
    Staged(
        name="guard-quarantined",
        trouble=Trouble.VARIANT_QUARANTINED,
        page="/models",
        subject='tbody tr:has(.badge.bad):has-text("digits")',
        prepare=_quarantine,
    ),
)
