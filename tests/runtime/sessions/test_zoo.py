"""What planners of sessions are told of variants: what runs take while every worker has one."""

from dataclasses import replace

from appliance.domain.catalogue import Latency
from appliance.runtime.sessions.zoo import zoo_of
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost


@story
async def test_variant_run_times_are_those_with_all_workers_busy() -> None:
    """Median and P99; where so many at once were never timed, of the most that were."""
    bench = EngineBench(workers=2)
    bench.add({"v": Cost(run_ms=10)})
    entry = bench.catalogue.entry("t/app")
    times = entry.servables["v"].usual_times
    assert times is not None
    times.refer((Latency(1, 10, 11), Latency(1, 14, 21, 2)))
    for workers, usual_ms, worst_ms in ((1, 10, 11), (2, 14, 21), (3, 14, 21)):
        ((rung,), _, _) = zoo_of(entry, 0.0, workers, bench.clock.now_ns(), lambda _: True)
        assert (rung.usual_ms, rung.worst_ms, rung.at_once) == ({1: usual_ms}, {1: worst_ms}, workers)
    times.ran(1, 2, 28_000_000, bench.clock.now_ns())
    ((rung,), _, _) = zoo_of(entry, 0.0, 2, bench.clock.now_ns(), lambda _: True)
    assert rung.worst_ms[1] == 1.5 * rung.usual_ms[1] > 21


@story
async def test_variant_run_times_with_all_workers_busy_hold_on_each_cluster() -> None:
    bench = EngineBench(workers=1, twins=[(1, 2.0, 0.5)])
    bench.add({"v": Cost(run_ms=10)})
    entry = bench.catalogue.entry("t/app")
    for times in entry.servables["v"].places.values():
        assert times is not None
        times.usual.refer((Latency(1, 10, 11), Latency(1, 14, 21, 2)))
    ((rung,), _, _) = zoo_of(entry, 0.0, 2, bench.clock.now_ns(), lambda _: True)
    assert rung.takes_ns(1, bench.clock.now_ns()) == {0: 14_000_000, 1: 14_000_000}


@story
async def test_unmeasured_variant_serves_sessions_by_its_estimate() -> None:
    """A variant of which no run was timed serves none."""
    bench = EngineBench(workers=2)
    bench.add({"v": Cost(run_ms=10)}, measured=False)
    assert zoo_of(bench.catalogue.entry("t/app"), 0.0, 2, 0, lambda _: True)[0] == []
    model = bench.catalogue.entry("t/app").model
    (variant,) = model.variants
    bench.catalogue.put_model(replace(model, variants=(replace(variant, inspected_ms=10.0),)))
    ((rung,), _, _) = zoo_of(bench.catalogue.entry("t/app"), 0.0, 2, bench.clock.now_ns(), lambda _: True)
    assert (rung.usual_ms, rung.worst_ms) == ({1: 10}, {1: 15})
