"""Requests that are answered later, in virtual time: how far they are, what they hold, and how long they are kept."""

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from appliance.api.deferred import KEPT_S, REQUESTS_MAX, Deferred, DeferredRequests
from appliance.api.http.limits import InFlight
from appliance.domain.catalogue import Application, Quota
from appliance.domain.errors import (
    QuotaExceeded,
    ShuttingDown,
    TooManyDeferred,
    UnknownRequest,
    UnknownVariant,
)
from appliance.runtime.serving.predict import Call, Predictor, Watch
from appliance.tasks.base import Media
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.media import FakeMedia
from tests.fakes.processor import Cost

MIB = 2**20


class Journal:
    """Stands for the log."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, BaseException]] = []

    def exception(self, event: str, exc_info: BaseException, **facts: object) -> None:
        self.lines.append((event, exc_info))


class _Desk:
    """A predictor over the bench's engine, whose media takes 3 ms a piece, and who asks it to answer later."""

    def __init__(self, bench: EngineBench, bytes_max: int = MIB) -> None:
        self._bench = bench
        self.journal = Journal()
        self.in_flight = InFlight(MIB)
        self.deferred = DeferredRequests(bench.clock, self.journal, bytes_max=bytes_max)
        self._predictor = Predictor(
            clock=bench.clock,
            catalogue=bench.catalogue,
            engine=bench.engine,
            sequences=bench.sequences,
            media=FakeMedia(bench.clock, work_ms=3),
            texts=self,  # type: ignore[arg-type]  # no task here has texts
            asset_path=Path,
        )

    async def begin(self, application: Application, values: list[float], **wishes: Any) -> Deferred:
        """As the route does it."""
        content = json.dumps({"inputs": {"x": values}}).encode()
        call = Call(application.tenant, "r", self._bench.clock.now_ns(), **wishes)

        async def answering(watch: Watch) -> bytes:
            return await self._predictor.predict(application, Media(content), call, watch)

        with ExitStack() as holds:
            holds.enter_context(self._bench.engine.admitted(application, application.tenant))
            held = holds.enter_context(self.in_flight.body(application.tenant))
            held.grow(len(content))
            return await self.deferred.begin(application.tenant, application.name, answering, holds)

    def told(self, one: Deferred) -> Any:
        """What its tenant is told now."""
        return json.loads(self.deferred.find(one.tenant, one.id).document())


@story
async def test_deferred_request_tells_its_true_state_until_its_end() -> None:
    """While decoding and loading it is waiting, while computing and encoding running, then done; a minute later its id
    is unknown. What the request holds it holds until its end.
    """
    bench = EngineBench()
    desk = _Desk(bench)
    application = bench.add({"v": Cost(load_ms=100, run_ms=10)}, quota=Quota(concurrent_requests=1))
    async with bench.working():
        one = await desk.begin(application, [1, 2])
        seen = []
        for ms in (2, 98, 4, 10, 1):  # in decoding, loading, computing, encoding; and 1 ms before the end
            await bench.pause(ms)
            seen.append(desk.told(one))
            assert desk.in_flight.bytes > 0
            with pytest.raises(QuotaExceeded):
                await desk.begin(application, [1])
        assert [each["state"] for each in seen] == ["waiting", "waiting", "running", "running", "running"]
        assert all(each == {"id": one.id, "state": each["state"]} for each in seen)
        await bench.pause(2)
        told = desk.told(one)
        assert (told["state"], told["result"]["outputs"]["y"]["data"]) == ("done", [2, 4])
        assert told["result"]["timings_ms"]["total"] == 116
        assert "problem" not in told
        assert (desk.in_flight.bytes, desk.deferred.under_way, desk.deferred.kept) == (0, 0, 1)
        assert desk.deferred.results_bytes == len(one.document())
        await bench.pause(1000 * KEPT_S - 5)
        assert desk.told(one) == told
        await bench.pause(5)
        with pytest.raises(UnknownRequest):
            desk.told(one)
    assert (desk.deferred.results_bytes, desk.deferred.kept) == (0, 0)
    bench.assert_quiet()


@story
async def test_deferred_run_on_the_event_loop_is_told_as_running() -> None:
    """From its run on, while its answer is encoded."""
    bench = EngineBench(quick_ms_max=1)
    desk = _Desk(bench)
    application = bench.add({"v": Cost(load_ms=0, run_ms=0.1)})
    async with bench.working():
        one = await desk.begin(application, [1])
        await bench.pause(1)
        assert desk.told(one)["state"] == "waiting"
        await bench.pause(4)
        assert desk.told(one)["state"] == "running"
        await bench.pause(4)
        assert desk.told(one)["state"] == "done"


