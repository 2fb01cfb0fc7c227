"""Drop curves of a session by variant: what its device has measured, and what stands until it has."""

import math
from dataclasses import replace

import pytest

from appliance.domain.catalogue import Application, Tenant
from appliance.domain.session import AccuracyPromise, DeviceReport, Promise, VariantDrop
from appliance.domain.states import SessionState
from appliance.policies.offload.base import Client
from appliance.runtime.sessions import offloading
from appliance.runtime.sessions.curves import RATE_PRIOR, TIMES_MAX, Curves
from appliance.runtime.sessions.drop_priors import DropPriors
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.offloading import Scale
from appliance.runtime.sessions.pools import key_of
from appliance.runtime.sessions.zoo import Rung
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import Fleet, box_with, steady

ZOO = {320: Cost(run_ms=10), 640: Cost(run_ms=30)}


async def joined(
    fleet: Fleet, gate: Application, promise: Promise, count: int = 1, tenant: str | None = None
) -> list[LiveSession]:
    return [await fleet.join(gate, promise, mbps=50, fps=15.0, tenant=tenant) for _ in range(count)]


def rungs_of(fleet: Fleet, live: LiveSession) -> tuple[Rung, Rung]:
    """The most and the least accurate variant."""
    zoo = fleet.sessions.planning.zoos.of(key_of(live))
    return zoo.best, min(zoo.rungs, key=lambda rung: rung.accuracy)


def clients_of(fleet: Fleet, *lives: LiveSession) -> dict[str, Client]:
    """As the planner is asked about them."""
    rungs = fleet.sessions.planning.zoos.of(key_of(lives[0])).rungs
    return offloading.clients_of(lives, rungs, Scale(fleet.clock.now_ns(), 15.0), {}, 1.0)


@story
async def test_drop_curve_is_gap_plus_rate_until_measured_by_device() -> None:
    """Then the device's own curve counts, gap and rate, in what the planner is asked and in what the promise is judged
    by.
    """
    async with box_with(ZOO) as (fleet, gate):
        (live,) = await joined(fleet, gate, AccuracyPromise(0.3))
        best, small = rungs_of(fleet, live)
        gap = (best.accuracy - small.accuracy) / 100.0
        assert gap > 0.0

        def asked() -> tuple[float, float, float | None]:
            client = clients_of(fleet, live)[live.id]
            (variant,) = (one for one in client.variants if one.name == small.name)
            return client.drop_rate, variant.accuracy_gap, variant.drop_rate

        live.report(DeviceReport(drop_rate=0.004))
        assert asked() == pytest.approx((0.004, gap, None))
        assert live.drop_of(5.0, small.name) == pytest.approx(gap + 0.02)
        curves = {best.name: VariantDrop(0.004), small.name: VariantDrop(0.01, {best.name: 0.07, "other": 0.9})}
        live.report(DeviceReport(drop_rate=0.01, drop_curves=curves))
        assert asked() == (0.004, 0.07, 0.01)
        assert live.drop_of(5.0, small.name) == pytest.approx(0.07 + 0.05)
        assert live.drop_of(5.0) == live.drop_of(5.0, best.name) == pytest.approx(0.02)
        live.reference_stride = 2.0
        assert live.drop_beside_dedicated(5.0, small.name) == pytest.approx(0.12 - 0.008)
        measured = {name: (one.base, one.rate) for name, one in live.curves.measured().items()}
        assert measured == {best.name: (0.0, 0.004), small.name: (0.07, 0.01)}


@story
async def test_drop_curve_report_is_clamped_to_bounds() -> None:
    """NaN is no report, larger values are the bound, and no variant is behind itself."""
    bench, curves = EngineBench(), Curves()
    best = Rung(bench.catalogue.entry(bench.add({"best": Cost()}).id).servables["best"], None, {}, {})
    nan, wild = VariantDrop(math.nan, {"best": math.nan}), VariantDrop(99.0, {"best": 99.0})
    assert not curves.report(DeviceReport(drop_rate=math.nan, drop_curves={"a": nan, "b": wild, "best": wild}))
    curves.know([best], best)
    assert (curves.rate_of("a"), curves.gap_of("a")) == (curves.rate, 0.0)
    assert (curves.rate_of("b"), curves.gap_of("b")) == (0.2, 0.5)
    assert curves.gap_of("best") == 0.0


