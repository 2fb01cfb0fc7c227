"""What a clairvoyant could reach at best: the fewest cold starts, and the most utility with a given number of them. Bounds, not schedules.

Why they are bounds. Take any run of the engine in which a request is *warm* with variant v: v was in memory when the request came (or at the latest
`grace_ns` after: one may come while a better variant arrives, and be served by that). A load occupies the variant's memory while it lasts (EM-03),
so v occupied its size all the time from θ_v before to the arrival, θ_v its load time less the grace: either it was being loaded then, or it was
there already. Let w(r, v) = 1 for that request and 0 else; at every instant the sizes of all variants that must be there for it fit into the memory.
The linear programme asks that

- of one application and variant, the memory taken at an instant is at least the largest w(r, v) whose interval holds that instant,
- at each instant at which a request comes, and θ_v before it, the memory taken fits into the budget,
- w(r, v) is between 0 and 1 and sums to at most 1 over v, and is 0 where the interval starts before the run does.

Every run satisfies these, and the programme may also choose fractions, hold half a variant, load everything at once, and look only at those instants;
so its optimum is never worse than a run's. Maximising Σ w bounds the warm, hence the cold from below. For utility, a request that is not warm is
given the most accurate variant that fits into the memory by itself, and costs no memory at all (a bound again), but at most `cold_max` requests may
be not warm. Without that limit the bound would be to serve everybody cold with the best variant, which utility alone does not forbid.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.clock import NS_PER_MS
from appliance.lab.scenario import Scenario, megabytes
from appliance.lab.workload import draw

GRACE_NS = 250 * NS_PER_MS
"""How long a warm request may wait for its turn at most; the runs of the lab's small scenarios take a tenth of it."""
_MARGIN = 1e-6
"""Added for what the solver calls feasible."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A variant that an application's requests may be served with."""

    bytes: int
    accuracy: float
    load_ns: int


@dataclass(frozen=True)
class Schedule:
    """All that the bound needs: `arrivals` are (nanoseconds after the start, index of the application), ascending."""

    memory_bytes: int
    choices: Sequence[Sequence[Choice]]
    arrivals: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, scenario: Scenario) -> "Schedule":
        """A scenario's, its faults, queues and tenants' limits left out: those only make it harder."""
        models = {model.name: model for model in scenario.models}
        names = {shape.name: i for i, shape in enumerate(scenario.applications)}
        choices = [
            [Choice(megabytes(v.size_mb), v.accuracy, round(v.load_ms * NS_PER_MS)) for v in models[a.model].variants]
            for a in scenario.applications
        ]
        drawn = draw(scenario.arrivals, scenario.seed, scenario.duration_s, scenario.base_dir)
        return cls(scenario.memory_bytes, choices, [(a.at_ns, names[a.application]) for a in drawn])


@dataclass(frozen=True, slots=True)
class Bound:
    """`cold_least` requests cannot be warm, whatever is done; `utility_most` is per request, with at most `cold_max` of them not warm."""

    cold_least: float
    utility_most: float


def reference(schedule: Schedule, *, cold_max: float | None = None, grace_ns: int = GRACE_NS) -> Bound:
    """Both bounds. Without `cold_max` (requests) any number may be cold. Applications must not share a model. Raises: ValueError without arrivals."""
    if not schedule.arrivals:
        raise ValueError("no arrivals, so no bound")
    programme = _Programme(schedule, grace_ns)
    total = len(schedule.arrivals)
    most_warm = programme.most([1.0] * len(programme.serves), 0.0)
    cold_least = max(0.0, total - most_warm - _MARGIN * total)
    alone = [_best_alone(schedule, application) for _, application in schedule.arrivals]
    gains = [choice.accuracy - alone[request] for request, choice in programme.serves]
    allowed = total if cold_max is None else min(total, max(cold_max, cold_least))
    gain = programme.most(gains, max(0.0, total - allowed - 2 * _MARGIN * total))
    return Bound(cold_least, (sum(alone) + gain) / total + _MARGIN)


def _best_alone(schedule: Schedule, application: int) -> float:
    """The accuracy of the best variant that fits when nothing else is there; 0 where none does."""
    return max((c.accuracy for c in schedule.choices[application] if c.bytes <= schedule.memory_bytes), default=0.0)


class _Programme:
    """The constraints, once; `most` solves for an objective."""

    def __init__(self, schedule: Schedule, grace_ns: int) -> None:
        self.serves: list[tuple[int, Choice]] = []
        """What column i stands for: request and variant."""
        self._by_request: dict[int, list[int]] = defaultdict(list)
        starts: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for request, (at_ns, application) in enumerate(schedule.arrivals):
            for rank, choice in enumerate(schedule.choices[application]):
                start_ns = at_ns - max(0, choice.load_ns - grace_ns)
                if start_ns >= 0 and choice.bytes <= schedule.memory_bytes:
                    column = len(self.serves)
                    self.serves.append((request, choice))
                    self._by_request[request].append(column)
                    starts[application, rank].append((start_ns, at_ns, column))
        self._held: list[tuple[int, list[int]]] = []
        """Column of memory held → the columns that need it."""
        self._instants = self._fill(schedule, starts)

    def _fill(
        self, schedule: Schedule, starts: dict[tuple[int, int], list[tuple[int, int, int]]]
    ) -> list[list[tuple[int, float]]]:
        """Rows (column, share of the memory) of the instants at which more than the memory could be wanted."""
        rows = []
        for instant_ns in sorted(
            {edge for spans in starts.values() for start, end, _ in spans for edge in (start, end)}
        ):
            row: list[tuple[int, float]] = []
            for (application, rank), spans in starts.items():
                there = [column for start, end, column in spans if start <= instant_ns <= end]
                if there:
                    share = schedule.choices[application][rank].bytes / schedule.memory_bytes
                    row.append((there[0] if len(there) == 1 else self._hold(there), share))
            if sum(share for _, share in row) > 1:
                rows.append(row)
        return rows

    def _hold(self, columns: list[int]) -> int:
        if not (self._held and self._held[-1][1] == columns):
            self._held.append((len(self.serves) + len(self._held), columns))
        return self._held[-1][0]

    def most(self, gains: Sequence[float], warm_min: float) -> float:
        """The largest Σ gains·w with Σ w ≥ `warm_min`."""
        if not self.serves:
            return 0.0
        import highspy
        import numpy as np

        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.silent()
        count = len(self.serves) + len(self._held)
        costs = [*gains, *([0.0] * len(self._held))]
        for column in range(count):
            solver.addVar(0.0, 1.0)
            solver.changeColCost(column, costs[column])
        solver.changeObjectiveSense(highspy.ObjSense.kMaximize)

        def row(low: float, high: float, entries: Sequence[tuple[int, float]]) -> None:
            columns = np.array([c for c, _ in entries], np.int32)
            solver.addRow(low, high, len(entries), columns, np.array([v for _, v in entries], np.float64))

        endless: Any = highspy.kHighsInf
        for columns in self._by_request.values():
            row(-endless, 1.0, [(c, 1.0) for c in columns])
        for held, columns in self._held:
            for column in columns:
                row(-endless, 0.0, [(column, 1.0), (held, -1.0)])
        for entries in self._instants:
            row(-endless, 1.0, entries)
        if warm_min > 0:
            row(warm_min, endless, [(c, 1.0) for c in range(len(self.serves))])
        solver.run()
        status = solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise ArithmeticError(f"the bound's programme was not solved: {status}")
        return float(solver.getInfo().objective_function_value)
