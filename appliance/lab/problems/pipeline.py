"""Kind `pipeline` (Scrooge §3.3-3.4): worker type, batch and concurrency of each stage, and where the instances go."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.domain.pipeline import CostBy
from appliance.lab.problems.base import (
    BATCH_MAX,
    Malformed,
    Name,
    NotNegative,
    Positive,
    Question,
    Shape,
    Share,
    known,
    refuse_duplicates,
    shaped,
)
from appliance.lab.registry import FAMILIES
from appliance.policies.allocation import DEFAULT
from appliance.policies.allocation.base import (
    TOLERANCE,
    AllocationInput,
    AllocationPlan,
    BatchWait,
    Draw,
    Existing,
    Module,
    Part,
    Profile,
    WorkerType,
)
from appliance.policies.allocation.dag import CyclicError, topological
from appliance.runtime.decisions.pipelines import pipeline_answer_json

WORKERS_MAX = 256
MODULES_MAX = 32
PROFILES_MAX = 4096
EDGES_MAX = 4096
EXISTING_MAX = 4096
DRAWS_MAX = 16
INSTANCES_MAX = 1e4
"""Full instances that one module may need of its weakest configuration."""


class _Worker(Shape):
    name: Name
    cost: NotNegative
    available: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    kind: Name = "gpu"
    group: Name | None = None
    """Kinds on the same cores: one `available` for all of them."""


class _Draw(Shape):
    worker: Name
    share: Annotated[float, Field(gt=0, le=1)]


class _Profile(Shape):
    worker: Name
    batch: Annotated[int, Field(ge=1, le=BATCH_MAX)]
    concurrency: Annotated[int, Field(ge=1, le=BATCH_MAX)] = 1
    latency_ms: Positive
    throughput_rps: Positive | None = None
    power_w: NotNegative | None = None
    draws: Annotated[list[_Draw], Field(max_length=DRAWS_MAX)] = Field(default_factory=list)
    """Workers' time of other types that a full instance takes beside its own."""

    @property
    def draws_sorted(self) -> tuple[Draw, ...]:
        return tuple(sorted((Draw(one.worker, one.share) for one in self.draws), key=lambda one: one.worker))


class _Module(Shape):
    name: Name
    rate_rps: Annotated[float, Field(ge=0, le=1e9)]
    ballooning: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    profiles: Annotated[list[_Profile], Field(min_length=1, max_length=PROFILES_MAX)]


class _Part(Shape):
    module: Name
    share: Share


class _Existing(Shape):
    worker: Name
    index: Annotated[int, Field(ge=0, le=1_000_000)]
    parts: Annotated[list[_Part], Field(max_length=1024)] = Field(default_factory=list)
    loaded: Annotated[list[Name], Field(max_length=1024)] = Field(default_factory=list)


class Problem(Shape):
    slo_ms: Positive
    workers: Annotated[list[_Worker], Field(min_length=1, max_length=WORKERS_MAX)]
    modules: Annotated[list[_Module], Field(min_length=1, max_length=MODULES_MAX)]
    edges: Annotated[list[Annotated[list[Name], Field(min_length=2, max_length=2)]], Field(max_length=EDGES_MAX)] = (
        Field(default_factory=list)
    )
    existing: Annotated[list[_Existing], Field(max_length=EXISTING_MAX)] = Field(default_factory=list)
    cost_by: Literal["price", "energy", "seconds"] = "price"
    batch_wait: Literal["full", "rest", "none"] = "full"
    policy: str = DEFAULT


def read(document: Mapping[str, Any]) -> Question[AllocationPlan]:
    """The problem as a question to its policy. Raises: Malformed."""
    written = shaped(Problem, document)
    known(written.policy, FAMILIES["pipeline"], "policy")
    refuse_duplicates((worker.name for worker in written.workers), "workers")
    refuse_duplicates((module.name for module in written.modules), "modules")
    _check_groups(written.workers)
    kinds = {worker.name: worker.kind for worker in written.workers}
    for index, module in enumerate(written.modules):
        _check_profiles(module, f"modules[{index}]", kinds, written.cost_by)
    _check_edges(written.edges, [module.name for module in written.modules])
    _check_existing(written.existing, {worker.name: worker.group or worker.name for worker in written.workers})
    problem = allocation_input(written)
    policy = FAMILIES["pipeline"][written.policy]()
    return Question(lambda: policy.plan(problem), lambda plan: pipeline_answer_json(plan, written.cost_by))


