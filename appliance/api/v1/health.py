"""Whether the box is well, and what to do where it is not."""

from collections.abc import Iterable, Sequence

from fastapi import APIRouter

from appliance.api.http.documented import problems
from appliance.api.v1.deps import Member, TheBox
from appliance.api.v1.health_facts import look
from appliance.domain.errors import Forbidden
from appliance.domain.health.conditions import Check, Condition, Severity, worst
from appliance.wire.health import CheckShape, ConditionShape, HealthShape, SubjectShape

router = APIRouter(prefix="/v1/health", tags=["system"])

CONDITIONS_MAX = 200
DETAILS_MAX = 10
"""Conditions that the detail of a check names."""


@router.get("", summary="Is the box well?", responses=problems(Forbidden))
async def health(box: TheBox, principal: Member) -> HealthShape:
    """Return the conditions that hold, the worst first, each with what to do; `status` is the worst of them. `checks`
    is the same by what was looked at, with what is well.

    An admin key sees all of it. A tenant's key sees the conditions of its own applications, pipelines, sessions, models
    and keys, and those of the box that concern it, without figures.
    """
    checks: Iterable[Check] = await look(box)
    if not principal.is_admin:
        seen = [one.as_seen_by(principal.tenant) for one in checks]
        checks = [one for one in seen if one.concerns_tenants or one.conditions]
    checks = list(checks)
    found = sorted((one for check in checks for one in check.conditions), key=_place)
    return HealthShape(
        status=worst([one.severity for one in found]).value,
        conditions=[_condition(one) for one in found[:CONDITIONS_MAX]],
        conditions_in_all=len(found),
        checks=[_check(one) for one in checks],
    )


def _place(one: Condition) -> tuple[bool, str]:
    """The worst first; of those that are as bad in the order of the checks, the latest last."""
    return one.severity is not Severity.BAD, one.since.isoformat()


def _condition(one: Condition) -> ConditionShape:
    return ConditionShape(
        id=one.trouble.value,
        severity=one.severity.value,
        subject=SubjectShape(kind=one.subject.kind.value, name=one.subject.name, tenant=one.subject.tenant),
        text=one.text,
        detail=one.detail,
        action=one.action,
        since=one.since,
    )


def _check(one: Check) -> CheckShape:
    if not one.conditions:
        return CheckShape(name=one.name, status="good", detail=one.well, action="")
    return CheckShape(
        name=one.name,
        status=one.state.value,
        detail=_joined([found.detail or found.text for found in one.conditions], "; "),
        action=_joined(list(dict.fromkeys(found.action for found in one.conditions)), " "),
    )


def _joined(texts: Sequence[str], separator: str) -> str:
    shown = list(texts[:DETAILS_MAX])
    return separator.join([*shown, f"and {len(texts) - DETAILS_MAX} more"] if len(texts) > DETAILS_MAX else shown)