@story
async def test_drop_ratio_measured_by_device_applies_to_other_devices() -> None:
    """One device has measured 0.004 and 0.012 a frame: three times as much. Another device that knows the small variant
    at 0.024 is taken to lose 0.008 with the large one; before any device had compared them it was tried at what first
    plans take.
    """
    async with box_with(ZOO) as (fleet, gate):
        one, other = await joined(fleet, gate, AccuracyPromise(0.08), 2)
        best, small = (rung.name for rung in rungs_of(fleet, one))
        priors = DropPriors()

        def rates() -> tuple[float, float | None]:
            priors.estimate(("t", gate.id), (one, other), (one, other), fleet.clock.now_ns())
            client = clients_of(fleet, other)[other.id]
            return client.drop_rate, next(v.drop_rate for v in client.variants if v.name == small)

        other.report(DeviceReport(drop_rate=0.024, drop_curves={small: VariantDrop(0.024)}))
        assert rates() == (0.08 / offloading.FIRST_STRIDE, 0.024)
        one.report(DeviceReport(drop_rate=0.012, drop_curves={best: VariantDrop(0.004), small: VariantDrop(0.012)}))
        clients_of(fleet, one)
        assert rates() == pytest.approx((0.008, 0.024))


@story
async def test_false_drop_report_moves_other_devices_within_bounds() -> None:
    """A device that says the small variant ages 2000 times as fast as the large one leaves others a curve that they can
    be planned by; a device that has measured its own keeps that.
    """
    async with box_with(ZOO) as (fleet, gate):
        boaster, one, other = everybody = await joined(fleet, gate, AccuracyPromise(0.3), 3)
        best, small = (rung.name for rung in rungs_of(fleet, one))
        for rates in ((0.0, 99.0), (99.0, 0.0)):
            boast = {best: VariantDrop(rates[0]), small: VariantDrop(rates[1])}
            boaster.report(DeviceReport(drop_rate=0.004, drop_curves=boast))
            one.report(DeviceReport(drop_rate=0.004, drop_curves={best: VariantDrop(0.004)}))
            own = {best: VariantDrop(0.004), small: VariantDrop(0.012)}
            other.report(DeviceReport(drop_rate=0.004, drop_curves=own))
            clients_of(fleet, *everybody)
            DropPriors().estimate(("t", gate.id), everybody, everybody, fleet.clock.now_ns())
            assert other.curves.rate_of(small) == 0.012
            assert 0.004 / TIMES_MAX <= one.curves.rate_of(small) <= 0.004 * TIMES_MAX


@story
async def test_drop_priors_are_forgotten_with_application() -> None:
    """An application that comes by the same name afterwards begins with what is assumed of any; so does one that asks
    another model, whose variants have the same names.
    """
    promise = AccuracyPromise(0.3)
    async with box_with(ZOO) as (fleet, gate):
        planning = fleet.sessions.planning
        (one,) = await joined(fleet, gate, promise)
        best, small = (rung.name for rung in rungs_of(fleet, one))
        one.report(DeviceReport(drop_rate=0.012, drop_curves={best: VariantDrop(0.004), small: VariantDrop(0.012)}))
        clients_of(fleet, one)
        await planning.accuracy.plan(planning.pools.pool(key_of(one, one.lane)))
        await fleet.sessions.end(one)

        async def rate_of_a_new_one() -> tuple[float, dict[str, float]]:
            (other,) = await joined(fleet, gate, promise)
            found = other.curves.rate, dict(other.curves.times)
            await fleet.sessions.end(other)
            return found

        rate, times = await rate_of_a_new_one()
        assert rate == 0.012
        assert times == pytest.approx({best: 1.0, small: 3.0})
        fleet.sessions.applications.forget(gate.id)
        assert await rate_of_a_new_one() == (RATE_PRIOR, {})


@story
async def test_device_reports_of_tenant_do_not_move_other_tenants() -> None:
    """At an application that is shared: neither rates that are made up nor pictures that take long to decode."""
    async with box_with(ZOO) as (fleet, gate):
        fleet.bench.catalogue.put_application(replace(gate, shared=True))
        fleet.bench.catalogue.put_tenant(Tenant("u"))
        for boaster in await joined(fleet, gate, AccuracyPromise(0.3), 3, tenant="u"):
            fleet.stream(boaster, steady(50), drop_rate=0.2)
        await fleet.pass_s(3)
        (honest,) = await joined(fleet, gate, AccuracyPromise(0.1))
        assert honest.state is SessionState.SERVED
        assert (honest.curves.rate, honest.curves.times) == (RATE_PRIOR, {})
        decode_ms = fleet.sessions.applications.decode_ms
        assert decode_ms("u", gate.id) > 0.0
        assert decode_ms("t", gate.id) == 0.0