def _check_groups(workers: Sequence[_Worker]) -> None:
    """A group's workers are those of each of its types, and its name is no type's outside of it."""
    groups: dict[str, _Worker] = {}
    for index, worker in enumerate(workers):
        if worker.group is None:
            continue
        first = groups.setdefault(worker.group, worker)
        if worker.available != first.available:
            raise Malformed(
                f"workers[{index}].available", f"must be that of {first.name!r}, which is of the same group"
            )
    for index, worker in enumerate(workers):
        if worker.name in groups and worker.group != worker.name:
            raise Malformed(f"workers[{index}].name", "is that of a group")


def _check_profiles(module: _Module, key: str, kinds: Mapping[str, str], cost_by: str) -> None:
    seen: dict[tuple[str, int, int], _Profile] = {}
    for index, profile in enumerate(module.profiles):
        at = f"{key}.profiles[{index}]"
        known(profile.worker, kinds, f"{at}.worker")
        for number, draw in enumerate(profile.draws):
            known(draw.worker, kinds, f"{at}.draws[{number}].worker")
            if draw.worker in {profile.worker, *(one.worker for one in profile.draws[:number])}:
                raise Malformed(f"{at}.draws[{number}].worker", "is its own worker, or drawn of twice")
        if kinds[profile.worker] == "cpu" and profile.batch != 1:
            raise Malformed(f"{at}.batch", "must be 1 on a worker of kind cpu")
        if cost_by == "energy" and profile.power_w is None:
            raise Malformed(f"{at}.power_w", "is missing, and cost_by is energy")
        point = profile.worker, profile.batch, profile.concurrency
        if seen.setdefault(point, profile) != profile:
            raise Malformed(
                at, f"{profile.worker!r} has batch {profile.batch}, concurrency {profile.concurrency} twice"
            )
        throughput = profile.throughput_rps or 1000.0 * profile.batch * profile.concurrency / profile.latency_ms
        if module.rate_rps * module.ballooning > INSTANCES_MAX * throughput:
            raise Malformed(f"{key}.rate_rps", f"needs more than {INSTANCES_MAX:g} instances of profiles[{index}]")


def _check_edges(edges: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    for index, edge in enumerate(edges):
        for end, name in enumerate(edge):
            known(name, names, f"edges[{index}][{end}]")
    position = {name: i for i, name in enumerate(names)}
    try:
        topological(len(names), sorted({(position[source], position[target]) for source, target in edges}))
    except CyclicError as error:
        raise Malformed("edges", f"have a cycle through {names[error.index]!r}") from None


def _check_existing(existing: Sequence[_Existing], pools: Mapping[str, str]) -> None:
    """`pools`: what each worker type takes its workers of."""
    seen: set[tuple[str, int]] = set()
    shares: dict[tuple[str, int], float] = {}
    for position, worker in enumerate(existing):
        known(worker.worker, pools, f"existing[{position}].worker")
        if (worker.worker, worker.index) in seen:
            raise Malformed(f"existing[{position}].index", f"{worker.worker!r} has {worker.index} twice")
        seen.add((worker.worker, worker.index))
        taken = pools[worker.worker], worker.index
        shares[taken] = shares.get(taken, 0.0) + sum(part.share for part in worker.parts)
        if shares[taken] > 1.0 + TOLERANCE:
            raise Malformed(f"existing[{position}].parts", "have shares of more than 1 in all")


def allocation_input(written: Problem) -> AllocationInput:
    return AllocationInput(
        slo_ms=written.slo_ms,
        workers=tuple(WorkerType(w.name, w.cost, w.available, w.group) for w in written.workers),
        modules=tuple(_module(m) for m in written.modules),
        edges=tuple(sorted({(source, target) for source, target in written.edges})),
        existing=tuple(
            Existing(e.worker, e.index, tuple(Part(p.module, p.share) for p in e.parts), tuple(e.loaded))
            for e in written.existing
        ),
        cost_by=CostBy(written.cost_by),
        batch_wait=BatchWait(written.batch_wait),
    )


def _module(written: _Module) -> Module:
    points = dict.fromkeys(
        Profile(p.worker, p.batch, p.concurrency, p.latency_ms, p.throughput_rps, p.power_w, p.draws_sorted)
        for p in written.profiles
    )
    return Module(written.name, written.rate_rps, tuple(points), written.ballooning)
