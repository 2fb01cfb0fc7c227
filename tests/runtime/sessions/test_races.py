"""Whatever is asked of a session at once: promises changed while they are made, streams that come and go meanwhile."""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from appliance.domain.catalogue import Tenant
from appliance.domain.errors import ApplianceError, PromiseNotPossible, UnknownSession
from appliance.domain.session import AccuracyPromise, LatencyPromise, Promise
from appliance.domain.states import SessionState
from appliance.runtime.sessions.curves import RATE_PRIOR
from appliance.runtime.sessions.live import LiveSession
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.harness.lanes import seeds
from tests.runtime.sessions.fleet import Fleet, box_with, steady

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

ZOO = {640: Cost(run_ms=40), 320: Cost(run_ms=13)}


@story
async def test_promise_changed_without_link_has_to_be_admitted() -> None:
    """The promise before is kept for two seconds: with a new one that cannot be kept the device comes back to wait, and
    another session that is served stays so.
    """
    async with box_with(ZOO) as (fleet, gate):
        other = await fleet.join(gate, LatencyPromise(200.0, 5.0), mbps=30)
        live = await fleet.join(gate, LatencyPromise(200.0, 5.0), mbps=30)
        fleet.stream(other, steady(30))
        with fleet.sessions.attached(live):
            pass
        seen = [live.state]
        await fleet.sessions.change(live, promise=LatencyPromise(20.0, 1000.0))
        with fleet.sessions.attached(live):
            seen.append(live.state)
            await fleet.pass_s(2)
            seen += [live.state, other.state]
            await fleet.sessions.change(live, promise=LatencyPromise(200.0, 5.0))
            seen.append(live.state)
        states = SessionState.SUSPENDED, SessionState.WAITING, SessionState.WAITING
        assert seen == [*states, SessionState.SERVED, SessionState.SERVED]


def _promise(rng: random.Random) -> Promise:
    if rng.random() < 0.4:
        return AccuracyPromise(rng.choice([0.02, 0.1, 0.3]))
    return LatencyPromise(rng.choice([20.0, 120.0, 400.0]), rng.choice([2.0, 10.0, 30.0]))


@pytest.mark.parametrize("seed", seeds(gate=2, nightly=4))
@story
async def test_sessions_survive_concurrent_changes_at_random(seed: int) -> None:
    """Joining, another promise, a pause, a stream that begins or breaks, leaving: many of them under way at a time, of
    the same sessions. Nothing fails but in its own words, every frame is counted once, and nothing is left behind."""
    rng = random.Random(seed)
    fleet = Fleet(workers=2)
    gate = fleet.add(ZOO)
    joined: list[LiveSession] = []
    unexpected: list[BaseException] = []

    async def tolerant(work: Awaitable[object]) -> None:
        try:
            await work
        except (PromiseNotPossible, UnknownSession):
            pass
        except (ApplianceError, AssertionError, RuntimeError, KeyError) as error:
            unexpected.append(error)

    async def join() -> None:
        joined.append(await fleet.join(gate, _promise(rng), mbps=30, wait=rng.random() < 0.5))

    async with fleet.working():
        tasks: set[asyncio.Task[None]] = set()
        for _ in range(120):
            there = [live for live in joined if live.state is not SessionState.ENDED]
            step = rng.random()
            work: Awaitable[object] | None = None
            if step < 0.25 or not there:
                work = join()
            elif step < 0.5:
                work = fleet.sessions.change(rng.choice(there), promise=_promise(rng))
            elif step < 0.65:
                work = fleet.sessions.change(rng.choice(there), promise=_promise(rng), is_paused=rng.random() < 0.5)
            elif step < 0.75:
                work = fleet.sessions.end(rng.choice(there))
            elif step < 0.9 and len(there) < 12:
                fleet.stream(rng.choice(there), steady(30), from_frame=len(fleet.devices) * 1000)
            elif fleet.devices:
                fleet.disconnect(rng.choice(fleet.devices))
            if work is not None:
                tasks.add(asyncio.create_task(tolerant(work)))
            if rng.random() < 0.5:
                await fleet.pass_s(rng.choice([0.0, 0.001, 0.05, 0.6]))
            for live in joined:
                counts = live.counts
                assert counts.sent == counts.answered + counts.late + counts.dropped + counts.lost + counts.under_way
                assert counts.under_way >= 0
        await asyncio.gather(*tasks)
        for live in joined:
            await fleet.sessions.end(live)
        await fleet.pass_s(3)
        assert not unexpected
        assert all(live.counts.under_way == 0 for live in joined)
        assert (fleet.sessions.live, fleet.sessions.planning.ledger.planned) == ({}, 0.0)
        assert fleet.sessions.planning.is_over
    fleet.bench.assert_quiet()


