"""Runs a scenario with several processors, or with networks in units, on a `Device`: the dispatch policy decides alone.

All networks that are asked for are in memory from the start, in the most accurate variants that keep the SLOs and have
room together; so no request is cold, and there is nothing to evict. Requests run one by one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from appliance.clock import NS_PER_MS
from appliance.domain.errors import DeadlineExceeded, ProcessorLost, QueueFull
from appliance.lab import device
from appliance.lab.device import Device, Leg
from appliance.lab.faults import PROCESSOR_LOST, SLOW_DOWN, Fault
from appliance.lab.outcome import Answer, Kind, Outcome, ProcessorUse
from appliance.lab.policies import Stopwatch
from appliance.lab.problems.base import Malformed
from appliance.lab.processors import Broken
from appliance.lab.scenario import (
    ApplicationShape,
    BoxProcessor,
    Scenario,
    UnitGraph,
    VariantShape,
    latency_of,
    megabytes,
    served_of,
)
from appliance.lab.workload import Arrival
from appliance.policies.dispatch import DEFAULT, DISPATCH_POLICIES
from appliance.policies.dispatch.base import FOREVER
from appliance.policies.dispatch.partition import Operator, Partition, partition


@dataclass(frozen=True, slots=True)
class _Worker:
    """One of a processor's, as the policy knows it."""

    name: str
    processor: str


def dispatch(scenario: Scenario, arrivals: Sequence[Arrival]) -> Outcome:
    """Run it to the last answer.

    Raises: Malformed, where networks have no room; Broken, when the device is at fault.
    """
    return _Story(scenario, arrivals).run()


class _Story:
    def __init__(self, scenario: Scenario, arrivals: Sequence[Arrival]) -> None:
        self._scenario, self._arrivals = scenario, arrivals
        self._shapes = {shape.name: shape for shape in scenario.applications}
        self._serves = _placed(scenario)
        self._stopwatch = Stopwatch()
        self._answers: dict[int, Answer] = {}
        self._waiting: Counter[str] = Counter()
        self._workers = tuple(_workers(scenario.box.processors))
        self._networks = _Networks(scenario, self._serves, self._workers)
        policy = DISPATCH_POLICIES[scenario.policies.get("dispatch", DEFAULT)]()
        self._device = Device(
            [worker.name for worker in self._workers],
            self._stopwatch.timed("dispatch", policy),
            self._networks,
            transfer_ms=scenario.box.transfer_ms,
            groups=_groups(scenario, self._workers),
            weights=_weights(scenario),
        )

    def run(self) -> Outcome:
        made = self._device
        for number, arrival in enumerate(self._arrivals):
            made.at(arrival.at_ns / NS_PER_MS, partial(self._ask, number, arrival))
        for fault in self._scenario.faults:
            self._inflict(fault)
        made.run()
        for number, arrival in enumerate(self._arrivals):
            if number not in self._answers:  # nothing that runs it has come back
                ended_ns = round(made.now_ms * NS_PER_MS)
                self._answers[number] = self._unserved(arrival, ended_ns, "failed", ProcessorLost.__name__)
        end_ms = max([made.now_ms, 1000 * (self._scenario.duration_s or 0.0)])
        return self._outcome(end_ms)

    def _ask(self, number: int, arrival: Arrival) -> None:
        shape, box = self._shapes[arrival.application], self._scenario.box
        if self._waiting[shape.name] >= box.queue_len_max or self._waiting.total() >= box.queue_total_max:
            self._answers[number] = self._unserved(arrival, arrival.at_ns, "dropped", QueueFull.__name__)
            return
        self._waiting[shape.name] += 1
        late_ms = box.timeout_ms if shape.latency_slo_ms is None else shape.latency_slo_ms
        self._device.submit(
            f"{number:08}",
            shape.name,
            partial(self._end, number, arrival),
            arrival.at_ns / NS_PER_MS + late_ms,
            drop_late=shape.late == "drop",
            tenant=shape.tenant,
        )

    def _end(self, number: int, arrival: Arrival, answer: device.Answer) -> None:
        shape = self._shapes[arrival.application]
        self._waiting[shape.name] -= 1
        ended_ns = round(answer.ended_ms * NS_PER_MS)
        if not answer.ran or answer.began_ms is None:
            self._answers[number] = self._unserved(arrival, ended_ns, "dropped", DeadlineExceeded.__name__)
            return
        variant = self._serves[shape.name]
        self._answers[number] = Answer(
            shape.name,
            "warm",
            arrival.at_ns,
            ended_ns - arrival.at_ns,
            variant.name,
            variant.accuracy,
            is_late=not answer.in_time,
            has_slo=shape.latency_slo_ms is not None,
            wait_ns=round(answer.began_ms * NS_PER_MS) - arrival.at_ns,
        )

    def _unserved(self, arrival: Arrival, ended_ns: int, kind: Kind, reason: str) -> Answer:
        has_slo = self._shapes[arrival.application].latency_slo_ms is not None
        waited_ns = ended_ns - arrival.at_ns
        return Answer(
            arrival.application, kind, arrival.at_ns, waited_ns, has_slo=has_slo, reason=reason, wait_ns=waited_ns
        )

    def _inflict(self, fault: Fault) -> None:
        """Every processor where the fault names none."""
        names = [w.name for w in self._workers if fault.target in (None, w.processor)]
        start_ms = 1000 * fault.at_s
        end_ms = None if fault.for_s is None else start_ms + 1000 * fault.for_s
        for name in names:
            if fault.kind == PROCESSOR_LOST:
                self._device.at(start_ms, partial(self._device.lose, name))
                if end_ms is not None:
                    self._device.at(end_ms, partial(self._device.restore, name))
            else:
                assert fault.kind == SLOW_DOWN, "checked when it was read"
                assert fault.factor is not None, "checked when it was read"
                self._device.at(start_ms, partial(self._networks.slow_down, name, fault.factor))
                if end_ms is not None:
                    self._device.at(end_ms, partial(self._networks.slow_down, name, 1 / fault.factor))

    def _outcome(self, end_ms: float) -> Outcome:
        if len(self._answers) != len(self._arrivals):
            raise Broken(f"{len(self._arrivals)} requests and {len(self._answers)} answers")
        use, runs = self._device.use, Counter(trace.processor for trace in self._device.use.traces)
        processors = {}
        for shape in self._scenario.box.processors:
            names = [worker.name for worker in self._workers if worker.processor == shape.name]
            busy = sum(use.busy_ms[name] for name in names) / (end_ms * len(names)) if end_ms else 0.0
            batches = sum(runs[name] for name in names)
            processors[shape.name] = ProcessorUse(busy, batches, batches)
        held = {variant.name + model: megabytes(variant.size_mb) for model, variant in self._held()}
        return Outcome(
            end_ns=round(end_ms * NS_PER_MS),
            applications=tuple(self._shapes),
            answers=tuple(self._answers[number] for number in range(len(self._arrivals))),
            processors=processors,
            memory_bytes=self._scenario.memory_bytes,
            memory_peak_bytes=sum(held.values()),
            loads=0,
            replacements=0,
            evictions=0,
            decisions=self._stopwatch.rows(),
        )

    def _held(self) -> list[tuple[str, VariantShape]]:
        return [(shape.model, self._serves[shape.name]) for shape in self._scenario.applications]


