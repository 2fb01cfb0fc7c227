"""Another variant than before: what is near is wished for, and no device waits for a load that it need not wait for."""

from dataclasses import replace

import pytest

from appliance.domain.catalogue import Application
from appliance.domain.session import LatencyPromise, NoticeKind
from appliance.policies.residency.base import IN_USE
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.present import present
from tests.runtime.sessions.fleet import Device, Fleet, box_with

COSTS = {size: Cost(run_ms=size / 32, resident_bytes=20, load_ms=50) for size in (640, 512, 384, 256, 128)}
PROMISE = LatencyPromise(150.0, 10.0)


def falling(after_s: float, mbps: float) -> float:
    """A link of 40 Mbit/s that is as slow as that after ten seconds."""
    return (40.0 if after_s < 10 else mbps) * 1e6


@story
async def test_plan_wishes_for_other_variants_by_distance() -> None:
    """How many of them are loaded is the memory manager's to say, not a number of the planner's."""
    async with box_with(COSTS) as (fleet, gate):
        live = await fleet.camera(gate, PROMISE, fps=10.0, mbps=8.0)
        await fleet.pass_s(3)
        used = present(live.plan).variant
        beside = fleet.bench.core.arbiter.beside
        names = {fleet.bench.build(f"v{size}", gate.id): f"v{size}" for size in COSTS}
        assert [names[one] for one in beside.in_use(gate.id)] == [used]
        order = [names[one] for one, _ in sorted(beside.near(gate.id).items(), key=lambda item: item[1])]
        sizes = sorted(COSTS)
        ranks = [abs(sizes.index(int(name[1:])) - sizes.index(int(used[1:]))) for name in order]
        assert len(order) == 4
        assert ranks == sorted(ranks)


@story
async def test_switch_finds_new_variant_in_memory() -> None:
    async with box_with(COSTS) as (fleet, gate):
        live = await fleet.camera(gate, PROMISE, fps=10.0, link=lambda after_s: falling(after_s, 6.0))
        await fleet.pass_s(8)
        before = live.variant
        await fleet.pass_s(12)
        switches = fleet.sessions.planning.figures.switches
        assert live.variant != before
        assert switches.total() == switches["awake"] >= 1


@story
async def test_device_has_best_resident_variant_until_planned_variant_is_loaded() -> None:
    """A link falls so far that the variant in use is too late, and the one of the plan takes a minute to load."""
    fleet = Fleet(budget=65)
    slow = {size: Cost(run_ms=size / 32, resident_bytes=20, load_ms=60_000) for size in (384, 256)}
    gate = fleet.add({640: COSTS[640], **slow, 128: COSTS[128]})
    builds = {size: fleet.bench.build(f"v{size}", gate.id) for size in (640, 384, 256, 128)}
    async with fleet.working():
        live = await fleet.join(gate, PROMISE, fps=10.0, mbps=40.0)
        fleet.stream(live, lambda after_s: falling(after_s, 3.5))
        await fleet.bench.availability.load(gate, "v128")
        await fleet.pass_s(8)
        assert live.variant == "v640"
        assert fleet.bench.memory.is_resident(builds[128])
        await fleet.pass_s(6)
        wanted = fleet.sessions.planning.pools
        assert {name for pool in wanted for name in pool.wanted} <= {"v384", "v256"}
        assert live.variant == "v128"
        assert fleet.sessions.planning.figures.switches["absent"] == 0


@story
async def test_session_frames_train_no_forecaster_of_application() -> None:
    """What a session sends is known from its plan; requests without a session train the forecaster."""
    async with box_with(COSTS) as (fleet, gate):
        live = await fleet.join(gate, PROMISE, fps=10.0, mbps=40.0)
        device = fleet.stream(live, lambda _: 40e6)
        await fleet.pass_s(5)
        expectation = fleet.bench.core.expectations.of(gate.id)
        assert device.sent > 20
        assert not expectation.arrivals_ns
        await fleet.bench.infer(application=gate.id)
        await fleet.pass_s(0.1)
        assert len(expectation.arrivals_ns) == 1


