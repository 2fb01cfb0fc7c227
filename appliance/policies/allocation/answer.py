"""From the plans of stages to an answer: rows, placement, and why."""

from collections.abc import Collection, Mapping

from appliance.domain.pipeline import CostBy
from appliance.policies.allocation.base import Allocation, AllocationInput, AllocationPlan, Placed
from appliance.policies.allocation.configurations import Pipeline, Plans, critical_ms, pipeline_of, total_cost
from appliance.policies.allocation.dag import critical_path_ms, longest_through

UNITS: Mapping[CostBy, str] = {
    CostBy.PRICE: "of price",
    CostBy.ENERGY: "W",
    CostBy.SECONDS: "worker-seconds a second",
}


def answer(
    problem: AllocationInput,
    pipeline: Pipeline,
    plans: Plans,
    placement: tuple[Placed, ...],
    how: str,
    facts: Mapping[str, float | int | bool],
) -> AllocationPlan:
    """The plan of `plans`; `how` names the algorithm in the reason."""
    latency_ms = critical_ms(pipeline, plans)
    cost = total_cost(plans)
    pools = {worker.name: worker.pool for worker in problem.workers}
    workers = len({(pools[placed.worker], placed.index) for placed in placement})
    new = len({(pools[placed.worker], placed.index) for placed in placement if placed.is_new})
    return AllocationPlan(
        feasible=True,
        cost=cost,
        latency_ms=latency_ms,
        allocations=_rows(pipeline, plans),
        placement=placement,
        reason=f"a frame is planned to take {latency_ms:.1f} of the {_told(problem.slo_ms)} ms that its SLO allows. It "
        f"costs {cost:.4g} {UNITS[problem.cost_by]} on {workers} {'worker' if workers == 1 else 'workers'}, "
        f"{new} of them new ({how})",
        facts=facts,
    )


def _told(ms: float) -> str:
    """Of milliseconds as many digits as matter."""
    return f"{round(ms, 1):g}" if ms >= 10.0 else f"{ms:.3g}"


def refusal(
    problem: AllocationInput, how: str, missing: Collection[str], facts: Mapping[str, float | int | bool]
) -> AllocationPlan:
    """Nothing fits; says the nearest reason."""
    return AllocationPlan(False, None, None, (), (), f"{_why(problem, missing)} ({how})", facts)


def _rows(pipeline: Pipeline, plans: Plans) -> tuple[Allocation, ...]:
    rows: list[Allocation] = []
    for stage, plan in zip(pipeline.stages, plans, strict=True):
        for c, count in plan.fulls:
            rate = count * c.throughput_rps
            rows.append(Allocation(stage.name, c.worker, c.batch, c.concurrency, rate, float(count), c.full_latency_ms))
        if plan.partial is not None:
            c, rate = plan.partial
            rows.append(Allocation(stage.name, c.worker, c.batch, c.concurrency, rate, plan.share, c.latency_at(rate)))
    return tuple(rows)


def _why(problem: AllocationInput, missing: Collection[str]) -> str:
    pipeline = pipeline_of(problem, missing)
    without = f" without {', '.join(sorted(missing))}" if missing else ""
    for stage in pipeline.stages:
        if not stage.configurations:
            return f"no worker that is available can run {stage.name}{without}"
    fastest = [stage.fastest_ms for stage in pipeline.stages]
    if not pipeline.fits(critical_path_ms(fastest, pipeline.edges)):
        least = max(longest_through(fastest, pipeline.edges))
        return f"the fastest configurations take {least:.1f} ms{without}, the SLO is {_told(problem.slo_ms)} ms"
    what = f"the workers that are available cannot serve these rates within {_told(problem.slo_ms)} ms{without}"
    return f"{what}. No mix of full instances and one partial one a module does"
