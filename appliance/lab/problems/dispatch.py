"""Kind `dispatch` (Band §4.2-4.3): which subgraph of which job on which processor next.

Beyond the format: a job's `processor` (where the results of its `done_ops` lie; absent: going on costs no transfer),
`queued_ms` (when it last came into the queue: `round-robin`), and a model's `fixed` (its processor: `fixed`). A job
without `slo_ms` has no deadline, and its slack is null.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from appliance.lab.problems.base import (
    Malformed,
    Name,
    NotNegative,
    Positive,
    Question,
    Shape,
    known,
    refuse_duplicates,
    shaped,
)
from appliance.policies.dispatch import DEFAULT, DISPATCH_POLICIES
from appliance.policies.dispatch.base import FOREVER, DispatchInput, DispatchPlan, Job, Processor, Tenant
from appliance.policies.dispatch.partition import Operator, Partition, Uncuttable, partition
from appliance.runtime.decisions.document import dispatch_answer

MODELS_MAX = 256
OPERATORS_MAX = 1024
PROCESSORS_MAX = 64
JOBS_MAX = 4096
TENANTS_MAX = 1024

Moment = Annotated[float, Field(ge=-1e15, le=1e15)]
"""Milliseconds on the problem's own axis."""


class _Processor(Shape):
    name: Name
    busy_until_ms: Moment = 0.0


class OperatorShape(Shape):
    """An operator of a network: who runs it, and whose results it takes."""

    name: Name
    processors: Annotated[list[Name], Field(min_length=1, max_length=PROCESSORS_MAX)]
    inputs: Annotated[list[Name], Field(max_length=OPERATORS_MAX)] = Field(default_factory=list)


class _Model(Shape):
    name: Name
    ops: Annotated[list[OperatorShape], Field(min_length=1, max_length=OPERATORS_MAX)]
    latency_ms: dict[Name, dict[Name, NotNegative]]
    fixed: Name | None = None


class _Job(Shape):
    name: Name
    model: Name
    arrival_ms: Moment
    slo_ms: Positive | None = None
    done_ops: Annotated[list[Name], Field(max_length=OPERATORS_MAX)] = Field(default_factory=list)
    processor: Name | None = None
    queued_ms: Moment | None = None
    tenant: Name | None = None
    priority: Annotated[int, Field(ge=-(10**6), le=10**6)] = 0


class _Tenant(Shape):
    name: Name
    weight: Positive = 1.0
    served_ms: NotNegative = 0.0


class _Problem(Shape):
    now_ms: Moment
    transfer_ms: NotNegative = 0.0
    processors: Annotated[list[_Processor], Field(max_length=PROCESSORS_MAX)]
    models: Annotated[list[_Model], Field(max_length=MODELS_MAX)]
    jobs: Annotated[list[_Job], Field(max_length=JOBS_MAX)]
    tenants: Annotated[list[_Tenant], Field(max_length=TENANTS_MAX)] = Field(default_factory=list)
    policy: str = DEFAULT


def read(document: Mapping[str, Any]) -> Question[DispatchPlan]:
    """The problem as a question to its policy. Raises: Malformed."""
    written = shaped(_Problem, document)
    known(written.policy, DISPATCH_POLICIES, "policy")
    refuse_duplicates((processor.name for processor in written.processors), "processors")
    refuse_duplicates((model.name for model in written.models), "models")
    refuse_duplicates((job.name for job in written.jobs), "jobs")
    refuse_duplicates((tenant.name for tenant in written.tenants), "tenants")
    there = [processor.name for processor in written.processors]
    networks = {model.name: _Network(model, there, f"models[{index}]") for index, model in enumerate(written.models)}
    tenants = [tenant.name for tenant in written.tenants]
    problem = DispatchInput(
        written.now_ms,
        tuple(Processor(p.name, p.busy_until_ms) for p in written.processors),
        tuple(_job(job, networks, tenants, f"jobs[{index}]") for index, job in enumerate(written.jobs)),
        written.transfer_ms,
        tuple(Tenant(tenant.name, tenant.weight, tenant.served_ms) for tenant in written.tenants),
    )
    policy = DISPATCH_POLICIES[written.policy]()
    cut = {name: network.partition for name, network in networks.items()}
    return Question(lambda: policy.plan(problem), lambda plan: dispatch_answer(plan, cut))


class _Network:
    """A model as it is cut, and cut again where a job has done a part of a unit."""

    def __init__(self, model: _Model, there: Sequence[str], key: str) -> None:
        refuse_duplicates((op.name for op in model.ops), f"{key}.ops")
        names = {op.name for op in model.ops}
        for index, op in enumerate(model.ops):
            for place, needed in enumerate(op.inputs):
                known(needed, sorted(names), f"{key}.ops[{index}].inputs[{place}]")
            for processor in op.processors:
                if processor in there and op.name not in model.latency_ms.get(processor, {}):
                    raise Malformed(f"{key}.latency_ms.{processor}", f"lacks operator {op.name!r}, which runs there")
        self._name, self.fixed = model.name, model.fixed
        self._operators = [Operator(op.name, frozenset(op.processors), tuple(op.inputs)) for op in model.ops]
        self._inputs = {op.name: op.inputs for op in model.ops}
        # A processor that is not there needs no latencies: nothing is sent to it.
        processors = {processor for op in model.ops for processor in op.processors}
        absent = {op.name: 0.0 for op in model.ops}
        self._latency_ms = {p: {**absent, **model.latency_ms.get(p, {})} for p in processors}
        try:
            self.partition = partition(self._name, self._operators, self._latency_ms)
        except Uncuttable as error:
            raise Malformed(f"{key}.ops", str(error)) from None
        self._rests: dict[frozenset[str], Partition] = {}

    def at(self, done_ops: Sequence[str], key: str) -> tuple[Partition, int]:
        """The partition for a job that has come so far, and what is done of its units. Raises: Malformed."""
        done = frozenset(done_ops)
        for index, op in enumerate(done_ops):
            known(op, list(self._inputs), f"{key}[{index}]")
            for needed in self._inputs[op]:
                if needed not in done:
                    raise Malformed(f"{key}[{index}]", f"{op!r} cannot be done before {needed!r}")
        units = sum(1 << index for index, unit in enumerate(self.partition.units) if done.issuperset(unit))
        covered = {op for index, unit in enumerate(self.partition.units) if units >> index & 1 for op in unit}
        if covered == done and (units in self.partition.next or units == self.partition.whole):
            return self.partition, units
        if done not in self._rests:
            self._rests[done] = partition(self._name, self._operators, self._latency_ms, done)
        return self._rests[done], 0


def _job(job: _Job, networks: Mapping[str, _Network], tenants: Sequence[str], key: str) -> Job:
    network = networks[known(job.model, networks, f"{key}.model")]
    if job.tenant is not None and tenants:
        known(job.tenant, tenants, f"{key}.tenant")
    cut, done = network.at(job.done_ops, f"{key}.done_ops")
    return Job(
        job.name,
        cut,
        job.arrival_ms,
        FOREVER if job.slo_ms is None else job.arrival_ms + job.slo_ms,
        done,
        job.processor,
        job.tenant or "",
        job.priority,
        job.queued_ms,
        network.fixed,
    )
