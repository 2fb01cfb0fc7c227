"""Pipelines of a box as its planner sees them: find, crop and read; every third one also classifies what it crops."""

from appliance.domain.pipeline import CostBy
from appliance.policies.allocation.base import AllocationInput, BatchWait, Module, Profile, WorkerType
from appliance.policies.allocation.several import Demand

BATCHES = (1, 2, 4, 8, 16)


def demands(count: int, workers: int, load: float) -> list[Demand]:
    """Return the demands of `count` pipelines that ask together for `load` times what the workers can do."""
    found = [_problems(index, workers) for index in range(count)]
    per_frame = [
        sum(m.rate_rps * min(p.latency_ms / p.batch for p in m.profiles) for m in one[0].modules) for one in found
    ]
    return [
        Demand(f"p{index}", load * workers * 1000.0 / count / per_frame[index], levels, 1.0 + index % 3)
        for index, levels in enumerate(found)
    ]


def _problems(index: int, workers: int) -> tuple[AllocationInput, ...]:
    types = tuple(WorkerType(name, 0.0, workers, "cores") for name in ("cpu", "openvino", "host"))
    return tuple(_problem(index, types, speed) for speed in (1.0, 1.4, 1.9))


def _problem(index: int, types: tuple[WorkerType, ...], speed: float) -> AllocationInput:
    items = 1.0 + index % 8
    modules = [
        _network("find", 1.0, (24.0 + 3.0 * index) / speed),
        Module("lines", 1.0, (Profile("host", 1, 1, 0.4),)),
        _network("read", items, (8.0 + index) / speed),
    ]
    edges = [("find", "lines"), ("lines", "read")]
    if index % 3 == 0:
        modules.append(_network("side", items, 3.0 / speed))
        edges += [("lines", "side"), ("side", "read")]
    return AllocationInput(
        600.0, types, tuple(modules), tuple(edges), cost_by=CostBy.SECONDS, batch_wait=BatchWait.REST
    )


def _network(name: str, rate_rps: float, run_ms: float) -> Module:
    """Batches gain a little on one of the kinds, and nothing on the other."""
    rows = [Profile("cpu", batch, 1, run_ms * batch * (1.0 + 0.02 * batch)) for batch in BATCHES]
    rows += [Profile("openvino", batch, 1, 0.8 * run_ms * (0.15 + 0.85 * batch)) for batch in BATCHES]
    return Module(name, rate_rps, tuple(rows))