@story
async def test_wish_for_variant_soon_left_has_lower_priority_than_in_use() -> None:
    """A device goes on with a variant that its plan has left, while the new one comes: the new one
    may take its place.
    """
    fleet = Fleet()
    slow = {size: Cost(run_ms=size / 32, resident_bytes=20, load_ms=5_000) for size in COSTS if size != 256}
    gate = fleet.add({**slow, 256: COSTS[256]})
    async with fleet.working():
        live = await fleet.camera(gate, PROMISE, fps=10.0, mbps=5.0, link=lambda after_s: 5e6 if after_s < 4 else 40e6)
        await fleet.pass_s(3)
        first = live.variant
        assert (first, IN_USE) in fleet.bench.wishes(gate.id)
        seen = set()
        for _ in range(60):
            await fleet.pass_s(0.1)
            seen |= fleet.bench.wishes(gate.id)
        assert (first, IN_USE - 1) in seen


def add_alike(fleet: Fleet, *costs: Cost) -> Application:
    """An application with as many variants of one size that are as accurate."""
    gate = fleet.add({320 - at: cost for at, cost in enumerate(costs)}, accuracies=(90.0,) * len(costs))
    model = fleet.bench.catalogue.model_of(gate)
    alike = tuple(replace(variant, height=320, width=320) for variant in model.variants)
    fleet.bench.catalogue.put_model(replace(model, variants=alike))
    return gate


def reasons(device: Device) -> list[str]:
    """Why a device was told another variant, each time."""
    return [notice.reason for notice in device.notices if notice.kind is NoticeKind.VARIANT]


@story
async def test_device_keeps_variant_beside_another_as_good() -> None:
    """Now the one is a little quicker, now the other, as under load; only a much quicker one is worth a change, and
    that is told with a reason.
    """
    fleet = Fleet()
    gate = add_alike(fleet, Cost(run_ms=20.0), Cost(run_ms=21.0))
    first = fleet.bench.processor.costs[fleet.bench.build("v320", gate.id)]
    async with fleet.working():
        live = await fleet.camera(gate, PROMISE, fps=10.0, mbps=40.0)
        (device,) = fleet.devices
        await fleet.pass_s(2)
        for run_ms in (23.0, 20.0, 23.0, 20.0, 23.0):
            first.run_ms = run_ms
            await fleet.pass_s(3)
        assert (live.variant, reasons(device)) == ("v320", [])
        first.run_ms = 40.0
        await fleet.pass_s(5)
        assert live.variant == "v319"
        assert reasons(device) == ["v319 has the same accuracy as v320, and serves all promises with less"]


@pytest.mark.parametrize(("devices", "slower"), [(1, 1.5), (1, 2.5), (3, 2.0)])
@story
async def test_device_on_slower_box_keeps_variant(devices: int, slower: float) -> None:
    """All of three that are as accurate take as much longer than at the import, and only the one in use shows it:
    whether the box still carries all or not, no device is told another variant every other second.
    """
    fleet = Fleet()
    gate = add_alike(fleet, Cost(run_ms=20.0), Cost(run_ms=21.0), Cost(run_ms=20.5))
    async with fleet.working():
        await fleet.cameras(devices, gate, LatencyPromise(200.0, 10.0), fps=10.0, mbps=40.0)
        await fleet.pass_s(2)
        for cost in fleet.bench.processor.costs.values():
            cost.run_ms *= slower
        await fleet.pass_s(60)
        assert max(len(reasons(device)) for device in fleet.devices) <= 5


@pytest.mark.parametrize(("load_ms", "variant"), [(60_000.0, "v320"), (500.0, "v319")])
@story
async def test_switch_to_variant_as_accurate_is_made_if_worth_load(load_ms: float, variant: str) -> None:
    """A third less of 30 ms ten times a second is three seconds in thirty: a load of half a second is worth it."""
    fleet = Fleet()
    gate = add_alike(fleet, Cost(run_ms=20.0), Cost(run_ms=21.0, load_ms=load_ms))
    async with fleet.working():
        await fleet.camera(gate, PROMISE, fps=10.0, mbps=40.0)
        await fleet.pass_s(1)
        fleet.bench.processor.costs[fleet.bench.build("v320", gate.id)].run_ms = 30.0
        await fleet.pass_s(10)
        assert {name for pool in fleet.sessions.planning.pools for name in pool.wanted} == {variant}
