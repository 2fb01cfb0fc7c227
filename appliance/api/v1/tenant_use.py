"""What a tenant uses of what its quota allows."""

from math import isnan

from appliance.api.box import RunningBox
from appliance.clock import NS_PER_S
from appliance.wire.access import TenantUseShape

_RATE_OVER_S = 60


async def use_of(box: RunningBox, tenant: str) -> TenantUseShape:
    """As it is now."""
    holdings = box.shares.holdings(box.memory.holders())
    return TenantUseShape(
        requests_per_s=await _rate(box, tenant),
        concurrent_requests=box.engine.running_of(tenant),
        memory_bytes=sum(one.held_bytes for one in holdings if one.tenant == tenant),
        stored_bytes=await box.store.stored_bytes.of_tenant(tenant),
        processor_s=round(_spent_ns(box, tenant) / NS_PER_S, 6),
    )


def _spent_ns(box: RunningBox, tenant: str) -> int:
    spent = (one.by_tenant.get(tenant) for one in (box.engine.single_calls, box.pipelines.spending))
    return sum(one.total_ns for one in spent if one is not None)


async def _rate(box: RunningBox, tenant: str) -> float | None:
    name, now_s = f"requests:{tenant}", box.clock.wall_now().timestamp()
    found = await box.history.read([name], now_s - _RATE_OVER_S, now_s, 1)
    known = [float(one) for one in found.series[name].mean if not isnan(one)]
    return round(known[-1], 3) if known else None
