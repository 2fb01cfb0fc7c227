"""Turns of tenants and of their applications: who has had more waits, whoever was away for long is forgotten."""

import pytest

from appliance.clock import NS_PER_MS
from appliance.runtime.serving.flows import ACTIVE_NS, TenantFlows
from appliance.runtime.serving.job import Job
from tests.fakes.clock import story
from tests.runtime.serving.jobs import job

ALIKE = (1.0, 1.0)


def put(flows: TenantFlows, one: Job, number: int) -> Job:
    """It waits, behind those with lower numbers of its application."""
    one.place = [0, 0, number, one]
    tenant = flows.of(one.request.tenant)
    flows.put(tenant, tenant.of(one.request.application_id), one.place)
    return one


@story
async def test_run_is_charged_to_its_application_and_its_tenant() -> None:
    """It counts for the application inside its tenant, and for the tenant beside the others."""
    flows = TenantFlows()
    first, second, other = (
        put(flows, job(name, tenant=tenant), at)
        for at, (name, tenant) in enumerate([("a", "t"), ("b", "t"), ("c", "u")])
    )
    assert [one.head() for one in flows.waiting()] == [first, other]
    first.charged_ns = 10 * NS_PER_MS
    flows.begin(first)
    flows.remove(first)
    assert flows.by_name["t"].head() is second
    assert (flows.is_behind("t"), flows.is_behind("u")) == (True, False)
    assert flows.lead_ns("t", "u") == 10 * NS_PER_MS
    first.started_ns, first.finished_ns = 0, 4 * NS_PER_MS
    flows.end(first, 0)
    assert flows.lead_ns("t", "u") == 4 * NS_PER_MS
    assert list(flows.jobs()) == [second, other]


@story
async def test_run_is_charged_by_its_tenants_weight() -> None:
    """Of a tenant with three times the weight a run counts a third; where no tenant waits, none is behind."""
    flows = TenantFlows()
    flows.ran("t", "a", 30, (3.0, 1.0))
    assert flows.start_of("t") == pytest.approx(10)
    assert not flows.is_behind("t")


@story
async def test_active_tenant_may_go_first_and_is_forgotten_after_a_minute() -> None:
    """A tenant that asked within a minute may ask again at any moment; after that nothing of it is kept."""
    flows = TenantFlows()
    flows.saw("u", 0)
    assert flows.may_go_before("t", 1.0, ACTIVE_NS)
    assert not flows.may_go_before("u", 1.0, ACTIVE_NS), "nobody else was active"
    assert not flows.may_go_before("t", 1.0, ACTIVE_NS + 1)
    flows.of("u")
    ended = put(flows, job("a", tenant="t"), 0)
    flows.begin(ended)
    flows.remove(ended)
    flows.end(ended, ACTIVE_NS + 1)
    assert list(flows.by_name) == ["t"]


@story
async def test_application_lists_its_most_urgent_jobs_in_order() -> None:
    """Without jobs that have gone, however many wait."""
    for waiting in (3, 40, 400):
        flows = TenantFlows()
        jobs = {at * 7919 % waiting: job("a", tenant="t") for at in range(waiting)}
        for number, one in jobs.items():
            put(flows, one, number)
        for number in (1, 2):
            flows.remove(jobs.pop(number))
        application = flows.of("t").of("a")
        assert application.first(4) == [jobs[number] for number in sorted(jobs)][:4]
        assert application.first(4) == list(application.in_order())[:4]
