"""Kind `residency` (Edge-MultiAI §III-B): who leaves memory for this request.

Beyond the format: `intent` (`serve`, the default; `procure`; `rebalance`, for which `request` may be null), an
application's `rate_rps` and `prediction_hit_rate`, and of a variant `sleeps`: it is asleep, or will be when it leaves;
its `load_ms` is that of a wake, and its `size_mb` without what it keeps.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.units import BYTES_PER_MB
from appliance.lab.problems.base import (
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
from appliance.policies.residency import DEFAULT, EVICTION_POLICIES
from appliance.policies.residency.base import (
    PROMISED,
    ApplicationState,
    Option,
    Rate,
    ResidencyPlan,
    ResidencyProblem,
    TenantShare,
    Wish,
)

APPLICATIONS_MAX = 1024
VARIANTS_MAX = 256
LATER_MAX = 1024

Moment = Annotated[float, Field(ge=-1e12, le=1e12)]
"""Seconds on the problem's own axis."""
Megabytes = Annotated[float, Field(ge=0, le=1e12)]
SomeMegabytes = Annotated[float, Field(gt=0, le=1e12)]


class _Variant(Shape):
    name: Name
    size_mb: SomeMegabytes
    accuracy: NotNegative
    load_ms: NotNegative
    peak_mb: SomeMegabytes | None = None
    sleeps: bool = False


class _Wish(Shape):
    variant: Name
    until_s: Moment
    priority: Annotated[int, Field(ge=-(10**6), le=PROMISED)] = 0


class _Application(Shape):
    name: Name
    variants: Annotated[list[_Variant], Field(min_length=1, max_length=VARIANTS_MAX)]
    resident: Name | None = None
    pinned: bool = False
    last_request_s: Moment | None = None
    next_request_s: Moment | None = None
    later_requests_s: Annotated[list[Moment], Field(max_length=LATER_MAX)] | None = None
    spread_s: NotNegative | None = None
    prediction_hit_rate: Share | None = None
    unexpected_probability: Share = 0.0
    rate_rps: NotNegative | None = None
    tenant: Name | None = None
    weight: NotNegative = 1.0
    accuracy_min: NotNegative = 0.0
    keep: Annotated[list[_Wish], Field(max_length=VARIANTS_MAX)] | None = None


class _Tenant(Shape):
    name: Name
    guarantee_mb: Megabytes | None = None
    ceiling_mb: Megabytes | None = None


class _Problem(Shape):
    now_s: Moment
    memory_mb: Positive
    history_window_s: NotNegative
    delta_s: NotNegative
    applications: Annotated[list[_Application], Field(min_length=1, max_length=APPLICATIONS_MAX)]
    request: Name | None = None
    intent: Literal["serve", "procure", "rebalance"] = "serve"
    tenants: Annotated[list[_Tenant], Field(max_length=APPLICATIONS_MAX)] | None = None
    policy: str = DEFAULT


def read(document: Mapping[str, Any]) -> Question[ResidencyPlan]:
    """The problem as a question to its policy. Raises: Malformed."""
    written = shaped(_Problem, document)
    known(written.policy, EVICTION_POLICIES, "policy")
    names = [application.name for application in written.applications]
    refuse_duplicates(names, "applications")
    if written.request is not None:
        known(written.request, names, "request")
    elif written.intent != "rebalance":
        raise Malformed("request", "is missing")
    for index, application in enumerate(written.applications):
        _check_application(application, written, f"applications[{index}]")
    _check_tenants(written)
    problem = _problem(written)
    _check_memory(problem)
    policy = EVICTION_POLICIES[written.policy]()
    return Question(lambda: policy.plan(problem), lambda plan: _answer(problem, plan))


def _check_application(application: _Application, written: _Problem, key: str) -> None:
    names = [variant.name for variant in application.variants]
    refuse_duplicates(names, f"{key}.variants")
    for index, variant in enumerate(application.variants):
        if variant.peak_mb is not None and variant.peak_mb < variant.size_mb:
            raise Malformed(f"{key}.variants[{index}].peak_mb", "must be >= size_mb")
    if application.resident is not None:
        known(application.resident, names, f"{key}.resident")
    if application.last_request_s is not None and application.last_request_s > written.now_s:
        raise Malformed(f"{key}.last_request_s", "must be <= now_s")
    if all(variant.accuracy < application.accuracy_min for variant in application.variants):
        raise Malformed(f"{key}.accuracy_min", "is reached by no variant")
    for index, wish in enumerate(application.keep or ()):
        known(wish.variant, names, f"{key}.keep[{index}].variant")
    if application.tenant is not None and written.tenants is not None:
        known(application.tenant, [tenant.name for tenant in written.tenants], f"{key}.tenant")


