"""Re-checks an answer of kind `dispatch` against its problem, from the words of the format alone; shares nothing with
the policies. Everything is tried: for small graphs only.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import Any

ROUNDING = 1e-6
NEVER = float("inf")


def faults(problem: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    """What is wrong with an answer of the policy `least-slack`, in words; an empty list is a pass."""
    found = []
    for model in problem["models"]:
        found += _units_faults(model, answer["models"][model["name"]])
        found += _subgraph_faults(model, answer["models"][model["name"]])
    return found + _decision_faults(problem, answer)


def finish_ms(problem: dict[str, Any], job: dict[str, Any], units: list[list[str]]) -> float:
    """When the job is done at the earliest, over all sequences of subgraphs and all their processors."""
    return min((finish for finish, _first in _sequences(problem, job, units)), default=NEVER)


# -- how a network is cut ----------------------------------------------------------------------------------------------


def _graph(model: dict[str, Any]) -> dict[str, set[str]]:
    return {op["name"]: set(op["inputs"]) for op in model["ops"]}


def _processors(model: dict[str, Any], ops: frozenset[str]) -> set[str]:
    return set.intersection(*(set(op["processors"]) for op in model["ops"] if op["name"] in ops))


def _is_connected(graph: dict[str, set[str]], ops: frozenset[str]) -> bool:
    reached = {min(ops)}
    while True:
        more = {op for op in ops - reached if graph[op] & reached or any(op in graph[other] for other in reached)}
        if not more:
            return reached == ops
        reached |= more


def _is_convex(graph: dict[str, set[str]], ops: frozenset[str]) -> bool:
    """No way from one of them to another leads outside."""
    outside_after = {op for op in graph if op not in ops and graph[op] & ops}
    while True:
        more = {op for op in graph if op not in ops and op not in outside_after and graph[op] & outside_after}
        if not more:
            break
        outside_after |= more
    return not any(graph[op] & outside_after for op in ops)


def _units_faults(model: dict[str, Any], cut: dict[str, Any]) -> list[str]:
    graph, units = _graph(model), [frozenset(unit) for unit in cut["units"]]
    found = []
    if sorted(op for unit in units for op in unit) != sorted(graph):
        found.append("not every operator is in exactly one unit")
    done: set[str] = set()
    for unit in units:
        if len({tuple(sorted(op["processors"])) for op in model["ops"] if op["name"] in unit}) != 1:
            found.append(f"{set(unit)}: not the same processors")
        if not _is_connected(graph, unit) or not _is_convex(graph, unit):
            found.append(f"{set(unit)}: not adjacent, or not convex")
        if any(graph[op] - unit - done for op in unit):
            found.append(f"{set(unit)} stands before what it needs")
        done |= unit
    for one, other in combinations(units, 2):
        both = one | other
        if _processors(model, one) == _processors(model, other) and _is_connected(graph, both):
            rest = [unit for unit in units if unit not in (one, other)]
            if _runs_in_some_order(graph, [both, *rest]):
                found.append(f"{set(one)} and {set(other)} could be one unit")
    return found


def _runs_in_some_order(graph: dict[str, set[str]], groups: list[frozenset[str]]) -> bool:
    done: set[str] = set()
    left = list(groups)
    while left:
        ready = [group for group in left if all(graph[op] <= group | done for op in group)]
        if not ready:
            return False
        done |= ready[0]
        left.remove(ready[0])
    return True


def _possible(model: dict[str, Any], units: list[list[str]]) -> Iterator[frozenset[str]]:
    """Every merge of units that is adjacent, convex (a unit runs as a whole) and has a processor."""
    graph = _graph(model)
    place = {op: str(index) for index, unit in enumerate(units) for op in unit}
    contracted = {
        str(index): {place[needed] for op in unit for needed in graph[op]} - {str(index)}
        for index, unit in enumerate(units)
    }
    for count in range(1, len(units) + 1):
        for chosen in combinations(range(len(units)), count):
            ops = frozenset(op for index in chosen for op in units[index])
            merged = frozenset(map(str, chosen))
            if _processors(model, ops) and _is_connected(contracted, merged) and _is_convex(contracted, merged):
                yield ops


def _subgraph_faults(model: dict[str, Any], cut: dict[str, Any]) -> list[str]:
    given = {frozenset(one["ops"]): set(one["processors"]) for one in cut["subgraphs"]}
    expected = {ops: _processors(model, ops) for ops in _possible(model, cut["units"])}
    return [] if given == expected else [f"subgraphs {given} instead of {expected}"]


# -- what to run next --------------------------------------------------------------------------------------------------


def _sequences(
    problem: dict[str, Any], job: dict[str, Any], units: list[list[str]]
) -> Iterator[tuple[float, tuple[frozenset[str], str, float]]]:
    """The finish of every way to do what is left of a job, with its first run: what, where, when."""
    model = next(model for model in problem["models"] if model["name"] == job["model"])
    graph, free = _graph(model), {p["name"]: p["busy_until_ms"] for p in problem["processors"]}
    possible = list(_possible(model, units))

    @cache
    def runs(done: frozenset[str]) -> list[frozenset[str]]:
        return [ops for ops in possible if not ops & done and all(graph[op] <= ops | done for op in ops)]

    def go_on(
        done: frozenset[str], at: str | None, now: float, first: tuple[frozenset[str], str, float] | None
    ) -> Iterator[tuple[float, tuple[frozenset[str], str, float]]]:
        if len(done) == len(graph):
            if first is not None:
                yield now, first
            return
        for ops in runs(done):
            for processor in _processors(model, ops) & free.keys():
                ready = now + (problem.get("transfer_ms", 0.0) if at not in (None, processor) else 0.0)
                start = max(ready, free[processor])
                end = start + sum(model["latency_ms"][processor][op] for op in ops)
                yield from go_on(done | ops, processor, end, first or (ops, processor, start))

    yield from go_on(frozenset(job["done_ops"]), job.get("processor"), problem["now_ms"], None)


def _decision_faults(problem: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    finish = {job["name"]: finish_ms(problem, job, answer["models"][job["model"]]["units"]) for job in problem["jobs"]}
    due = {job["name"]: job["arrival_ms"] + job["slo_ms"] for job in problem["jobs"]}
    runnable = [job for job in problem["jobs"] if finish[job["name"]] < NEVER]
    found = []
    late = sorted(job["name"] for job in runnable if finish[job["name"]] > due[job["name"]] + ROUNDING)
    if late != sorted(answer["violated"]):
        found.append(f"violated {answer['violated']} instead of {late}")
    decision = answer["decision"]
    if decision is None or not runnable:
        return found + (["decision where none is possible, or none where one is"] if decision or runnable else [])
    name = decision["job"]
    candidates = [job for job in runnable if job["name"] not in late] or runnable
    slack = {job["name"]: due[job["name"]] - finish[job["name"]] for job in candidates}
    if name not in slack or slack[name] > min(slack.values()) + ROUNDING:
        return [*found, f"{name!r} does not have the least slack of {slack}"]
    if abs(decision["slack_ms"] - slack[name]) > ROUNDING:
        found.append(f"slack {decision['slack_ms']} instead of {slack[name]}")
    if abs(decision["expected_latency_ms"] - (finish[name] - problem["now_ms"])) > ROUNDING:
        found.append(f"expected latency {decision['expected_latency_ms']} instead of {finish[name]} less now")
    job = next(job for job in problem["jobs"] if job["name"] == name)
    first = frozenset(decision["ops"]), decision["processor"]
    best = [
        start
        for ended, (ops, processor, start) in _sequences(problem, job, answer["models"][job["model"]]["units"])
        if (ops, processor) == first and ended <= finish[name] + ROUNDING
    ]
    if not any(abs(start - decision["start_ms"]) <= ROUNDING for start in best):
        found.append(f"{decision} begins no best sequence")
    return found