# -- the box -----------------------------------------------------------------------------------------------------------


def _workers(processors: Sequence[BoxProcessor]) -> list[_Worker]:
    found = []
    for shape in processors:
        names = [shape.name] if shape.concurrency == 1 else [f"{shape.name}#{n}" for n in range(shape.concurrency)]
        found += [_Worker(name, shape.name) for name in names]
    return found


def _groups(scenario: Scenario, workers: Sequence[_Worker]) -> list[tuple[frozenset[str], int]]:
    """The workers of each group, and how many may run at once: its cores, else as many as its largest processor has."""
    cores = {group.name: group.cores for group in scenario.box.groups}
    members: dict[str, list[BoxProcessor]] = {}
    for shape in scenario.box.processors:
        if shape.group is not None:
            members.setdefault(shape.group, []).append(shape)
    return [
        (
            frozenset(w.name for w in workers if w.processor in {shape.name for shape in shapes}),
            cores.get(group) or max(shape.concurrency for shape in shapes),
        )
        for group, shapes in members.items()
    ]


def _weights(scenario: Scenario) -> dict[str, float]:
    """Of the tenants, where there are several."""
    weights = {shape.tenant: 1.0 for shape in scenario.applications}
    weights |= {shape.name: shape.processor_weight for shape in scenario.tenants if shape.name in weights}
    return weights if len(weights) > 1 else {}


def _placed(scenario: Scenario) -> dict[str, VariantShape]:
    """Application → the variant that serves it: the most accurate one that can be in time, a smaller one where there is
    no room.

    Raises: Malformed, where even these have none.
    """
    models = {model.name: model.variants for model in scenario.models}
    choices = {
        shape.name: _wanted(shape, [v for v in models[shape.model] if v.accuracy >= shape.accuracy_min], scenario)
        for shape in scenario.applications
    }
    for index, shape in enumerate(scenario.applications):
        if not choices[shape.name]:
            raise Malformed(f"applications[{index}].accuracy_min", "is more than any variant of its model has")
    model_of = {shape.name: shape.model for shape in scenario.applications}

    def taken_bytes() -> int:
        held = {(model_of[name], ways[0].name): megabytes(ways[0].size_mb) for name, ways in choices.items()}
        return sum(held.values())

    while taken_bytes() > scenario.memory_bytes:
        smaller = {
            name: next((v for v in ways[1:] if v.size_mb < ways[0].size_mb), None) for name, ways in choices.items()
        }
        savings = [(choices[n][0].size_mb - v.size_mb, n) for n, v in smaller.items() if v is not None]
        if not savings:
            held_mb = taken_bytes() / 1e6
            why = f"with several processors all networks are in memory at once, and they take {held_mb:.1f} MB"
            raise Malformed("box.memory_mb", why)
        _saved_mb, name = max(savings)
        choices[name] = choices[name][choices[name].index(smaller[name]) :]  # type: ignore[arg-type]
    return {name: ways[0] for name, ways in choices.items()}