@story
async def test_deferred_request_past_its_deadline_fails_with_504() -> None:
    """As for a caller that waits, at the deadline, while the run goes on; what the call held is free from then on."""
    bench = EngineBench()
    desk = _Desk(bench)
    application = bench.add({"v": Cost(load_ms=0, run_ms=50)}, slo_ms=None, measured=False)  # else refused at once
    async with bench.working():
        slow = [await desk.begin(application, [1], timeout_ms=200), await desk.begin(application, [1], timeout_ms=80)]
        await bench.pause(20)  # one has the worker, the other waits for it
        assert [desk.told(one)["state"] for one in slow] == ["running", "waiting"]
        await bench.pause(61)
        assert [desk.told(one)["state"] for one in slow] == ["done", "failed"]
        problem = desk.told(slow[1])["problem"]
        assert (problem["type"], problem["status"]) == ("/problems/deadline-exceeded", 504)
        assert problem["instance"] == f"/v1/requests/{slow[1].id}"
        assert desk.in_flight.bytes == 0
        await bench.pause(100)
    bench.assert_quiet()


@story
async def test_deferred_request_refused_at_once_keeps_nothing() -> None:
    """What the call holds stays its caller's to release."""
    bench = EngineBench()
    desk = _Desk(bench)
    application = bench.add({"v": Cost()})
    with pytest.raises(UnknownVariant):
        await desk.begin(application, [1], variant="w")
    assert (desk.deferred.kept, desk.deferred.under_way, desk.in_flight.bytes) == (0, 0, 0)
    assert not desk.deferred.by_tenant


@story
async def test_deferred_requests_are_a_thousand_per_tenant_at_most() -> None:
    """One more is refused with the time after which there is room; under way and kept count alike; another tenant has
    its own thousand.
    """
    bench = EngineBench(queue_len=2000, queue_total=4000)
    desk = _Desk(bench)
    mine, others = (bench.add({"v": Cost(load_ms=0, run_ms=1)}, name="a", tenant=tenant) for tenant in ("t", "u"))
    async with bench.working():
        for _ in range(REQUESTS_MAX):
            await desk.begin(mine, [1])
        with pytest.raises(TooManyDeferred) as refused:
            await desk.begin(mine, [1])
        assert refused.value.retry_after_s == 1
        their = await desk.begin(others, [1])
        await bench.pause(1000 * KEPT_S)
        with pytest.raises(TooManyDeferred) as refused:
            await desk.begin(mine, [1])
        assert refused.value.retry_after_s is not None
        await bench.pause(1000 * refused.value.retry_after_s - 1)
        with pytest.raises(TooManyDeferred):
            await desk.begin(mine, [1])
        await bench.pause(1.1)
        await desk.begin(mine, [1])
        assert desk.told(their)["state"] == "done"
        await bench.pause(10 * 1000 * KEPT_S)
    assert not desk.deferred.by_tenant
    assert (desk.deferred.kept, desk.deferred.results_bytes, desk.in_flight.bytes) == (0, 0, 0)
    bench.assert_quiet()


@story
async def test_kept_results_are_bounded_in_bytes_and_none_is_dropped() -> None:
    """A request whose result finds no room fails with that; the results of all others stay, and another tenant finds
    room.
    """
    bench = EngineBench()
    desk = _Desk(bench, bytes_max=3600)
    mine, others = (bench.add({"v": Cost(load_ms=0, run_ms=1)}, name="a", tenant=tenant) for tenant in ("t", "u"))
    async with bench.working():
        asked = [await desk.begin(mine, [1]) for _ in range(8)]
        await bench.pause(500)
        told = [desk.told(one) for one in asked]
        fit = [each["state"] for each in told].count("done")
        assert 2 <= fit < 8
        assert [each["state"] for each in told] == ["done"] * fit + ["failed"] * (8 - fit)
        problem = told[-1]["problem"]
        assert (problem["type"], problem["status"], problem["limit_bytes"]) == ("/problems/result-not-kept", 503, 3600)
        assert desk.deferred.results_bytes == sum(len(one.document()) for one in asked[:fit]) <= 3600
        their = await desk.begin(others, [1])
        await bench.pause(100)
        assert desk.told(their)["state"] == "done"
        assert [desk.told(one) for one in asked] == told
        await bench.pause(1000 * KEPT_S)
        later = await desk.begin(mine, [1])
        await bench.pause(500)
        assert desk.told(later)["state"] == "done"


@story
async def test_result_above_the_bound_is_not_kept_even_alone() -> None:
    """The bound holds at every instant."""
    bench = EngineBench()
    desk = _Desk(bench, bytes_max=100)
    application = bench.add({"v": Cost(load_ms=0, run_ms=1)})
    async with bench.working():
        one = await desk.begin(application, [1])
        await bench.pause(500)
    assert desk.told(one)["problem"]["type"] == "/problems/result-not-kept"
    assert desk.deferred.results_bytes == 0


