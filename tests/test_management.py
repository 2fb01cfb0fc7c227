"""Committed changes of the store reach those that keep a picture of it."""

from types import SimpleNamespace
from typing import Any

from appliance.domain.catalogue import Quota, Tenant
from appliance.management import Follower
from appliance.modelstore.store.records import Change
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.pipelines.whole import WholeBox


@story
async def test_changed_tenant_quota_replans_pipelines_at_once() -> None:
    """The tenant's pipelines do not wait for the next look at the figures."""
    whole = WholeBox({"fine": Cost(run_ms=20)}, {"fine": Cost(run_ms=8)})
    live = whole.add()
    serving: Any = SimpleNamespace(
        keyring=None,
        browsers=SimpleNamespace(sign_ins=None),
        regions=None,
        deferred=None,
        history=None,
        telemetry=whole.box.telemetry,
        pipelines=whole.pipelines,
        sessions=None,
    )
    follow = Follower(whole.box.core, serving)
    async with whole.working():
        whole.film(live, 10)
        await whole.pause(5.2)
        assert live.plan is not None
        number = live.plan.number
        follow(Change("tenant", "t", Tenant("t", Quota(processor_weight=2.0))))
        await whole.pause(0.05)  # a policy answers in 20 ms
        assert live.plan.number == number + 1


@story
async def test_new_tenant_finds_nothing_of_deleted_tenant_of_same_name() -> None:
    """Neither counts from before the deletion nor those of requests that ended after."""
    whole = WholeBox({"fine": Cost(run_ms=20)}, {"fine": Cost(run_ms=8)})
    telemetry = whole.box.telemetry
    gone: list[str] = []
    serving: Any = SimpleNamespace(
        keyring=SimpleNamespace(remove_tenant=gone.append),
        browsers=SimpleNamespace(sign_ins=None),
        regions=None,
        deferred=SimpleNamespace(drop_tenant=gone.append),
        history=SimpleNamespace(forget_tenant=gone.append),
        telemetry=telemetry,
        pipelines=whole.pipelines,
        sessions=SimpleNamespace(forget_tenant=gone.append),
    )
    follow = Follower(whole.box.core, serving)
    follow(Change("tenant", "u", Tenant("u")))
    for change in (Change("tenant", "u", None), Change("tenant", "u", Tenant("u"))):
        telemetry.failed(("t/shared", "v", "u"), "rejected", 1)
        follow(change)
        assert not telemetry.statistics
    assert gone == 6 * ["u"]
