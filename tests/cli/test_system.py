"""Processors as `appliance system` shows them."""

from typing import Any

import pytest

from appliance.cli import system
from appliance.cli.system import _in_words, _sensed
from appliance.wire.box import ProcessorShape, SensorsShape, SystemShape
from tests.cli.blank import blank


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"state": "serving"}, "npu, serving"),
        ({"state": "serving", "reason": "", "workers": 2, "runs": 1}, "npu, serving   (2 workers, 1 run)"),
        (
            {"state": "serving", "reason": "", "workers": 1, "runs": 4, "mean_batch": 2.5},
            "npu, serving   (1 worker, 4 runs, mean batch 2.5)",
        ),
        (
            {"state": "lost", "reason": "a run has not ended within 40 s", "workers": 1, "runs": 7},
            "npu, lost: a run has not ended within 40 s   (1 worker, 7 runs)",
        ),
    ],
)
def test_processor_line_shows_kind_state_reason_and_workers(facts: dict[str, object], words: str) -> None:
    """What a tenant's key is not shown is left out."""
    assert _in_words(ProcessorShape.model_validate({"name": "npu", "kind": "npu"} | facts)) == words


def test_sensor_lines_summarise_each_device() -> None:
    """The hottest place and the highest clock of each device, every rail and fan, what is unknown left out."""

    rows = (
        ("board", "", "celsius", 31.0),
        ("core 0", "cpu", "celsius", 61.4),
        ("core 1", "cpu", "celsius", 58.0),
        ("core 2", "cpu", "celsius", None),
        ("cpu0", "cpu", "megahertz", 2400.0),
        ("rail", "gpu", "watts", 5.09),
        ("dla0", "dla", "celsius", None),
    )
    names = ("name", "device", "quantity", "value")
    known: dict[str, Any] = {"source": "hwmon", "limit": None}
    readings = [known | dict(zip(names, row, strict=True)) for row in rows]
    throttled = [{"device": "cpu", "reason": "it is too hot"}]
    shown = {"at": None, "interval_s": 2, "readings": readings, "throttled": throttled}
    assert list(_sensed(SensorsShape.model_validate(shown))) == [
        "cpu throttled: it is too hot",
        "cpu: 61 °C, 2,400 MHz",
        "gpu: rail 5.1 W",
        "machine: 31 °C",
    ]


@pytest.mark.parametrize(
    ("of_all", "words"),
    [
        ({}, "models        0, 0 applications"),
        (
            {"models_of_all": 5, "applications_of_all": 1},
            "models        5, 1 application of all tenants; the tenant default sees 0, 0 applications",
        ),
    ],
)
def test_system_says_whose_models_it_counts(
    of_all: dict[str, int], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An admin acts in one tenant, which may have none."""
    system.show(blank(SystemShape, tenant="default", engine={"queued": 0, "running": 0}, **of_all), [])
    assert f"  {words}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("", ""),
        ("affinity", " (by its affinity)"),
        ("cpu.max: 1.5", " (by the limit of its container or unit, cpu.max: 1.5)"),
    ],
)
def test_system_shows_the_limits_of_cores_and_memory(
    limit: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bounds = {"cores_bound": limit, "memory_bound": limit}
    sizes = {"memory_total_bytes": 512e6, "memory_available_bytes": 300e6}
    engine = {"queued": 0, "running": 0}
    system.show(blank(SystemShape, machine="x86_64", cores=1, engine=engine, **bounds, **sizes), [])
    told = capsys.readouterr().out
    assert f"x86_64, 1 core{words}\n" in told
    assert f"300 MB of 512 MB available{words}\n" in told
