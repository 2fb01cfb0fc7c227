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
async def test_a_tenant_that_changes_is_planned_with_at_once() -> None:
    """Its pipelines do not wait for the next look at the figures."""
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