@story
async def test_deferred_request_ids_are_unguessable_and_closed_to_other_tenants() -> None:
    """Another tenant's id is as unknown as none."""
    bench = EngineBench()
    desk = _Desk(bench)
    application = bench.add({"v": Cost()})
    async with bench.working():
        ids = {(await desk.begin(application, [1])).id for _ in range(20)}
        assert len(ids) == 20
        assert all(len(id) == 32 and id != "r" for id in ids)
        for id in ids:
            with pytest.raises(UnknownRequest):
                desk.deferred.find("u", id)
        await bench.pause(1000)


@story
async def test_drain_waits_and_then_fails_deferred_requests_that_are_left() -> None:
    """Requests that end in time are done, decoding included; no new ones begin."""
    bench = EngineBench()
    desk = _Desk(bench)
    quick = bench.add({"v": Cost(load_ms=0, run_ms=10)}, name="quick")
    slow = bench.add({"v": Cost(load_ms=0, run_ms=5000)}, name="slow")
    async with bench.working():
        one, two = await desk.begin(quick, [1]), await desk.begin(slow, [1])
        start_ns = bench.clock.now_ns()
        await desk.deferred.drain(1)
        assert bench.clock.now_ns() - start_ns == 1e9
        assert desk.told(one)["state"] == "done"
        assert desk.told(two)["problem"]["type"] == "/problems/shutting-down"
        with pytest.raises(ShuttingDown):
            await desk.begin(quick, [1])
        await bench.engine.drain(10)
        await bench.pause(5000)
    assert desk.in_flight.bytes == 0
    bench.assert_quiet()


@story
async def test_removed_tenant_leaves_no_deferred_requests() -> None:
    """Its runs are broken off and give back what they held; results and ids are gone, also for a new tenant of the
    name.
    """
    bench = EngineBench()
    desk = _Desk(bench)
    application = bench.add({"v": Cost(load_ms=0, run_ms=10)})
    async with bench.working():
        done = await desk.begin(application, [1])
        await bench.pause(100)
        under_way = await desk.begin(application, [1])
        desk.deferred.drop_tenant("t")
        for one in (done, under_way):
            with pytest.raises(UnknownRequest):
                desk.told(one)
        assert desk.deferred.results_bytes == 0
        await bench.pause(1000 * KEPT_S)
        assert (desk.deferred.kept, desk.deferred.under_way, desk.in_flight.bytes) == (0, 0, 0)
    bench.assert_quiet()


@story
async def test_exception_in_a_deferred_request_is_logged_and_told_without_its_text() -> None:
    """500 as a problem; the log has the rest."""
    bench = EngineBench()
    desk = _Desk(bench)

    async def broken(watch: Watch) -> bytes:
        await bench.pause(1)
        raise ValueError("password 42")

    one = await desk.deferred.begin("t", "app", broken, ExitStack())
    await bench.pause(2)
    problem = desk.told(one)["problem"]
    assert (problem["type"], problem["status"]) == ("/problems/internal-error", 500)
    assert "password" not in json.dumps(problem)
    [(event, error)] = desk.journal.lines
    assert event == "deferred request failed"
    assert isinstance(error, ValueError)


@story
async def test_deferred_request_of_a_caller_gone_before_its_id_is_cancelled() -> None:
    """Until there is an id the request ends with its caller; after that, it goes on."""
    bench = EngineBench()
    desk = _Desk(bench)
    application = bench.add({"v": Cost(load_ms=0, run_ms=10)})
    async with bench.working():
        asking = asyncio.create_task(desk.begin(application, [1]))
        await asyncio.sleep(0)  # noqa: TID251 - let it begin, and no more
        assert desk.deferred.under_way == 1
        asking.cancel()
        await asyncio.wait([asking])
        assert (desk.deferred.under_way, desk.in_flight.bytes) == (0, 0)
        assert not desk.deferred.by_tenant

        asking = asyncio.create_task(desk.begin(application, [1]))
        one = await asking
        asking.cancel()
        await bench.pause(100)
        assert desk.told(one)["state"] == "done"
    bench.assert_quiet()


@story
async def test_poll_interval_of_a_deferred_request_grows_with_its_age() -> None:
    """Within the first second at once, then rarer, at most every ten seconds; no more once it is over."""
    bench = EngineBench()
    desk = _Desk(bench)
    application = bench.add({"v": Cost(load_ms=0, run_ms=30_000)})
    async with bench.working():
        one = await desk.begin(application, [1], timeout_ms=60_000)
        begun_ns, after = one.begun_ns, []
        for second in (0.5, 1, 2.5, 9, 25, 40):
            await bench.clock.sleep_until_ns(begun_ns + int(second * 1e9))
            after.append(one.poll_after_s(bench.clock.now_ns()))
    assert after == [None, 1, 2, 9, 10, None]
