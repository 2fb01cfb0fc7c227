"""What is read of the registries: differences, and nothing twice."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.hardware import ProcessorDescription, ProcessorStatus
from appliance.domain.promised import PromiseCounts, PromiseEnd
from appliance.domain.sensors import Quantity, Reading
from appliance.domain.states import ProcessorState
from appliance.history.sampler import Sample, Sampler, Sources, quantile_ms
from appliance.runtime.telemetry import BUCKETS_S, Telemetry
from tests.fakes.hand_clock import HandClock

CPU = ProcessorDescription("cpu", "cpu", 2, 1, "host", "x")


@dataclass
class Machine:
    """What the sampler looks at."""

    clock: HandClock = field(default_factory=HandClock)
    busy_ms: float = 0.0
    readings: Sequence[Reading] = ()

    def __post_init__(self) -> None:
        self.telemetry = Telemetry(self.clock)
        sources = Sources(
            statistics=self.telemetry.statistics,
            memory_bytes=lambda: (30, 100),
            held_bytes=lambda: {"harbour": 20, "museum": 0},
            processors=lambda: [ProcessorStatus(CPU, ProcessorState.SERVING, busy_ms=self.busy_ms)],
            sensors=lambda: self.readings,
            available_bytes=lambda: 1000,
            disk_free_bytes=lambda: 2000,
        )
        self.sampler = Sampler(sources, self.clock.now_ns())

    def answer(self, application: str, ms: float, *, caller: str = "harbour", warm: bool = True) -> None:
        parts = (0, 0, int(ms * NS_PER_MS))
        self.clock.pass_s(0.001)
        self.telemetry.done(
            (application, "int8", caller),
            warm=warm,
            parts_ns=parts,
            items=1,
            run_items=1,
            at_ns=self.clock.now_ns(),
            slo_kept=ms < 10,
        )

    def take(self) -> dict[str, float]:
        """What ten seconds after the last sample says."""
        return self.take_all().values

    def take_all(self) -> Sample:
        self.clock.pass_s(10 - self.clock.now_ns() / NS_PER_S % 10)
        return self.sampler.take(self.clock.now_ns())


def test_history_sample_counts_requests_once() -> None:
    """Rates of the box, of the caller and of the application; the next sample has none of them."""
    machine = Machine()
    machine.take()
    for _ in range(20):
        machine.answer("harbour/door", 4)
    for _ in range(10):
        machine.answer("harbour/door", 40, caller="museum", warm=False)
    machine.telemetry.failed(("museum/gate", "", "museum"), "expired", 5)
    values = machine.take()
    assert values["requests"] == pytest.approx(3.1)
    assert values["requests:harbour/door"] == pytest.approx(3.0)
    assert [values["done:harbour"], values["done:museum"]] == pytest.approx([2.0, 1.0])
    assert values["expired:museum/gate"] == pytest.approx(0.1)
    assert values["cold:museum"] == pytest.approx(1.0)
    assert values["warm:harbour/door"] == pytest.approx(2 / 3)
    assert values["kept:harbour/door"] == pytest.approx(2 / 3)
    assert 2.5 <= values["p50:harbour"] <= 5
    assert 25 <= values["p99:harbour/door"] <= 50
    assert "p99:museum/gate" not in values
    after = machine.take()
    assert {name for name in after if ":" not in name} == {"up", "memory", "budget", "available", "disk"}
    assert after["memory:harbour"] == 20
    assert "memory:museum" not in after


def test_history_sample_after_counter_reset_counts_from_zero() -> None:
    """An application is deleted and made again between two samples; an SLO is changed."""
    machine = Machine()
    for _ in range(5):
        machine.answer("harbour/door", 4)
    machine.take()
    machine.telemetry.forget_application("harbour/door")
    machine.answer("harbour/door", 4)
    assert machine.take()["done:harbour/door"] == pytest.approx(0.1)
    machine.answer("harbour/door", 4)
    machine.telemetry.forget_slo("harbour/door")
    for _ in range(3):
        machine.answer("harbour/door", 40)
    values, tally = machine.take_all()
    assert values["done:harbour/door"] == pytest.approx(0.4)
    assert values["kept:harbour/door"] == 0.25
    assert list(tally["requests:harbour/door"]) == [1, 3, 0, 0]
    assert "requests:harbour/door" not in machine.take_all().tally


def test_history_sample_tallies_promises_requests_and_memory_of_tenants() -> None:
    """Whole numbers: kept, late, refused and failed of an application, however many callers it has."""
    machine = Machine()
    for ms, caller in ((4, "harbour"), (4, "museum"), (40, "museum")):
        machine.answer("harbour/door", ms, caller=caller)
    for end in (PromiseEnd.LATE, PromiseEnd.REFUSED, PromiseEnd.FAILED, None):
        machine.telemetry.failed(("harbour/door", "", "harbour"), "failed", 5, end)
    tally = {name: list(counts) for name, counts in machine.take_all().tally.items()}
    assert tally == {
        "up": [1],
        "requests:harbour/door": [2, 2, 1, 1],
        "asked:harbour": [5],
        "asked:museum": [2],
        "held:harbour": [20],
    }


def test_history_sample_counts_what_a_counter_counted_before_it_went() -> None:
    """A session ends between two samples, and another one begins; neither counts twice."""
    machine = Machine()
    first, second = PromiseCounts(kept=2), PromiseCounts()
    counters = [("windows:harbour/door", first)]
    machine.sampler.count(lambda: counters)
    assert list(machine.take_all().tally["windows:harbour/door"]) == [2, 0, 0, 0]
    first.failed = 3
    second.kept = 5
    counters[:] = [("windows:harbour/door", second)]
    assert list(machine.take_all().tally["windows:harbour/door"]) == [5, 0, 0, 3]
    assert "windows:harbour/door" not in machine.take_all().tally


def test_history_sample_has_processor_load_and_hottest_sensor() -> None:
    """Load is the share of all workers; silent sensors are left out; the box's heat is its hottest sensor."""
    machine = Machine()
    machine.take()
    machine.busy_ms = 5_000
    machine.readings = [
        Reading("thermal", "zone0", Quantity.CELSIUS, 51.0, "cpu"),
        Reading("thermal", "zone1", Quantity.CELSIUS, 47.0),
        Reading("hwmon", "fan", Quantity.RPM, None),
        Reading("cpufreq", "cpu0", Quantity.MEGAHERTZ, 2000.0),
    ]
    values = machine.take()
    assert values["load:cpu"] == pytest.approx(0.25)
    assert (values["celsius"], values["celsius:thermal/cpu/zone0"], values["celsius:thermal/zone1"]) == (51, 51, 47)
    assert [name for name in values if name.startswith(("rpm", "mega"))] == []


def test_history_latency_quantile_lies_within_its_bucket() -> None:
    """As far as buckets tell; beyond the last bucket the quantile is that bucket's beginning."""
    buckets = [0] * (len(BUCKETS_S) + 1)
    assert quantile_ms(buckets, 0.5) == 0
    buckets[3] = 98
    buckets[6] = 2
    assert 2.5 < quantile_ms(buckets, 0.5) < 5
    assert 25 < quantile_ms(buckets, 0.99) <= 50
    assert quantile_ms([0] * len(BUCKETS_S) + [4], 0.99) == 10_000
