"""Processors as `appliance system` shows them."""

import pytest

from appliance.cli import system
from appliance.cli.system import _in_words, _sensed
from appliance.wire.box import ProcessorShape, SensorsShape, SystemShape


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

    def reading(name: str, device: str, quantity: str, value: float | None) -> dict[str, object]:
        return {
            "source": "hwmon",
            "name": name,
            "device": device,
            "quantity": quantity,
            "value": value,
            "limit": None,
        }

    sensors = SensorsShape.model_validate(
        {
            "at": None,
            "interval_s": 2,
            "readings": [
                reading("board", "", "celsius", 31.0),
                reading("core 0", "cpu", "celsius", 61.4),
                reading("core 1", "cpu", "celsius", 58.0),
                reading("core 2", "cpu", "celsius", None),
                reading("cpu0", "cpu", "megahertz", 2400.0),
                reading("rail", "gpu", "watts", 5.09),
                reading("dla0", "dla", "celsius", None),
            ],
            "throttled": [{"device": "cpu", "reason": "it is too hot"}],
        }
    )
    assert list(_sensed(sensors)) == [
        "cpu throttled: it is too hot",
        "cpu: 61 °C, 2,400 MHz",
        "gpu: rail 5.1 W",
        "machine: 31 °C",
    ]


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
    facts = {
        "version": "1",
        "ready": True,
        "uptime_s": 1,
        "now": "2026-01-01T00:00:00Z",
        "python": "3.11",
        "machine": "x86_64",
        "cores": 1,
        "cores_bound": limit,
        "memory_total_bytes": 512e6,
        "memory_available_bytes": 300e6,
        "memory_bound": limit,
        "process_bytes": 1,
        "disk_free_bytes": 1,
        "confinement": {},
        "policies": {},
        "settings": {},
        "models": 1,
        "applications": 1,
        "engine": {"queued": 0, "running": 0},
    }
    system.show(SystemShape.model_validate(facts), [])
    told = capsys.readouterr().out
    assert f"x86_64, 1 core{words}\n" in told
    assert f"300 MB of 512 MB available{words}\n" in told