def _wanted(shape: ApplicationShape, variants: Sequence[VariantShape], scenario: Scenario) -> list[VariantShape]:
    """Those in time before the others; the former by accuracy, the latter by time."""

    def quickest_ms(variant: VariantShape) -> float:
        tables = [latency_of(variant, processor) for processor in scenario.box.processors]
        return min((_alone_ms(table, 1) for table in tables if table is not None), default=0.0)

    slo_ms = FOREVER if shape.latency_slo_ms is None else shape.latency_slo_ms
    in_time = [variant for variant in variants if quickest_ms(variant) <= slo_ms]
    late = [variant for variant in variants if quickest_ms(variant) > slo_ms]
    return sorted(in_time, key=lambda v: -v.accuracy) + sorted(late, key=quickest_ms)


def _alone_ms(table: Mapping[tuple[int, int], float], running: int) -> float:
    """A run of one item while so many run on the processor: as written for the nearest batch and concurrency above."""
    levels = sorted({level for _batch, level in table})
    level = next((one for one in levels if one >= running), levels[-1])
    batch = min(size for size, one in table if one == level)
    return table[batch, level]


# -- its networks ------------------------------------------------------------------------------------------------------


class _Networks:
    """Model of the device: a network for each application. What is written is believed, and what runs take, but where
    a box has seen what they took (`served_ms`).
    """

    def __init__(self, scenario: Scenario, serves: Mapping[str, VariantShape], workers: Sequence[_Worker]) -> None:
        self._processors = {shape.name: shape for shape in scenario.box.processors}
        self._workers = {worker.name: worker for worker in workers}
        self._factors = dict.fromkeys(self._workers, 1.0)
        self._serves = serves
        self._cuts = {name: self._cut(name, variant) for name, variant in serves.items()}
        self._served = {
            (name, worker.name): served_of(variant, self._processors[worker.processor])
            for name, variant in serves.items()
            for worker in workers
            if not isinstance(variant.units, UnitGraph)
        }
        self._random = Random(f"{scenario.seed}/runs")
        self._by_units = {(name, one.units): one for name, cut in self._cuts.items() for one in cut.subgraphs}

    def partition(self, network: str) -> Partition:
        return self._cuts[network]

    def legs(self, network: str, units: int, processor: str) -> Sequence[Leg]:
        seen = self._served.get((network, processor))
        took_ms = self._random.choice(seen) if seen else self._by_units[network, units].latency_ms[processor]
        return [Leg(took_ms * self._factors[processor])]

    def learn(self, network: str, units: int, processor: str, took_ms: float) -> None:
        """What is written stays."""

    def slow_down(self, worker: str, factor: float) -> None:
        self._factors[worker] *= factor

    def _cut(self, name: str, variant: VariantShape) -> Partition:
        if isinstance(variant.units, UnitGraph):
            return self._graph(name, variant.units)
        latencies = {worker.name: self._written_ms(variant, worker) for worker in self._workers.values()}
        there = {worker: {name: ms} for worker, ms in latencies.items() if ms is not None}
        return partition(name, [Operator(name, frozenset(there))], there)

    def _written_ms(self, variant: VariantShape, worker: _Worker) -> float | None:
        """With all workers of the processor at work: what happens when it counts."""
        shape = self._processors[worker.processor]
        table = latency_of(variant, shape)
        return None if table is None else _alone_ms(table, shape.concurrency)

    def _graph(self, name: str, units: UnitGraph) -> Partition:
        def written(worker: _Worker) -> Mapping[str, float]:
            shape = self._processors[worker.processor]
            return units.latency_ms.get(shape.name) or units.latency_ms.get(shape.kind or shape.name) or {}

        def runs(worker: _Worker, processors: Sequence[str]) -> bool:
            shape = self._processors[worker.processor]
            return shape.name in processors or (shape.kind or shape.name) in processors

        workers = self._workers.values()
        operators = [
            Operator(
                f"{name}/{op.name}",
                frozenset(worker.name for worker in workers if runs(worker, op.processors)),
                tuple(f"{name}/{needed}" for needed in op.inputs),
            )
            for op in units.ops
        ]
        latency_ms = {w.name: {f"{name}/{op}": ms for op, ms in written(w).items()} for w in workers}
        return partition(name, operators, latency_ms)
