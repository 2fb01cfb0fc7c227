"""The memory forecaster is chosen on the box's own samples, and kept."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from appliance.policies.forecast import MEMORY_FORECASTERS
from appliance.policies.forecast.kinds import read
from appliance.policies.forecast.memory import Trend
from appliance.runtime.memory.pressure import MemoryPressure
from appliance.runtime.memory.pressure_forecasting import FIRST_SAMPLES, MemoryForecasting
from tests.fakes.clock import story
from tests.fakes.memory import MemoryBench

T = TypeVar("T")
MB = 10**6


class Box:
    """A machine on which another process takes 100 MB a second for eight seconds, then gives all back; quiet where
    `is_busy` is false.
    """

    def __init__(self) -> None:
        self.bench = MemoryBench({}, 1000 * MB)
        self.is_busy = True
        self.seconds = 0
        self.saved: list[str] = []
        self.computed = 0
        self.pressure = MemoryPressure(
            clock=self.bench.clock,
            memory=self.bench.memory,
            forecaster=Trend(),
            available_bytes=self._available_bytes,
            events=self.bench.events,
            decisions=self.bench.decisions,
            budget_bytes=1000 * MB,
            reserve_bytes=0,
        )
        self.forecasting = MemoryForecasting(
            clock=self.bench.clock,
            pressure=self.pressure,
            background=self._background,
            events=self.bench.events,
            saved=self.saved.append,
        )

    async def pass_s(self, seconds: int) -> None:
        """A sample a second."""
        for _ in range(seconds):
            self.pressure.step()
            self.seconds += 1
            await self.bench.clock.sleep_until_ns(self.bench.clock.now_ns() + 10**9)

    def _available_bytes(self) -> int:
        return (4000 - (100 * (self.seconds % 8) if self.is_busy else self.seconds % 2)) * MB

    async def _background(self, compute: Callable[[], T], /) -> T:
        self.computed += 1
        return compute()


@story
async def test_forecaster_network_takes_over_where_it_errs_less_and_is_kept() -> None:
    """The trend until there are samples enough; then the network that learnt the cycle, and its text makes it again."""
    box = Box()
    await box.pass_s(FIRST_SAMPLES - 1)
    await box.forecasting.choose()
    assert (box.pressure.forecaster, box.saved, box.computed) == (Trend(), [], 0)
    await box.pass_s(1)
    await box.forecasting.choose()
    assert box.computed == 1, "where it delays nobody"
    assert box.pressure.forecaster.name == "rnn"
    (chosen,) = box.bench.events.of("memory forecaster chosen")
    assert chosen["error_mb"]["rnn"] < 0.5 * chosen["error_mb"]["trend"]
    kept = read(box.saved[-1], MEMORY_FORECASTERS)
    samples, horizon_ns = box.pressure.samples(), box.pressure.horizon_ns
    assert kept.predict(samples, horizon_ns) == box.pressure.forecaster.predict(samples, horizon_ns)


@story
async def test_forecaster_is_chosen_once_without_waiting_for_the_night() -> None:
    box = Box()
    running = asyncio.create_task(box.forecasting.run())
    await box.pass_s(FIRST_SAMPLES + 200)
    assert box.computed == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.nightly("trains forecasters")
@story
async def test_forecaster_learns_from_the_liveliest_samples_at_night() -> None:
    """By day another process came and went; before the night nothing moves for twenty minutes: the cycle is learnt."""
    box = Box()
    running = asyncio.create_task(box.forecasting.run())
    await box.pass_s(FIRST_SAMPLES + 100)
    box.is_busy = False
    await box.pass_s(60)
    box.is_busy = True
    await box.pass_s(600)
    box.is_busy = False
    await box.pass_s(1200)
    await box.forecasting.choose()
    chosen = box.bench.events.of("memory forecaster chosen")[-1]
    assert chosen["error_mb"]["trend"] > 50, "quiet samples would have taught nothing"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