@story
async def test_sessions_end_with_application() -> None:
    """While a device streams; another tenant's end when the application is shared no more. A session whose model is out
    of service for a while stays.
    """
    promise = LatencyPromise(300.0, 5.0)
    async with box_with({640: Cost(run_ms=10)}) as (fleet, gate):
        door, catalogue = fleet.add({640: Cost(run_ms=10)}, name="door"), fleet.bench.catalogue
        catalogue.put_tenant(Tenant("u"))
        catalogue.put_application(replace(gate, shared=True))
        own = await fleet.camera(gate, promise, fps=5.0, mbps=50)
        await fleet.camera(gate, promise, fps=5.0, mbps=50, tenant="u")
        await fleet.camera(door, promise, fps=5.0, mbps=50)
        catalogue.put_application(gate)
        await fleet.pass_s(1)
        assert fleet.states == [SessionState.SERVED, SessionState.ENDED, SessionState.SERVED]
        catalogue.remove_application(gate.id)
        catalogue.remove_model(catalogue.model_of(door).id)
        await fleet.pass_s(1)
        assert fleet.states == [SessionState.ENDED, SessionState.ENDED, SessionState.WAITING]
        assert own.reason == "its application is gone, or is shared no more"


@story
async def test_removed_tenant_leaves_no_sessions_or_totals() -> None:
    """The tenant's sessions end at once, though the application that they ask is another's: a tenant that gets the name
    a moment later finds neither them nor what they counted, and its devices begin without a history.
    """
    fleet = Fleet()
    gate = fleet.add({640: Cost(run_ms=10)})
    catalogue, sessions = fleet.bench.catalogue, fleet.sessions
    catalogue.put_application(replace(gate, shared=True))
    catalogue.put_tenant(Tenant("u"))
    async with fleet.working():
        ended, live = [await fleet.join(gate, AccuracyPromise(0.1), mbps=30, tenant="u") for _ in range(2)]
        fleet.stream(live, steady(30), drop_rate=0.02)
        await fleet.pass_s(2)
        await sessions.end(ended)
        assert sessions.totals["u"]
        assert len(sessions.list("u")) == 2
        catalogue.remove_tenant("u")
        sessions.forget_tenant("u")
        catalogue.put_tenant(Tenant("u"))
        assert (live.state, live.reason) == (SessionState.ENDED, "its tenant is gone")
        assert (sessions.list("u"), dict(sessions.live), "u" in sessions.totals) == ([], {}, False)
        await fleet.pass_s(1)
        other = await fleet.join(gate, AccuracyPromise(0.1), mbps=30, tenant="u")
        assert other.curves.rate == RATE_PRIOR
        assert live.counts.under_way == 0


@story
async def test_batch_ends_while_promises_of_frames_change() -> None:
    """A frame that waits for a batch, or runs in one, while its session is promised something else: the batches of
    those that stay are not taken to run for ever.
    """
    async with box_with({640: Cost(run_ms=40)}) as (fleet, gate):
        stays, leaves = [await fleet.camera(gate, AccuracyPromise(0.2), mbps=30) for _ in range(2)]
        for _ in range(20):
            await fleet.pass_s(0.31)
            await fleet.sessions.change(leaves, promise=LatencyPromise(500.0, 2.0))
            await fleet.pass_s(0.07)
            await fleet.sessions.change(leaves, promise=AccuracyPromise(0.2))
        gates = fleet.sessions.planning.gates_of(stays)
        for device in fleet.devices:
            fleet.disconnect(device)
        await fleet.pass_s(1)
        assert gates is not None
        assert gates.begun() == []


@story
async def test_session_whose_join_takes_longer_than_idle_limit_begins() -> None:
    """Forty devices join at once, each join waits two seconds for a network that loads slowly, and a session that is
    silent for 60 s ends: a device is silent until its join is answered.
    """

    async def joined() -> SessionState:
        return (await fleet.join(gate, LatencyPromise(1000.0, 0.5), mbps=20)).state

    async with box_with({320: Cost(run_ms=13, load_ms=200_000)}) as (fleet, gate):
        assert await asyncio.gather(*(joined() for _ in range(40))) == [SessionState.SERVED] * 40
