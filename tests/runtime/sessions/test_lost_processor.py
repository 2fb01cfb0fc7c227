"""A processor goes while devices stream: plans are made without it within a period, and with it when it is back."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from appliance.domain.session import AccuracyPromise, LatencyPromise, NoticeKind
from appliance.domain.states import SessionState
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.present import present
from tests.runtime.serving.machine import Machine
from tests.runtime.sessions.fleet import Fleet, box_with

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")


@asynccontextmanager
async def two_clusters(machine: Machine) -> AsyncIterator[Fleet]:
    """A worker each; the second one on the cores 2 and 3."""
    bench = EngineBench(1000, twins=[(1, 1.0, 1.0)], queue_len=500, queue_total=1000)
    bench.twins[0].cores = (2, 3)
    bench.clusters[0].described = bench.twins[0].describe()
    fleet = Fleet(bench=bench)
    with machine.keeping(bench):
        async with fleet.working():
            yield fleet


def lose(fleet: Fleet, machine: Machine) -> None:
    """The second cluster's."""
    fleet.bench.clusters[0].lose("core 3 is offline")
    machine.cores.discard(3)


@pytest.mark.nightly("minutes of many devices")
@story
async def test_latency_promises_are_planned_without_lost_worker() -> None:
    """Eight cameras of 15 frames a second at 13 ms a run: 1.56 of a worker, which two have and one has not. A session
    without room is told within a second, the others' frames are in time; when the cluster is back all are served again.
    """
    machine = Machine(0, 1, 2, 3)
    async with two_clusters(machine) as fleet:
        gate = fleet.add({320: Cost(run_ms=13)})
        for _ in range(8):
            live = await fleet.camera(gate, LatencyPromise(200.0, 15.0), mbps=50)
        await fleet.pass_s(5)
        planning = fleet.sessions.planning
        (pool,) = planning.pools
        assert (Counter(fleet.states), len(present(pool.plan).workers)) == ({SessionState.SERVED: 8}, 2)
        lose(fleet, machine)
        await fleet.pass_s(1)
        assert len(present(pool.plan).workers) == 1
        states = Counter(fleet.states)
        assert 3 <= states[SessionState.SERVED] <= 5
        assert states[SessionState.WAITING] == 8 - states[SessionState.SERVED]
        told = [device.told[NoticeKind.REMOVED] for device in fleet.devices]
        assert sum(told) == states[SessionState.WAITING]
        left = [device.live for device in fleet.devices if device.live.state is SessionState.SERVED]
        before = {live.id: (live.counts.answered, live.counts.under_way) for live in left}
        misses = {live.id: live.counts.late + live.counts.dropped for live in left}
        await fleet.pass_s(10)
        for live in left:
            assert live.counts.answered - before[live.id][0] >= 140
            assert live.counts.late + live.counts.dropped - misses[live.id] <= 2
        machine.cores.add(3)
        await fleet.pass_s(20)
        assert Counter(fleet.states) == {SessionState.SERVED: 8}


@pytest.mark.nightly("a long story of many plans")
@story
async def test_accuracy_promises_leave_lost_worker() -> None:
    """Both workers have sessions; those of the second one wait, or are let in beside the others, or
    come back with it.
    """
    machine = Machine(0, 1, 2, 3)
    async with two_clusters(machine) as fleet:
        gate = fleet.add({320: Cost(run_ms=20)})
        await fleet.cameras(6, gate, AccuracyPromise(0.04), mbps=50, wait=True, drop_rate=0.006)
        await fleet.pass_s(8)
        assert {device.live.lane for device in fleet.devices} == {0, 1}
        served = Counter(fleet.states)[SessionState.SERVED]
        lose(fleet, machine)
        await fleet.pass_s(1)
        of_lane = [live.live.lane for live in fleet.devices if live.live.state is SessionState.SERVED]
        assert of_lane
        assert set(of_lane) == {0}
        machine.cores.add(3)
        await fleet.pass_s(30)
        assert Counter(fleet.states).get(SessionState.SERVED, 0) >= served


@story
async def test_session_of_lost_worker_moves_to_worker_with_room_at_once() -> None:
    """Six devices that ask for little, on two workers; one worker is lost. Its devices are told, and within two periods
    of planning (0.4 s) they are served by the other.
    """
    machine = Machine(0, 1, 2, 3)
    async with two_clusters(machine) as fleet:
        gate = fleet.add({320: Cost(run_ms=10)})
        await fleet.cameras(6, gate, AccuracyPromise(0.3), mbps=50, wait=True, drop_rate=0.006)
        await fleet.pass_s(8)
        there = [device for device in fleet.devices if device.live.lane == 1]
        assert there
        assert Counter(fleet.states) == {SessionState.SERVED: 6}
        lose(fleet, machine)
        await fleet.pass_s(0.4)
        assert Counter(fleet.states) == {SessionState.SERVED: 6}
        assert {device.live.lane for device in fleet.devices} == {0}
        assert all(device.told[NoticeKind.REMOVED] == 1 for device in there)


@pytest.mark.nightly("a long story of many plans")
@story
async def test_waiting_session_is_let_in_on_any_worker_with_room() -> None:
    """Both workers are full; a device waits, and comes in on whichever worker a session leaves."""
    for lane in (0, 1):
        async with box_with({320: Cost(run_ms=30)}, workers=2) as (fleet, gate):
            while True:
                live = await fleet.camera(gate, AccuracyPromise(0.05), mbps=50, wait=True, drop_rate=0.01)
                await fleet.pass_s(0.5)
                if live.state is SessionState.WAITING:
                    break
            await fleet.pass_s(3)
            waiting = [device for device in fleet.devices if device.live.state is SessionState.WAITING]
            assert waiting
            leaving = [one for one in fleet.devices if one.live.state is SessionState.SERVED and one.live.lane == lane]
            assert leaving
            for device in leaving:
                fleet.disconnect(device)
                await fleet.sessions.end(device.live)
            await fleet.pass_s(4)
            states = {device.live.lane for device in waiting if device.live.state is SessionState.SERVED}
            assert lane in states