def _check_tenants(written: _Problem) -> None:
    tenants = written.tenants or []
    refuse_duplicates((tenant.name for tenant in tenants), "tenants")
    for index, tenant in enumerate(tenants):
        if tenant.ceiling_mb is not None and (tenant.guarantee_mb or 0) > tenant.ceiling_mb:
            raise Malformed(f"tenants[{index}].guarantee_mb", "must be <= ceiling_mb")
    if sum(_bytes(tenant.guarantee_mb or 0) for tenant in tenants) > _bytes(written.memory_mb):
        raise Malformed("tenants", "are guaranteed more than memory_mb together")


def _check_memory(problem: ResidencyProblem) -> None:
    over = -_free_bytes(problem)
    if over > 0:
        held = (problem.memory_bytes + over) / BYTES_PER_MB
        raise Malformed("memory_mb", f"is less than the {held:g} MB of the variants that are resident")


def _problem(written: _Problem) -> ResidencyProblem:
    now_ns = _ns(written.now_s)
    return ResidencyProblem(
        now_ns=now_ns,
        memory_bytes=_bytes(written.memory_mb),
        history_window_ns=_ns(written.history_window_s),
        delta_ns=_ns(written.delta_s),
        applications=tuple(_application(application, now_ns) for application in written.applications),
        request=written.request,
        intent=written.intent,
        tenants=tuple(_tenant(tenant) for tenant in written.tenants or ()),
        unexpected={a.name: a.unexpected_probability for a in written.applications if a.unexpected_probability},
    )


def _application(written: _Application, now_ns: int) -> ApplicationState:
    return ApplicationState(
        name=written.name,
        options=tuple(_option(variant) for variant in written.variants),
        resident=written.resident,
        pinned=written.pinned,
        last_request_ns=None if written.last_request_s is None else _ns(written.last_request_s),
        next_request_ns=None if written.next_request_s is None else _ns(written.next_request_s),
        later_requests_ns=tuple(_ns(moment_s) for moment_s in written.later_requests_s or ()),
        spread_ns=None if written.spread_s is None else _ns(written.spread_s),
        prediction_hit_rate=written.prediction_hit_rate,
        rate=None if written.rate_rps is None else Rate(written.rate_rps, now_ns - NS_PER_S),
        tenant=written.tenant or "default",
        weight=written.weight,
        accuracy_min=written.accuracy_min,
        wishes=tuple(Wish(wish.variant, _ns(wish.until_s), wish.priority) for wish in written.keep or ()),
    )


def _option(written: _Variant) -> Option:
    peak_mb = written.size_mb if written.peak_mb is None else written.peak_mb
    load_ns = round(written.load_ms * NS_PER_MS)
    return Option(written.name, _bytes(written.size_mb), _bytes(peak_mb), written.accuracy, load_ns, written.sleeps)


def _tenant(written: _Tenant) -> TenantShare:
    ceiling = None if written.ceiling_mb is None else _bytes(written.ceiling_mb)
    return TenantShare(written.name, _bytes(written.guarantee_mb or 0), ceiling)


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def _bytes(megabytes: float) -> int:
    return round(megabytes * BYTES_PER_MB)


def _answer(problem: ResidencyProblem, plan: ResidencyPlan) -> dict[str, object]:
    return {
        "outcome": plan.outcome,
        "serve": plan.serve,
        "actions": [{"application": c.application, "from": c.before, "to": c.after} for c in plan.changes],
        "free_mb": _free_bytes(problem, plan) / BYTES_PER_MB,
        "reason": plan.reason,
    }


def _free_bytes(problem: ResidencyProblem, plan: ResidencyPlan | None = None) -> int:
    """Memory less the residents, after the plan's changes where one is given."""
    resident = {application.name: application.resident for application in problem.applications}
    if plan is not None:
        resident.update({change.application: change.after for change in plan.changes})
    held = 0
    for application in problem.applications:
        held += sum(option.bytes for option in application.options if option.name == resident[application.name])
    return problem.memory_bytes - held
