"""NVML and jtop, by fakes of their functions with the units of their references; neither has run on hardware here."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.domain.sensors import Quantity
from appliance.runtime.sensors.jtop import JtopSensors
from appliance.runtime.sensors.nvml import NvmlSensors, nvml


class FakeNvml:
    """A card without a fan; `fails`: the library answers every question with an error."""

    def __init__(self, reasons: int = 0) -> None:
        self.reasons = reasons
        self.fails = self.is_closed = False

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "card",
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetPowerUsage": 251_500,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetClockInfo": 1980,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=37, memory=12),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3 << 30, total=139 << 30),
            "nvmlDeviceGetCurrentClocksEventReasons": self.reasons,
        }

        def answer(*_: Any) -> Any:
            if self.fails or name not in answers:
                raise RuntimeError("NVMLError_NotSupported")
            return answers[name]

        return answer

    def nvmlShutdown(self) -> None:
        self.is_closed = True


def test_nvml_readings_of_a_card_have_units_and_limits() -> None:
    """Watts from milliwatts; a sensor that the card has not is unknown, not 0."""
    library = FakeNvml()
    made = NvmlSensors(lambda: library)
    made.look_round()
    found = {one.name: one for one in made.read()}
    assert {name: one.value for name, one in found.items()} == {
        "gpu temperature": 61.0,
        "gpu power": 251.5,
        "gpu clock": 1980.0,
        "gpu load": 37.0,
        "gpu fan": None,
        "gpu memory": float(3 << 30),
    }
    assert (found["gpu power"].limit, found["gpu memory"].limit) == (700.0, float(139 << 30))
    assert {one.device for one in found.values()} == {"gpu"}
    made.close()
    assert library.is_closed


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        (0x00, {}),
        (0x01, {}),  # idle
        (0x04, {}),  # the cap that was set
        (0x20, {"gpu": "it is too hot"}),
        (0x44, {"gpu": "it is too hot"}),
        (0x80, {"gpu": "its power supply holds it back"}),
    ],
)
def test_nvml_reasons_of_throttled_cards_are_told(reasons: int, told: dict[str, str]) -> None:
    made = NvmlSensors(lambda: FakeNvml(reasons))
    made.look_round()
    made.read()
    assert made.throttled() == told


def test_nvml_readings_of_a_lost_card_are_unknown() -> None:
    """And the card is not throttled."""
    library = FakeNvml(0x20)
    made = NvmlSensors(lambda: library)
    made.look_round()
    library.fails = True
    assert {one.value for one in made.read()} == {None}
    assert made.throttled() == {}


def test_nvml_without_a_driver_has_no_readings(tmp_path: Path) -> None:
    """The package is not even imported."""
    made = NvmlSensors(lambda: nvml(tmp_path))
    made.look_round()
    assert made.read() == []


def jetson() -> SimpleNamespace:
    """Attributes of jetson-stats 7.2, of an Orin."""
    return SimpleNamespace(
        ok=lambda spin: True,
        close=lambda: None,
        temperature={
            "cpu": {"temp": 48.2, "online": True, "crit": 104.5},
            "cv0": {"temp": -256, "online": False},
        },
        power={"rail": {"VDD_GPU_SOC": {"power": 2385}}, "tot": {"power": 7100}},
        gpu={"ga10b": {"status": {"load": 12.5}, "freq": {"cur": 306000, "max": 1300500}}},
        fan={"pwmfan": {"speed": [40.0], "rpm": [1432]}},
    )


def test_jtop_readings_have_units_and_devices() -> None:
    """A sensor that is offline is unknown."""
    made = JtopSensors(jetson)
    made.look_round()
    found = {one.name: one for one in made.read()}
    assert {name: (one.quantity, one.value, one.device) for name, one in found.items()} == {
        "cpu": (Quantity.CELSIUS, 48.2, "cpu"),
        "cv0": (Quantity.CELSIUS, None, ""),
        "VDD_GPU_SOC": (Quantity.WATTS, 2.385, "gpu"),
        "total": (Quantity.WATTS, 7.1, ""),
        "ga10b clock": (Quantity.MEGAHERTZ, 306.0, "gpu"),
        "ga10b load": (Quantity.PERCENT, 12.5, "gpu"),
        "pwmfan 0": (Quantity.RPM, 1432.0, ""),
    }
    assert found["cpu"].limit == 104.5


def test_jtop_without_a_service_has_no_readings() -> None:
    """A service that has gone is asked for anew."""
    assert JtopSensors(lambda: None).read() == []
    client = jetson()
    made = JtopSensors(lambda: client)
    made.look_round()
    client.ok = lambda spin: False
    assert made.read() == []
    client.ok = lambda spin: True
    made.look_round()
    assert made.read()


def test_jtop_names_no_throttled_part() -> None:
    """The kernel does; what sensors say is put together by name."""
    assert JtopSensors(jetson).throttled() == {}
